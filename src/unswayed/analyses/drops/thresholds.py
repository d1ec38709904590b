"""Thresholds: the hardest level of an attribute at which a model still has a required accuracy.

thresholds("PREDICTIONS", accuracy=(80,), drop=(10,))       # one row per model, sweep and target
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from unswayed.analyses.columns import schema
from unswayed.analyses.statistics.intervals import Settings
from unswayed.analyses.statistics.paired import SMALL_N, wilson_interval
from unswayed.errors import UserError
from unswayed.evaluation.facts import Facts, read_facts
from unswayed.evaluation.predictions import Predictions

from .curves import Sweep, resampled_counts, sweeps
from .outcomes import Outcomes, each_outcomes
from .psychometric import fit_logistic, isotonic_crossing

# Levels below which no parametric curve is fitted; the isotonic threshold needs three.
_FIT_LEVELS = 5
EVERY, INSIDE, NO = "at every level", "between levels", "at no level"


def thresholds(
    predictions: Predictions,
    *,
    accuracy: Sequence[float] = (),
    drop: Sequence[float] = (),
    facts: Facts | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pl.DataFrame:
    """Return one row per model, sweep and target: the hardest level that still meets the target, with its interval.

    accuracy: percent that must be kept; drop: points that may be lost against the originals. Without either: 80 % and
    10 points. threshold, low, high: isotonic regression, linear between levels, over photographs resampled as a whole;
    fitted, fitted_low, fitted_high: the same by the fitted curve (five levels or more). Hard means the end of the sweep
    at which accuracy is lower. met says whether the target is met at every level, at no level, or between levels, and
    values outside the levels of the sweep are null.
    """
    facts = read_facts(predictions) if facts is None else facts
    targets = [("accuracy", float(one)) for one in accuracy] + [("drop", float(one)) for one in drop]
    for kind, value in targets:
        if not 0 <= value <= 100 or (kind == "accuracy" and 0 < value <= 1):
            allowed = "percent: 80 means 80 %" if kind == "accuracy" else "0 to 100 points"
            raise UserError(f"the target {kind} is {value:g}", allowed=allowed)
    settings = Settings(resamples, level, seed)
    rows: list[dict[str, Any]] = []
    for found in each_outcomes(predictions):
        for sweep in sweeps(list(found.edits), facts):
            counts = resampled_counts(found, sweep, settings)
            for kind, value in targets or [("accuracy", 80.0), ("drop", 10.0)]:
                rows.append({"model": found.model, **_threshold_row(counts, sweep, kind, value, settings)})
    return pl.DataFrame(rows, schema=_SCHEMA, infer_schema_length=None)


def _threshold_row(
    counts: tuple[np.ndarray, np.ndarray, np.ndarray], sweep: Sweep, kind: str, value: float, settings: Settings
) -> dict[str, Any]:
    """Return one model's threshold along one sweep; kind: `accuracy` (percent) or `drop` (points)."""
    right, n, original = counts
    axis = sweep.axis()
    target: float | np.ndarray = value / 100 if kind == "accuracy" else original - value / 100
    share = right / np.maximum(n, 1e-9)
    rising = bool(np.cov(axis, share[0])[0, 1] >= 0)
    crossing = isotonic_crossing(axis, share, n, target, rising)
    first = float(np.atleast_1d(target)[0])
    row = {
        "attribute": sweep.attribute,
        "side": sweep.side,
        "target": f"accuracy ≥ {value:g} %" if kind == "accuracy" else f"drop ≤ {value:g} points",
        "levels": len(sweep.levels),
        "n": int(n[0].max()),
        "harder": "below" if rising else "above",
        "met": _met(crossing[0], rising),
        **_entries(_bounds(crossing, axis, right[0], n[0], first, rising, settings.level), sweep, _NAMES),
        "scale": "log" if sweep.is_log else "linear",
    }
    if len(axis) >= _FIT_LEVELS:
        fitted = fit_logistic(axis, right, n).crossing(target)
        ends = (float(fitted[0]), *_interval(fitted[1:], settings.level))
        row |= _entries(ends, sweep, ("fitted", "fitted_low", "fitted_high"))
    return row


def threshold_bounds(
    found: Outcomes, sweep: Sweep, accuracy: float, settings: Settings
) -> tuple[float, float, float, bool]:
    """Return the isotonic threshold of `accuracy` percent, its interval, and whether accuracy rises with the attribute.

    On the attribute's own scale; infinite (or 0 on a log scale) where the target is met at every level or at none, so
    that a gate can compare them.
    """
    right, n, _ = resampled_counts(found, sweep, settings)
    axis, share = sweep.axis(), right / np.maximum(n, 1e-9)
    rising = bool(np.cov(axis, share[0])[0, 1] >= 0)
    crossing = isotonic_crossing(axis, share, n, accuracy / 100, rising)
    ends = _bounds(crossing, axis, right[0], n[0], accuracy / 100, rising, settings.level)
    value, low, high = (
        (0.0 if sweep.is_log and one < 0 else float(one)) if np.isinf(one) else sweep.on_scale(float(one))
        for one in ends
    )
    return value, low, high, rising


_NAMES = ("threshold", "low", "high")


def _bounds(
    crossing: np.ndarray,
    axis: np.ndarray,
    right: np.ndarray,
    n: np.ndarray,
    target: float,
    rising: bool,
    level: float,
) -> tuple[float, float, float]:
    """Return the threshold and its interval on the axis, from the crossings of the data and of its resamples.

    Resamples of few photographs, or of photographs that all have the same answer, do not spread. There the interval
    also covers the crossings of the lower and the upper ends of Wilson's intervals of each level's accuracy.
    right, n: (levels,) of the data.
    """
    low, high = _interval(crossing[1:], level)
    if n.max() < SMALL_N or low == high:
        ends = np.stack(wilson_interval(right, np.maximum(n, 1e-9), level))
        band = isotonic_crossing(axis, ends, np.stack([n, n]), target, rising)
        low, high = min(low, *band), max(high, *band)
    return float(crossing[0]), float(low), float(high)


def _entries(ends: tuple[float, float, float], sweep: Sweep, names: tuple[str, str, str]) -> dict[str, Any]:
    axis = sweep.axis()
    return {
        name: sweep.on_scale(one) if axis[0] <= one <= axis[-1] else None for name, one in zip(names, ends, strict=True)
    }


def _interval(values: np.ndarray, level: float) -> tuple[float, float]:
    """Return percentiles without interpolation, since some values may be infinite."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    return float(low), float(high)


def _met(crossing: float, rising: bool) -> str:
    if np.isinf(crossing):
        return EVERY if (crossing < 0) == rising else NO
    return INSIDE


_SCHEMA = schema(
    "model attribute side target levels n harder met threshold low high fitted fitted_low fitted_high scale"
)
