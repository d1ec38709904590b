import numpy as np
import polars as pl
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from unswayed.errors import UserError
from unswayed.evaluation.measures import auroc, best_channels, channel_localization, channel_table, suspects


def test_every_channel_agrees_with_scikit_learn_ties_included():
    rng = np.random.default_rng(0)
    maps, mask = rng.integers(-2, 5, (7, 9, 9)).astype(float), rng.random((9, 9)) < 0.3
    iou, precision = channel_localization(maps, mask)
    for channel in range(7):
        assert precision[channel] == pytest.approx(average_precision_score(mask.ravel(), maps[channel].ravel()))
        hot = maps[channel] >= maps[channel].max() / 2
        assert iou[channel] == pytest.approx((hot & mask).sum() / (hot | mask).sum())


def test_auroc_agrees_with_scikit_learn_and_is_missing_without_two_sides():
    rng = np.random.default_rng(1)
    scores, present = rng.integers(0, 4, (30, 5)).astype(float), rng.random(30) < 0.4
    expected = [roc_auc_score(present, scores[:, c]) for c in range(5)]
    assert auroc(scores, present) == pytest.approx(expected)
    assert np.isnan(auroc(scores, np.ones(30, bool))).all()


def test_the_best_channel_of_each_attribute_in_the_order_of_attributes():
    found = {
        "wings": (np.array([0.2, 0.8]), np.array([0.4, 1.0]), 2),
        "ears": (np.array([0.3, 0.1]), np.array([0.5, 0.5]), 1),
    }
    present = {"wings": np.array([True, True, False]), "ears": np.array([False, False, True])}
    table = channel_table(found, np.array([[0.1, 0.9], [0.2, 0.8], [0.9, 0.1]]), present)
    best = best_channels(table)
    assert best.select("attribute", "channel").rows() == [("wings", 1), ("ears", 0)]
    assert best["auroc"].to_list() == [1.0, 1.0]
    assert best["average_precision"].to_list() == [0.5, 0.5]


def test_suspects_are_the_least_on_the_object_and_the_most_hurt_by_the_background():
    saliency = pl.DataFrame(
        {
            "model": "m",
            "label": [0, 0, 0, 1],
            "edit": "original",
            "source_id": list("abcd"),
            "precision": [0.9, 0.2, None, 0.5],
        }
    )
    noise = pl.DataFrame(
        [
            {"model": "m", "label": 0, "source_id": one, "norm": "linf", "region": region, "true_probability": value}
            for one, pair in {"a": (0.9, 0.1), "b": (0.2, 0.8)}.items()
            for region, value in zip(("foreground", "background"), pair, strict=True)
        ]
    )
    table = suspects(noise, saliency, per_class=1)
    assert table.select("label", "reason", "source_id").rows() == [
        (0, "noise", "a"),
        (0, "saliency", "b"),
        (1, "saliency", "d"),
    ]
    assert table["value"].to_list() == pytest.approx([-0.8, 0.2, 0.5])
    assert suspects(None, saliency)["reason"].unique().to_list() == ["saliency"]


def test_suspects_by_the_predicted_class_and_another_measure():
    saliency = pl.DataFrame(
        {
            "model": "m", "label": [0, 0, 1], "predicted": [1, 0, 1], "edit": "original", "source_id": list("abc"),
            "precision": [0.1, 0.2, 0.9], "iou": [0.5, 0.6, 0.3],
        }
    )  # fmt: skip
    rows = [("a", "clean", "none", 1, 0.9), ("a", "linf", "foreground", 0, 0.6), ("a", "linf", "background", 0, 0.5)]
    noise = pl.DataFrame(
        [
            {"model": "m", "label": 0, "source_id": one, "norm": norm, "region": region, "predicted": predicted,
             "true_probability": value}
            for one, norm, region, predicted, value in rows
        ]
    )  # fmt: skip
    table = suspects(noise, saliency, per_class=1, by="predicted", measure="iou")
    assert table.select("predicted", "reason", "source_id").rows() == [
        (0, "saliency", "b"), (1, "noise", "a"), (1, "saliency", "c")
    ]  # fmt: skip
    with pytest.raises(UserError, match="no measure of alignment 'depth'"):
        suspects(None, saliency, measure="depth")
