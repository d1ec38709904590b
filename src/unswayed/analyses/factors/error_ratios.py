"""Accuracy and error ratio of a model on the images of each factor, with bootstrap intervals over images."""

from __future__ import annotations

import numpy as np
import polars as pl

from unswayed.errors import unknown
from unswayed.sources.imagenet_x import FACTORS, METACLASSES, Annotations

from .answers import Answers
from .intervals import ratio_intervals
from .verdicts import judge

BY = ("metaclass",)
WORST_CLASSES = 100


def factor_errors(
    annotations: Annotations,
    answers: Answers,
    right: str = "class",
    by: str | None = None,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pl.DataFrame:
    """Return model, [metaclass,] factor, n, accuracy, error_ratio, low, high, coverage: one row per factor and summary.

    Accuracy is that of the n images with the factor; the error ratio is (1 - accuracy) / (1 - average), and low and
    high bound it with the given level (null when `resamples` is 0). The summaries follow the 16 factors:
    `worst_factor`, `average` over all images and, without `by`, `worst_100_classes`. What has no images is null.
    The worst factor and classes are chosen from the same predictions, so their intervals are too narrow.
    """
    if by not in (None, *BY):
        raise unknown("grouping", str(by), BY)
    correct, counted = judge(annotations, answers, right)
    n, total = annotations.count(counted, by == "metaclass")
    n_right, total_right = annotations.count(correct, by == "metaclass")
    groups = len(total)
    n, n_right = np.column_stack([n, total]), np.column_stack([n_right, total_right])
    names = [*FACTORS, "average"]
    if not by:
        worst_n, worst_right = worst_classes(annotations.labels, correct, counted)
        n, n_right = np.append(n, [[worst_n]], axis=1), np.append(n_right, [[worst_right]], axis=1)
        names.append("worst_100_classes")
    accuracy = _divide(n_right, n)
    ratio = _divide(1 - accuracy, 1 - _divide(total_right, total)[:, None])
    low, high = ratio_intervals(n, n_right, total, total_right, resamples, level, seed)

    worst = np.argmin(np.nan_to_num(accuracy[:, : len(FACTORS)], nan=np.inf), axis=1)[:, None]
    columns = [
        np.insert(column, len(FACTORS), np.take_along_axis(column, worst, axis=1).ravel(), axis=1).ravel()
        for column in (n, accuracy, ratio, low, high)
    ]
    names.insert(len(FACTORS), "worst_factor")
    return pl.DataFrame(
        {
            "model": [answers.model] * (groups * len(names)),
            **({"metaclass": np.repeat(METACLASSES, len(names)).tolist()} if by else {}),
            "factor": names * groups,
            **dict(zip(("n", "accuracy", "error_ratio", "low", "high"), columns, strict=True)),
            "coverage": [answers.coverage] * (groups * len(names)),
        },
        nan_to_null=True,
    )


def worst_classes(
    labels: np.ndarray, correct: np.ndarray, counted: np.ndarray, k: int = WORST_CLASSES
) -> tuple[int, int]:
    """Return (images, correct predictions) over the k classes of lowest accuracy; of equal ones the lower index first.

    >>> worst_classes(np.array([0, 0, 1, 2]), np.array([1, 0, 0, 1], bool), np.ones(4, bool), k=2)
    (3, 1)
    """
    n = np.bincount(labels[counted], minlength=1)
    n_right = np.bincount(labels[correct], minlength=len(n))
    there = np.flatnonzero(n)
    chosen = there[np.argsort(n_right[there] / n[there], kind="stable")[:k]]
    return int(n[chosen].sum()), int(n_right[chosen].sum())


def _divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return the quotient as float64, NaN if `below` is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below == 0, np.nan, above / below)
