import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from unswayed.analyses.alignment import by_class, by_correctness, by_edit, by_group, summary
from unswayed.errors import BadPicture, UserError
from unswayed.evaluation.measures import MEASURES, alignment, channel_localization

DATA = Path(__file__).parent.parent / "data"
PUBLISHED = json.loads((DATA / "rival10_measures.json").read_text())["saliency"]


@pytest.mark.parametrize("case", range(len(PUBLISHED)))
def test_equals_the_published_functions(case):
    stored, expected = np.load(DATA / "rival10_saliency.npz"), PUBLISHED[case]
    measured = alignment(stored["cams"][case], stored["masks"][case])
    names = ("iou", "dice", "precision", "density_difference", "average_precision")
    published = ("iou", "dice", "frac_inside", "delta_density", "average_precision")
    for name, key in zip(names, published, strict=True):
        assert measured[name] == (None if expected[key] is None else pytest.approx(expected[key], abs=1e-6)), name
    recalls = [measured[f"recall_{share}"] for share in (25, 50, 75)]
    assert recalls == pytest.approx(expected["mask_coverage_25_50_75"], abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(1, 20))
def test_measures_stay_in_their_ranges_and_ignore_the_scale(seed, side, steps):
    rng = np.random.default_rng(seed)
    heat = rng.integers(0, steps + 1, (side, side)) / steps
    mask = np.zeros((side, side))
    mask[: rng.integers(1, side), : rng.integers(1, side + 1)] = 1
    measured = alignment(heat, mask)
    for name in MEASURES:
        if measured[name] is not None:
            assert (-1 if name == "density_difference" else 0) <= measured[name] <= 1
    assert measured["iou"] <= measured["dice"] <= 2 * measured["iou"] + 1e-12
    assert measured["recall_25"] >= measured["recall_50"] >= measured["recall_75"]
    scaled = alignment(heat * 4, mask)
    assert all(scaled[name] == measured[name] for name in MEASURES if name != "density_difference")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40))
def test_average_precision_of_many_channels_is_the_one_of_scikit_learn(pairs):
    scores, positive = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    if positive.any():
        maps = np.stack([scores, -scores]).reshape(2, 1, -1).astype(float)
        _, measured = channel_localization(maps, positive.reshape(1, -1))
        expected = [average_precision_score(positive, one) for one in (scores, -scores)]
        assert measured == pytest.approx(expected, abs=1e-12)


def test_a_map_that_is_the_mask_is_perfect():
    mask = np.zeros((8, 8))
    mask[2:5, 3:7] = 1
    assert set(alignment(mask, mask).values()) == {1.0}


@pytest.mark.parametrize(("mask", "reason"), [(np.zeros((4, 4)), "empty"), (np.ones((4, 4)), "whole picture")])
def test_empty_and_full_masks_are_refused(mask, reason):
    with pytest.raises(BadPicture, match=reason):
        alignment(np.ones((4, 4)), mask)


def test_wrong_shapes_and_negative_maps_are_refused():
    with pytest.raises(UserError, match="equal shapes"):
        alignment(np.ones((4, 4)), np.eye(5))
    with pytest.raises(UserError, match="negative"):
        alignment(-np.ones((4, 4)), np.eye(4))


def rows(edits, values, correct=True):
    """One row an edit and picture, every measure at the value given."""
    return pl.DataFrame(
        [
            {"model": "m", "method": "layercam", "edit": edit, "source_id": f"s{i}", "correct": correct}
            | dict.fromkeys(MEASURES, value)
            for edit in edits
            for i, value in enumerate(values[edit])
        ]
    )


def test_change_by_edit_is_paired_and_skips_what_is_missing():
    table = rows(["original", "size"], {"original": [0.5, 0.7, 0.9], "size": [0.4, 0.6, 0.8, 0.1]})
    table = table.with_columns(
        pl.when((pl.col("edit") == "size") & (pl.col("source_id") == "s2"))
        .then(None)
        .otherwise("precision")
        .alias("gap")
    ).with_columns(pl.when(pl.col("gap").is_null()).then(None).otherwise(pl.col("precision")).alias("precision"))
    result = by_edit(table.drop("gap"), draws=200)
    iou, precision = (result.row(by_predicate=pl.col("measure") == m, named=True) for m in ("iou", "precision"))
    assert (iou["n"], precision["n"]) == (3, 2)
    assert iou["original"] == pytest.approx(0.7)
    assert iou["edited"] == pytest.approx(0.6)
    assert iou["change"] == pytest.approx(-0.1)
    assert iou["low"] == pytest.approx(-0.1)
    assert precision["original"] == pytest.approx(0.6)


def test_right_and_wrong_are_compared_and_an_empty_side_is_null():
    right = rows(["original"], {"original": [0.8, 0.9, 1.0]})
    wrong = rows(["original"], {"original": [0.1, 0.3]}, correct=False)
    row = by_correctness(pl.concat([right, wrong]), draws=200).row(0, named=True)
    assert (row["n_right"], row["n_wrong"]) == (3, 2)
    assert row["difference"] == pytest.approx(0.7)
    assert 0.4 < row["low"] < 0.7 < row["high"] < 1
    alone = by_correctness(right, draws=50).row(0, named=True)
    assert (alone["wrong"], alone["difference"], alone["low"]) == (None, None, None)
    assert alone["right"] == pytest.approx(0.9)


def test_summary_counts_and_means():
    both = pl.concat([rows(["original"], {"original": [0.2]}), rows(["original"], {"original": [0.4]}, correct=False)])
    row = summary(both).row(0, named=True)
    assert (row["n"], row["accuracy"], row["iou"]) == (2, 0.5, pytest.approx(0.3))


def test_alignment_by_true_and_predicted_class_and_by_group_of_models():
    values = {measure: [0.2, 0.4, 0.9, 0.5] for measure in MEASURES}
    rows = pl.DataFrame(
        {
            "model": ["a", "a", "a", "b"], "method": "layercam", "edit": "original", "label": [0, 0, 1, 0],
            "predicted": [0, 1, 1, 1], "correct": [True, False, True, False], **values,
        }
    )  # fmt: skip
    assert by_class(rows).filter(pl.col("model") == "a")["precision"].to_list() == pytest.approx([0.3, 0.9])
    predicted = by_class(rows, "predicted").filter(pl.col("model") == "a")
    assert predicted.select("predicted", "n").rows() == [(0, 1), (1, 2)]
    assert predicted["precision"].to_list() == pytest.approx([0.2, 0.65])
    groups = pl.DataFrame({"model": ["a", "b"], "training": ["x", "x"]})
    row = by_group(rows, groups).row(0, named=True)
    # The mean over classes of each model, then over models: (0.6 + 0.5) / 2.
    assert (row["group"], row["models"], row["precision"]) == ("x", 2, pytest.approx(0.55))
