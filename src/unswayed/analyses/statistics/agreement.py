"""The agreement of raters beyond chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Agreement:
    """kappa: 1 for full agreement, 0 for what chance gives, NaN where it is undefined; method: `Cohen` or `Fleiss`;
    n: the items that all raters answered; observed: the share of pairs of answers that are equal."""

    kappa: float
    method: str
    raters: int
    n: int
    observed: float


def agreement(answers: Mapping[str, Mapping[str, str]]) -> Agreement | None:
    """The agreement of raters over the items that all of them answered; None with fewer than two raters.

    answers: rater -> item -> answer.

    >>> agreement({"ann": {"1": "a", "2": "b"}, "bob": {"1": "a", "2": "b"}}).kappa
    1.0
    """
    raters = sorted(answers)
    if len(raters) < 2:
        return None
    items = sorted(set.intersection(*(set(answers[rater]) for rater in raters)))
    table = [[answers[rater][item] for rater in raters] for item in items]
    kinds = sorted({answer for row in table for answer in row})
    counts = np.array([[row.count(kind) for kind in kinds] for row in table], dtype=float).reshape(-1, len(kinds) or 1)
    n, per_item = len(items), len(raters)
    equal = float(((counts**2).sum(axis=1) - per_item).sum() / (n * per_item * (per_item - 1))) if n else float("nan")
    if per_item > 2:
        return Agreement(fleiss_kappa(counts), "Fleiss", per_item, n, equal)
    first, second = zip(*table, strict=True) if table else ((), ())
    chance = sum(first.count(kind) * second.count(kind) for kind in kinds) / n**2 if n else 1.0
    kappa = (equal - chance) / (1 - chance) if chance < 1 else float("nan")
    return Agreement(kappa, "Cohen", 2, n, equal)


def fleiss_kappa(counts: np.ndarray) -> float:
    """Fleiss' kappa (1971) of (items, answers) counts with the same number of raters in every row."""
    items = len(counts)
    if items == 0:
        return float("nan")
    raters = counts[0].sum()
    observed = float((((counts**2).sum(axis=1) - raters) / (raters * (raters - 1))).mean())
    expected = float(((counts.sum(axis=0) / (items * raters)) ** 2).sum())
    return (observed - expected) / (1 - expected) if expected < 1 else float("nan")
