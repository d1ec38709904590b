"""Distribution tables: AUROC as scikit-learn's, verdicts from intervals, FID and KID as torch-fidelity's."""

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

from unswayed.analyses.distribution import (
    background_table,
    distance_table,
    histogram_table,
    score_table,
    separation,
    verdict_table,
)


def ids(n, prefix="i"):
    return [f"{prefix}{place}" for place in range(n)]


def test_auroc_is_scikit_learns_ties_included():
    rng = np.random.default_rng(0)
    one, two = rng.integers(0, 9, 60) / 2, rng.integers(0, 7, 45) / 2
    found = separation(one, ids(60), two, ids(45, "j"))
    expected = roc_auc_score([1] * 60 + [0] * 45, np.concatenate([one, two]))
    assert found.auroc == pytest.approx(expected)
    assert found.low < found.auroc < found.high


def test_equal_sets_overlap_wholly_and_distant_ones_not_at_all():
    scores = np.random.default_rng(1).normal(size=80)
    same = separation(scores, ids(80), scores, ids(80))
    assert (same.auroc, same.overlap) == (0.5, 1.0)
    assert same.low == same.high == 0.5, "paired by photograph: the same pictures cannot differ by chance"
    apart = separation(scores, ids(80), scores - 100, ids(80))
    assert (apart.auroc, apart.overlap) == (1.0, 0.0)


def test_the_interval_covers_the_true_auroc():
    rng = np.random.default_rng(2)
    true = 0.7602  # of two normals one standard deviation apart: Phi(1 / sqrt(2))
    covered = 0
    for seed in range(60):
        one, two = rng.normal(1, 1, 80), rng.normal(0, 1, 80)
        found = separation(one, ids(80), two, ids(80, "j"), resamples=200, seed=seed)
        covered += found.low <= true <= found.high
    assert covered >= 50


def scores(shifts, n=60):
    rng = np.random.default_rng(3)
    base = rng.normal(10, 1, n)
    frames = []
    for name, shift in {"original": 0.0, **shifts}.items():
        values = base + shift + (rng.normal(0, 0.1, n) if shift is not None else 0)
        frames.append(
            pl.DataFrame(
                {"model": "m", "set": name, "source_id": ids(n), "energy": values, "gradnorm": values * 2}
            ).with_columns(contrast=pl.lit(5.0 + shift), lpips=pl.lit(None, dtype=pl.Float64))
        )
    frame = pl.concat(frames)
    return frame.with_columns(
        pl.lit(1.0).alias(one) for one in ("dissimilarity", "homogeneity", "uniformity", "amplitude")
    )


def test_a_higher_score_is_more_in_distribution():
    """Before, a set whose score rose was called out."""
    table = score_table(scores({"inversion": 0.0, "noise": -3.0, "loud": 3.0, "near": -0.75}))
    verdicts = dict(verdict_table(table).select("set", "verdict").rows())
    assert verdicts == {"inversion": "in", "noise": "out", "loud": "in", "near": "cannot tell"}
    sentence = verdict_table(table).filter(set="noise")["sentence"].item()
    assert sentence.startswith("noise leaves the distribution of the originals for m (Energy AUROC 0.9")
    assert "n = 60" in sentence


@pytest.mark.parametrize(("n", "verdict"), [(32, "cannot tell"), (33, "out")])
def test_few_photographs_have_no_verdict(n, verdict):
    """Also where each is in the set several times."""
    rows = scores({"noise": -30.0}, n)
    row = verdict_table(score_table(pl.concat([rows, rows]))).row(0, named=True)
    assert (row["verdict"], row["n"]) == (verdict, n)
    assert ("more photographs are needed, at least 33" in row["sentence"]) == (n < 33)


def test_the_reference_may_be_another_set():
    rows = scores({"position": -3.0, "images:small": -3.0})
    assert set(verdict_table(score_table(rows))["verdict"]) == {"out"}
    table = verdict_table(score_table(rows, "images:small"), reference="images:small")
    assert dict(table.select("set", "verdict").rows()) == {"original": "in", "position": "in"}
    assert all("stays in the distribution of images:small for m" in sentence for sentence in table["sentence"])


def test_histograms_add_up_to_one():
    table = histogram_table(scores({"noise": -3.0}))
    sums = table.group_by("score").agg(pl.col("share").sum(), pl.col("reference_share").sum())
    assert sums["share"].to_list() == pytest.approx([1, 1]) and sums["reference_share"].to_list() == pytest.approx(
        [1, 1]
    )


def test_backgrounds_are_compared_by_photograph():
    row = background_table(scores({"simple": -2.0})).filter(set="simple", measure="contrast").row(0, named=True)
    assert row["difference"] == pytest.approx(-2.0)
    assert row["low"] <= -2.0 <= row["high"]


def test_fid_and_kid_are_torch_fidelitys_on_the_same_features():
    import torch
    from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric

    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(40, 8)).astype(np.float32), rng.normal(1, 2, (40, 8)).astype(np.float32)
    frame = pl.DataFrame({"set": ["original"] * 40 + ["edit"] * 40, "features": [*one.tolist(), *two.tolist()]})
    row = distance_table(frame).row(0, named=True)
    expected = fid_statistics_to_metric(
        fid_features_to_statistics(torch.from_numpy(two)), fid_features_to_statistics(torch.from_numpy(one)), False
    )
    assert row["fid"] == pytest.approx(expected["frechet_inception_distance"], rel=1e-6)
    assert row["kid"] > 5 * row["kid_deviation"] and "biased" in row["note"]
