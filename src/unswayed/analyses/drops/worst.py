"""Whether the edit that costs most surely costs more than the next one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from unswayed.analyses.statistics.intervals import Settings, estimates
from unswayed.evaluation.facts import ORIGINAL, Facts
from unswayed.evaluation.predictions import Predictions

from .outcomes import Outcomes, each_outcomes


@dataclass(frozen=True)
class Gap:
    """How many points more one edit costs than another, with its interval, over n photographs that have both."""

    points: float
    low: float
    high: float
    n: int


def gap_between(predictions: Predictions, worse: str, other: str, facts: Facts, settings: Settings) -> Gap | None:
    """Return how much more `worse` costs than `other`, averaged over the models that neither of them attacks; None if
    no photograph has both edits.

    Both costs are net of the edit's control, or raw if that was not evaluated. The interval is that of the paired
    differences over photographs.
    """
    fair = [
        found
        for found in each_outcomes(predictions)
        if not any(facts.is_white_box(found.model, edit) for edit in (worse, other))
    ]
    if not fair:
        return None
    both = (
        pl.concat(pl.DataFrame({"source_id": one.images, "gap": _gap(one, worse, other, facts)}) for one in fair)
        .fill_nan(None)
        .drop_nulls("gap")
        .group_by("source_id")
        .agg(pl.col("gap").mean())
        .sort("source_id")
    )
    if both.is_empty():
        return None
    answers = np.array([sum(int(one.runs_of(worse).max() + one.runs_of(other).max()) for one in fair)])
    found = estimates(both["gap"].to_numpy()[:, None], answers, tuple(both["source_id"]), settings, reach=2, unit=100)
    return Gap(float(found.mean[0]), float(found.low[0]), float(found.high[0]), both.height)


def _gap(found: Outcomes, worse: str, other: str, facts: Facts) -> np.ndarray:
    return _cost(found, worse, facts) - _cost(found, other, facts)


def _cost(found: Outcomes, edit: str, facts: Facts) -> np.ndarray:
    """Return (images,) what the edit costs each photograph, in [-1, 1], NaN where a picture is missing."""
    control = facts.control(edit)
    return found.of(control if control in found.edits else ORIGINAL) - found.of(edit)
