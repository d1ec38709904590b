"""Certainty is said in one way, in every table, sentence, color and hatching.

A difference is certain if its p-value, corrected within its family, is below 5 % and its interval excludes zero.

- Each average (of one model, or of one pair of models) answers a question of its own, so it is a family of one: its
  `p_holm` is its `p_value`, and no other row of the table changes it.
- All other rows of a table are one family, which Holm's correction is over.
- The interval of a row contains zero wherever its own test does not reject zero (`Estimates.tested`), so an average
  never stands beside an interval that contradicts its p-value. The interval of another row may exclude zero although
  the row is not certain, if the correction for the number of rows decides; nothing is then said, drawn or colored as
  certain.

Views ask `is_certain` for one row, `certain_rows` for the rows of a frame, and `in_words` for a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from unswayed.evaluation.facts import AVERAGE

from .paired import holm

SURE = 0.05
_TESTS = ("p_value", "net_p_value", "accuracy_p_value")


def is_certain(low: float | None, high: float | None, p: float | None) -> bool:
    """Whether a difference with this interval and this p-value, corrected within its family, is certain.

    >>> is_certain(0.5, 9.0, 0.01), is_certain(0.5, 9.0, 0.2), is_certain(-1.0, 9.0, 0.01), is_certain(0.5, 9.0, None)
    (True, False, False, False)
    """
    if low is None or high is None or p is None:
        return False
    return p < SURE and not low <= 0 <= high


def certain_rows(low: str = "low", high: str = "high", p: str = "p_holm") -> pl.Expr:
    """`is_certain` of each row of a frame, by the names of these columns; rows without a test are not certain."""
    excludes = (pl.col(low) > 0) | (pl.col(high) < 0)
    return ((pl.col(p) < SURE) & excludes).fill_null(False)


def in_words(difference: Sequence[float | None], more: str, less: str, otherwise: str) -> str:
    """The words for a difference: `more` if it is certainly above zero, `less` if certainly below, else `otherwise`.

    difference: its value, the ends of its interval, and its p-value corrected within its family.

    >>> in_words([3.0, 1.0, 5.0, 0.01], "A drops more", "A drops less", "no difference shown")
    'A drops more'
    >>> in_words([3.0, 1.0, 5.0, 0.625], "A drops more", "A drops less", "no difference shown")
    'no difference shown'
    """
    value, *test = difference
    if value is None or not is_certain(*test):
        return otherwise
    return more if value > 0 else less


def corrected(table: pl.DataFrame) -> pl.DataFrame:
    """The table with `p_holm`, the p_value corrected within its family, and likewise for its other tests; null stays.

    A row whose edit is `average` is a family of its own; the other rows are one family.
    """
    alone = (table["edit"] == AVERAGE).to_numpy() if "edit" in table.columns else np.zeros(table.height, dtype=bool)
    for name in _TESTS:
        if name in table.columns:
            p = table[name].fill_null(math.nan).to_numpy()
            adjusted = np.where(alone, p, holm(np.where(alone, math.nan, p)))
            column = pl.Series(name.replace("value", "holm"), adjusted, dtype=pl.Float64).fill_nan(None)
            table = table.with_columns(column)
    return table
