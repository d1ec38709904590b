"""The paired comparison of two models on the same images, for each factor."""

from __future__ import annotations

import numpy as np
import polars as pl
from scipy import stats

from unswayed.analyses.statistics.paired import holm, mcnemar, percentiles
from unswayed.errors import UserError
from unswayed.sources.imagenet_x import FACTORS, Annotations

from .answers import Answers
from .verdicts import judge


def compare_models(
    annotations: Annotations,
    a: Answers,
    b: Answers,
    right: str = "class",
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pl.DataFrame:
    """Return one row per factor and for `average`, over the images that both models classified:

    n, accuracy_a, accuracy_b, difference (a - b), its p_value by McNemar's exact test and p_holm over the rows;
    error_ratio_a, error_ratio_b, ratio_difference with bootstrap bounds low and high, and ratio_p_holm from the
    bootstrap's standard error. The first test compares the error rates, the second how much more often each model
    fails with the factor than on average.
    """
    right_a, counted_a = judge(annotations, a, right)
    right_b, counted_b = judge(annotations, b, right)
    both = counted_a & counted_b
    if not both.any():
        raise UserError(f"'{a.model}' and '{b.model}' have no annotated image in common")
    members = np.column_stack([annotations.factors, np.ones(len(annotations), bool)])[both]
    wrong_a, wrong_b = ~right_a[both], ~right_b[both]
    pair = wrong_a * 2 + wrong_b  # 0 both right, 1 only b wrong, 2 only a wrong, 3 both wrong
    total = np.bincount(pair, minlength=4)
    cells = np.stack([np.bincount(pair[member], minlength=4) for member in members.T])
    n = cells.sum(axis=1)
    accuracy_a, accuracy_b = (_share(cells[:, :2].sum(1), n), _share(cells[:, 0] + cells[:, 2], n))
    p_value = np.where(n > 0, mcnemar(cells[:, 1], cells[:, 2]), np.nan)
    rng = np.random.default_rng(seed)
    outcome = [_ratio_difference(row, total, resamples, level, rng) for row in cells]
    ratio_a, ratio_b, low, high, ratio_p = np.array(outcome).T
    return pl.DataFrame(
        {
            "factor": [*FACTORS, "average"],
            "n": n,
            "accuracy_a": accuracy_a,
            "accuracy_b": accuracy_b,
            "difference": accuracy_a - accuracy_b,
            "p_value": p_value,
            "p_holm": holm(p_value),
            "error_ratio_a": ratio_a,
            "error_ratio_b": ratio_b,
            "ratio_difference": ratio_a - ratio_b,
            "low": low,
            "high": high,
            "ratio_p_holm": holm(ratio_p),
        },
        nan_to_null=True,
    )


def _ratio_difference(
    row: np.ndarray, total: np.ndarray, resamples: int, level: float, rng: np.random.Generator
) -> tuple[float, float, float, float, float]:
    """Return (ratio of a, of b, low and high of their difference, its p-value) from (4,) counts with the factor, all.

    Resampling images is a multinomial draw over eight cells: (with or without the factor) x the four pairs of results.
    """
    eight = np.concatenate([row, total - row])
    ratio_a, ratio_b = _ratios(eight[None])
    if resamples == 0 or row.sum() in (0, total.sum()) or np.isnan(ratio_a[0]) or np.isnan(ratio_b[0]):
        return ratio_a[0], ratio_b[0], np.nan, np.nan, np.nan
    drawn_a, drawn_b = _ratios(rng.multinomial(total.sum(), eight / total.sum(), size=resamples))
    drawn = drawn_a - drawn_b
    low, high = percentiles(drawn, level)
    spread = np.nanstd(drawn)
    difference = ratio_a[0] - ratio_b[0]
    p_value = 2 * stats.norm.sf(abs(difference) / spread) if spread > 0 else 1.0
    return ratio_a[0], ratio_b[0], float(low), float(high), float(p_value)


def _ratios(eight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the error ratios of a and b from (draws, 8) counts."""
    every, n = eight.sum(axis=1), eight[:, :4].sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = [
            np.where(
                eight[:, wrong].sum(axis=1) > 0,
                (eight[:, wrong[:2]].sum(axis=1) / n) / (eight[:, wrong].sum(axis=1) / every),
                np.nan,
            )
            for wrong in ([2, 3, 6, 7], [1, 3, 5, 7])
        ]
    return ratios[0], ratios[1]


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
