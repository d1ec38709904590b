"""Spearman correlation of each factor with every factor and metaclass."""

from __future__ import annotations

import numpy as np
import polars as pl
from scipy import stats

from unswayed.sources.imagenet_x import FACTORS, METACLASSES, Annotations


def factor_correlation(annotations: Annotations) -> pl.DataFrame:
    """Return rows (factor, other, correlation, p_value) for 16 factors x (16 factors + 17 metaclasses).

    Columns of zeros and ones have only two ranks, so Spearman's coefficient is Pearson's on them. Null where a column
    is constant; the p-value is two-sided, from Student's t with N - 2 degrees of freedom.
    """
    member = annotations.metaclasses[:, None] == np.arange(len(METACLASSES))
    columns = np.column_stack([annotations.factors, member]).astype(np.float64)
    n = len(columns)
    centered = columns - columns.mean(axis=0)
    spread = np.sqrt((centered**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (centered[:, : len(FACTORS)].T @ centered) / np.outer(spread[: len(FACTORS)], spread)
        r = np.clip(r, -1, 1)
        t = r * np.sqrt((n - 2) / ((1 - r) * (1 + r)))
    p = 2 * stats.t.sf(np.abs(t), n - 2)
    others = [*FACTORS, *METACLASSES]
    return pl.DataFrame(
        {
            "factor": np.repeat(FACTORS, len(others)).tolist(),
            "other": others * len(FACTORS),
            "correlation": r.ravel(),
            "p_value": p.ravel(),
        },
        nan_to_null=True,
    )
