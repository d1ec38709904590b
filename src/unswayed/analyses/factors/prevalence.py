"""How common each factor is, among all images, within a metaclass, and among a model's mistakes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from unswayed.sources.imagenet_x import FACTORS, METACLASSES, Annotations

from .answers import Answers
from .verdicts import judge


def prevalence(annotations: Annotations) -> pl.DataFrame:
    """Return rows (factor, n, prevalence): n_f and n_f / Σ n_f, which sums to one over the factors."""
    counts = annotations.factors.sum(axis=0)
    return pl.DataFrame({"factor": FACTORS, "n": counts, "prevalence": _shares(counts)}, nan_to_null=True)


def factor_distribution(every: Sequence[Annotations]) -> pl.DataFrame:
    """Return rows (partition, which, factor, n, images, share): the share of a partition's images with each factor."""
    tables = []
    for one in every:
        counts = one.factors.sum(axis=0)
        columns = {"partition": one.partition, "which": one.which, "factor": FACTORS, "n": counts, "images": len(one)}
        tables.append(pl.DataFrame({**columns, "share": counts / max(1, len(one))}))
    return pl.concat(tables)


def active_factor_counts(every: Sequence[Annotations]) -> pl.DataFrame:
    """Return rows (partition, factors, n, share): how many images have so many factors at once."""
    tables = []
    for one in every:
        counts = np.bincount(one.factors.sum(axis=1))
        columns = {"partition": one.partition, "factors": np.arange(len(counts)), "n": counts}
        tables.append(pl.DataFrame({**columns, "share": counts / max(1, len(one))}))
    return pl.concat(tables).filter(pl.col("n") > 0)


def metaclass_shift(annotations: Annotations) -> pl.DataFrame:
    """Return rows (metaclass, factor, n, prevalence, shift): (p_f within the metaclass - p_f) / p_f, 0 if p_f is 0."""
    counts, _ = annotations.count(np.ones(len(annotations), bool), by_metaclass=True)
    shares = _shares(counts)
    return pl.DataFrame(
        {
            **_metaclass_and_factor(),
            "n": counts.ravel(),
            "prevalence": shares.ravel(),
            "shift": _shift(shares, _shares(annotations.factors.sum(axis=0))).ravel(),
        },
        nan_to_null=True,
    )


def misclassification_shift(
    annotations: Annotations, answers: Answers, right: str = "class", by: str | None = None
) -> pl.DataFrame:
    """Return rows (model, [metaclass,] factor, n_wrong, shift): (p_f among the mistakes - p_f) / p_f.

    A shift of 0.5 means that the factor is 1.5 times as common among the model's mistakes as among all images that it
    classified; with `by="metaclass"` both are counted within the metaclass. 0 if there is nothing to compare.
    """
    correct, counted = judge(annotations, answers, right)
    everything, _ = annotations.count(counted, by == "metaclass")
    mistakes, _ = annotations.count(counted & ~correct, by == "metaclass")
    shift = _shift(_shares(mistakes), _shares(everything))
    return pl.DataFrame(
        {
            "model": [answers.model] * shift.size,
            **(_metaclass_and_factor() if by == "metaclass" else {"factor": FACTORS}),
            "n_wrong": mistakes.ravel(),
            "shift": shift.ravel(),
        }
    )


def _metaclass_and_factor() -> dict[str, list[str]]:
    return {"metaclass": np.repeat(METACLASSES, len(FACTORS)).tolist(), "factor": list(FACTORS) * len(METACLASSES)}


def _shares(counts: np.ndarray) -> np.ndarray:
    total = counts.sum(axis=-1, keepdims=True)
    return np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)


def _shift(shares: np.ndarray, reference: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num((shares - reference) / reference, nan=0.0)
