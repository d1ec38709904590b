"""Along a sweep: accuracy, its halfway level, what flips each prediction, the hardest level that meets a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np
import polars as pl

from unswayed.errors import UserError
from unswayed.evaluation.facts import ORIGINAL, Facts
from unswayed.evaluation.predictions import COLUMNS, Predictions, columns_of, in_memory

from .. import Row, schema
from ..statistics.paired import SMALL_N, IntervalSettings, Resampling, percentiles, wilson_interval
from .outcomes import Outcomes, accuracy_entries
from .psychometric import fit_logistic, isotonic_crossing, tells_halfway
from .sweeps import Sweep, each_sweep, resampled_counts

# Levels below which no parametric curve is fitted, one more than it has parameters; the isotonic threshold needs three.
FIT_LEVELS = 5
EVERY, INSIDE, NO = "at every level", "between levels", "at no level"
_TRUTH = "true_probability"
_TARGETS = (("accuracy", 80.0), ("drop", 10.0))
_CURVE = schema("model attribute side level edit n accuracy low high true_probability")
_FIT = schema(
    "model attribute side levels n halfway low high half_lost half_low half_high floor ceiling slope scale deviance"
)
_THRESHOLD = schema(
    "model attribute side target levels n harder met threshold low high fitted fitted_low fitted_high scale"
)
MEAN = "mean"
# AlexNet's published top-1 errors on ImageNet-C in percent, means over the five severities.
ALEXNET = {
    "gaussian_noise": 88.6428, "shot_noise": 89.4468, "impulse_noise": 92.2640, "defocus_blur": 81.9880,
    "glass_blur": 82.6268, "motion_blur": 78.5948, "zoom_blur": 79.8360, "snow": 86.6816, "frost": 82.6572,
    "fog": 81.9324, "brightness": 56.4592, "contrast": 85.3204, "elastic_transform": 64.6056, "pixelate": 71.7840,
    "jpeg_compression": 60.6500,
}  # fmt: skip


def accuracy_curves(predictions: Predictions, *, facts: Facts | None = None, level: float = 0.95) -> pl.DataFrame:
    """Return one row per model, attribute and level: n, accuracy in [0, 1] with interval, mean true-class probability.

    Empty if the predictions contain no sweep. true_probability is null if the predictions do not have it.
    """
    columns = [*COLUMNS, *columns_of(predictions, [_TRUTH])]
    rows: list[Row] = []
    for outcomes, sweep, answers in each_sweep(predictions, facts, columns):
        truth = dict(answers.group_by("edit").agg(pl.col(_TRUTH).mean()).iter_rows()) if _TRUTH in columns else {}
        for edit, value in zip(sweep.edits, sweep.levels, strict=True):
            runs = outcomes.runs_of(edit)
            accuracy = accuracy_entries(outcomes.of(edit), int(runs.max()), level)
            row = {"model": outcomes.model, **sweep.entries, "level": value, "edit": edit, "n": int((runs > 0).sum())}
            row |= {name.removeprefix("accuracy_"): number for name, number in accuracy.items()}
            rows.append(row | {_TRUTH: truth.get(edit)})
    return pl.DataFrame(rows, schema=_CURVE, infer_schema_length=None)


def curve_fits(predictions: Predictions, *, facts: Facts | None = None, **how: Unpack[Resampling]) -> pl.DataFrame:
    """Return one row per model and sweep: the fitted curve and its halfway level.

    Halfway means midway between the floor and the ceiling of the fitted curve, not an accuracy of one half. half_lost
    is where the fitted accuracy is half of that on the originals, with its interval; null outside the levels.
    halfway, low and high are on the attribute's own scale, over photographs resampled as a whole; they are null where
    they lie outside the levels of the sweep, where accuracy is flat, or where its ceiling was not seen
    (`tells_halfway`). Sweeps of fewer than five levels have no fit.
    """
    settings, rows = IntervalSettings(**how), []
    for outcomes, sweep, _ in each_sweep(predictions, facts):
        if len(sweep.levels) < FIT_LEVELS:
            continue
        right, n, original = resampled_counts(outcomes, sweep, settings)
        axis = sweep.axis()
        fit = fit_logistic(axis, right, n)
        half_lost = fit.crossing(original / 2)
        ends = [float(end) for end in (fit.halfway[0], *percentiles(fit.halfway[1:], settings.level))]
        known = axis[0] <= ends[0] <= axis[-1] and tells_halfway(axis, right[0], n[0], settings.level)
        row = {"model": outcomes.model, **sweep.entries, "n": int(n[0].max())}
        row |= sweep.on_scale(ends, ("halfway", "low", "high")) if known else {}
        ends = [float(half_lost[0]), *_interval(half_lost[1:], settings.level)]
        row |= sweep.on_scale(ends, ("half_lost", "half_low", "half_high"))
        rows.append(row | {name: float(getattr(fit, name)[0]) for name in ("floor", "ceiling", "slope", "deviance")})
    return pl.DataFrame(rows, schema=_FIT, infer_schema_length=None)


def smallest_flips(predictions: Predictions, *, facts: Facts | None = None) -> pl.DataFrame:
    """Return one row per model, sweep and correctly classified photograph: the mildest level that flips the prediction.

    Mildest is the end of the sweep at which accuracy over all photographs is higher. level: null where no level flips
    it; returns: whether the prediction is right again at a harder level. With several runs, more than half must be
    wrong.
    """
    types = schema("model attribute side source_id level returns")
    frames = [pl.DataFrame(schema=types)]
    for outcomes, sweep, _ in each_sweep(predictions, facts):
        right = outcomes.of(ORIGINAL) > 0.5
        share, levels = outcomes.matrix(sweep.edits), np.array(sweep.levels)
        if np.cov(levels, np.nanmean(share, axis=0))[0, 1] > 0:
            share, levels = share[:, ::-1], levels[::-1]
        share = share[right]
        wrong = share < 0.5
        first = np.where(wrong.any(axis=1), wrong.argmax(axis=1), len(levels))
        later = np.arange(len(levels)) > first[:, None]
        columns = {
            "model": outcomes.model,
            "attribute": sweep.attribute,
            "side": sweep.side,
            "source_id": np.array(outcomes.images)[right].tolist(),
            "level": [float(levels[at]) if at < len(levels) else None for at in first],
            "returns": ((share > 0.5) & later).any(axis=1) & (first < len(levels)),
        }
        frames.append(pl.DataFrame(columns, schema=types))
    return pl.concat(frames)


def thresholds(
    predictions: Predictions,
    *,
    accuracy: Sequence[float] = (),
    drop: Sequence[float] = (),
    facts: Facts | None = None,
    **how: Unpack[Resampling],
) -> pl.DataFrame:
    """Return one row per model, sweep and target: the hardest level that still meets the target, with its interval.

    accuracy: percent that must be kept; drop: points that may be lost against the originals. Without either: 80 % and
    10 points. threshold, low, high: isotonic regression, linear between levels, over photographs resampled as a whole;
    fitted, fitted_low, fitted_high: the same by the fitted curve (five levels or more). Hard means the end of the sweep
    at which accuracy is lower. met says whether the target is met at every level, at no level, or between levels, and
    values outside the levels of the sweep are null.
    """
    targets = [("accuracy", float(target)) for target in accuracy] + [("drop", float(target)) for target in drop]
    for kind, value in targets:
        if not 0 <= value <= 100 or (kind == "accuracy" and 0 < value <= 1):
            allowed = "percent: 80 means 80 %" if kind == "accuracy" else "0 to 100 points"
            raise UserError(f"the target {kind} is {value:g}", allowed=allowed)
    settings, rows = IntervalSettings(**how), []
    for outcomes, sweep, _ in each_sweep(predictions, facts):
        right, n, original = resampled_counts(outcomes, sweep, settings)
        for kind, value in targets or _TARGETS:
            target = value / 100 if kind == "accuracy" else original - value / 100
            ends, rising = _threshold(right, n, sweep, target, settings.level)
            met = INSIDE if np.isfinite(ends[0]) else EVERY if (ends[0] < 0) == rising else NO
            text = f"accuracy ≥ {value:g} %" if kind == "accuracy" else f"drop ≤ {value:g} points"
            row = {"model": outcomes.model, **sweep.entries, "target": text, "n": int(n[0].max())}
            row |= {"harder": "below" if rising else "above", "met": met}
            row |= sweep.on_scale(ends, ("threshold", "low", "high"))
            if len(sweep.levels) >= FIT_LEVELS:
                fitted = fit_logistic(sweep.axis(), right, n).crossing(target)
                ends = (fitted[0], *_interval(fitted[1:], settings.level))
                row |= sweep.on_scale(ends, ("fitted", "fitted_low", "fitted_high"))
            rows.append(row)
    return pl.DataFrame(rows, schema=_THRESHOLD, infer_schema_length=None)


def threshold_bounds(
    outcomes: Outcomes, sweep: Sweep, accuracy: float, settings: IntervalSettings
) -> tuple[float, float, float, bool]:
    """Return the isotonic threshold of `accuracy` percent, its interval, and whether accuracy rises with the attribute.

    On the attribute's own scale; infinite (or 0 on a log scale) where the target is met at every level or at none, so
    that a gate can compare them.
    """
    right, n, _ = resampled_counts(outcomes, sweep, settings)
    ends, rising = _threshold(right, n, sweep, accuracy / 100, settings.level)
    value, low, high = (float(np.exp(end)) if sweep.is_log else end for end in ends)
    return value, low, high, rising


def _threshold(
    right: np.ndarray, n: np.ndarray, sweep: Sweep, target: float | np.ndarray, level: float
) -> tuple[tuple[float, float, float], bool]:
    """Return the isotonic threshold and its interval on the sweep's axis, and whether accuracy rises with it.

    right, n: of `resampled_counts`. Resamples of few photographs, or of photographs that all have the same answer, do
    not spread. There the interval also covers the crossings of the lower and the upper ends of Wilson's intervals of
    each level's accuracy.
    """
    axis, share = sweep.axis(), right / np.maximum(n, 1e-9)
    rising = bool(np.cov(axis, share[0])[0, 1] >= 0)
    crossing = isotonic_crossing(axis, share, n, target, rising)
    low, high = _interval(crossing[1:], level)
    if n[0].max() < SMALL_N or low == high:
        ends = np.stack(wilson_interval(right[0], np.maximum(n[0], 1e-9), level))
        band = isotonic_crossing(axis, ends, n[[0, 0]], np.atleast_1d(target)[0], rising)
        low, high = min(low, *band), max(high, *band)
    return (float(crossing[0]), float(low), float(high)), rising


def _interval(values: np.ndarray, level: float) -> tuple[float, float]:
    """Return percentiles without interpolation, since some values may be infinite."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    return float(low), float(high)


def corruption_errors(predictions: Predictions, *, facts: Facts | None = None) -> pl.DataFrame:
    """Return one row per model and corruption: n, severities, `error` in percent and `ce`, its ratio to AlexNet's
    (ImageNet-C, Hendrycks & Dietterich 2019).

    The error is the mean over the severities, each of which counts the same. The row `mean` is the mean over the
    fifteen corruptions, its `ce` the mean corruption error; it is missing if a corruption or a severity is.

    >>> rows = [{"model": "m", "source_id": "a", "edit": f"fog-{s}", "run": 0, "correct": s > 2} for s in range(1, 6)]
    >>> corruption_errors(pl.DataFrame(rows)).select("corruption", "error", pl.col("ce").round(2)).row(0)
    ('fog', 40.0, 48.82)
    """
    rows = in_memory(predictions, []).with_columns(pl.col("model", "edit").cast(pl.String))
    # An edit that is recorded in the benchmark, such as our own fog and snow, is none of ImageNet-C's corruptions.
    rows = rows.filter(~pl.col("edit").is_in(list(facts.chains if facts else ())))
    named = pl.col("edit").str.extract_groups(r"^(?<corruption>[a-z_]+)-(?<severity>[1-5])$")
    rows = rows.with_columns(named).unnest("edit").filter(pl.col("corruption").is_not_null())
    if rows.is_empty():
        raise UserError(
            "these predictions are not of ImageNet-C",
            allowed="pictures in ROOT/corruption/severity/WNID",
            run="unswayed evaluate images:ROOT -m MODEL -o PREDICTIONS",
        )
    by_severity = rows.group_by("model", "corruption", "severity", maintain_order=True).agg(
        n=pl.len(), error=100 * (1 - pl.col("correct").mean())
    )
    table = by_severity.group_by("model", "corruption", maintain_order=True).agg(
        n=pl.col("n").sum().cast(pl.Int64), severities=pl.len().cast(pl.Int64), error=pl.col("error").mean()
    )
    alexnet = pl.col("corruption").replace_strict(ALEXNET, default=None, return_dtype=pl.Float64)
    table = table.with_columns(alexnet=alexnet).with_columns(ce=100 * pl.col("error") / pl.col("alexnet"))
    # Sorting keeps the order of what is equal: corruptions that AlexNet has no error for come after the others.
    models = table["model"].unique(maintain_order=True)
    position = pl.col("corruption").replace_strict({name: at for at, name in enumerate(ALEXNET)}, default=len(ALEXNET))
    table = table.sort(pl.col("model").cast(pl.Enum(models)), position, maintain_order=True)
    parts = []
    for part in table.partition_by("model", maintain_order=True):
        whole = part.filter(pl.col("alexnet").is_not_null() & (pl.col("severities") == 5))
        parts.append(part)
        if whole.height == len(ALEXNET):
            means = {name: sum(whole[name]) / whole.height for name in ("error", "alexnet", "ce")}
            mean = {"model": part["model"][0], "corruption": MEAN, "n": whole["n"].sum(), "severities": 5, **means}
            parts.append(pl.DataFrame([mean], schema=table.schema))
    return pl.concat(parts)
