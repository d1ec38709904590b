"""Curves of a sweep: accuracy against the attribute's value, its halfway level, and what flips each prediction."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from unswayed.analyses.columns import schema
from unswayed.analyses.statistics.intervals import Settings
from unswayed.errors import UserError
from unswayed.evaluation.facts import ORIGINAL, Facts, read_facts
from unswayed.evaluation.predictions import COLUMNS, Predictions, columns_of, each_model

from .drop_rows import accuracy_entries
from .outcomes import Outcomes, outcomes
from .psychometric import fit_logistic, tells_halfway

_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e-?\d+)?$"


@dataclass(frozen=True)
class Sweep:
    """Edits that differ only in one attribute's level: its name, edits and levels from low to high.

    side: "" for all levels, "below 0" or "above 0" for one side of a sweep through zero, levels then as distances.
    """

    attribute: str
    side: str
    edits: tuple[str, ...]
    levels: tuple[float, ...]

    @property
    def is_log(self) -> bool:
        """Return whether the fit is along log(level): all positive, the largest at least four times the smallest."""
        return self.levels[0] > 0 and self.levels[-1] >= 4 * self.levels[0]

    def axis(self) -> np.ndarray:
        return np.log(self.levels) if self.is_log else np.array(self.levels)

    def on_scale(self, value: float) -> float:
        """Return a value of the axis on the attribute's own scale."""
        return float(np.exp(value) if self.is_log else value)


def sweeps(edits: list[str], facts: Facts) -> list[Sweep]:
    """Return the sweeps among the edits: three or more levels of one attribute; a sweep through zero gives two."""
    levels: dict[str, dict[float, str]] = {}
    for edit, (attribute, level) in single_levels(edits, facts).items():
        levels.setdefault(attribute, {})[level] = edit
    found = []
    for attribute, by_level in sorted(levels.items()):
        below = {-level: edit for level, edit in by_level.items() if level <= 0}
        above = {level: edit for level, edit in by_level.items() if level >= 0}
        through = any(level < 0 for level in by_level) and any(level > 0 for level in by_level)
        sides = {"below 0": below, "above 0": above} if through else {"": by_level}
        for side, chosen in sides.items():
            if len(chosen) >= 3:
                ordered = sorted(chosen)
                found.append(Sweep(attribute, side, tuple(chosen[one] for one in ordered), tuple(ordered)))
    return found


def levels_found(edits: list[str], facts: Facts) -> str:
    """Return the attributes with numeric levels and these levels, as text; `none` if there are none.

    >>> levels_found(["original", "size-0.1", "size-0.3"], Facts())
    'size has 2 levels (0.1, 0.3)'
    """
    levels: dict[str, list[float]] = {}
    for attribute, level in single_levels(edits, facts).values():
        levels.setdefault(attribute, []).append(level)
    parts = [
        f"{attribute} has {len(found)} level{'s' * (len(found) != 1)} ({', '.join(map('{:g}'.format, sorted(found)))})"
        for attribute, found in levels.items()
    ]
    return "; ".join(parts) or "none"


def single_levels(edits: list[str], facts: Facts) -> dict[str, tuple[str, float]]:
    """Return edit -> (attribute, level) of edits with one numeric attribute, from the manifest or the edit's name.

    The attribute keeps the rest of the name (`lighting-object`), so that different edits do not share a curve.
    """
    known: Mapping[str, Any] = {}
    if facts.manifest is not None and {"attribute", "level"} <= set(facts.manifest.columns):
        rows = facts.manifest.unique("edit").select("edit", "attribute", "level")
        known = {edit: (attribute, level) for edit, attribute, level in rows.iter_rows()}
    signed = {re.sub(_NUMBER, "", edit) for edit in edits if re.search(r"\+[\d.]+$", edit)}
    found = {}
    for edit in edits:
        match = re.search(_NUMBER, edit)
        if match is None:
            continue
        stem = edit[: match.start()].rstrip("-")
        attribute, level = known.get(edit, (stem, None))
        if attribute is None or " x " in attribute:
            continue
        if level is None:
            number = float(match.group())
            level = number if edit[: match.start()] in signed else abs(number)
        try:
            found[edit] = stem, float(level)
        except ValueError:
            continue
    return found


def accuracy_curves(predictions: Predictions, *, facts: Facts | None = None, level: float = 0.95) -> pl.DataFrame:
    """Return one row per model, attribute and level: n, accuracy in [0, 1] with interval, mean true-class probability.

    Empty if the predictions contain no sweep. true_probability is null if the predictions do not have it.
    """
    facts = read_facts(predictions) if facts is None else facts
    rows: list[dict[str, Any]] = []
    for found, probabilities in _models(predictions):
        for sweep in sweeps(list(found.edits), facts):
            for edit, value in zip(sweep.edits, sweep.levels, strict=True):
                runs = found.runs_of(edit)
                entries = accuracy_entries(found.of(edit), int(runs.max()), level)
                rows.append(
                    {
                        "model": found.model,
                        "attribute": sweep.attribute,
                        "side": sweep.side,
                        "level": value,
                        "edit": edit,
                        "n": int((runs > 0).sum()),
                        "accuracy": entries["accuracy"],
                        "low": entries["accuracy_low"],
                        "high": entries["accuracy_high"],
                        "true_probability": probabilities.get(edit),
                    }
                )
    return pl.DataFrame(rows, schema=_CURVE, infer_schema_length=None)


def curve_fits(
    predictions: Predictions,
    *,
    facts: Facts | None = None,
    chance: float | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pl.DataFrame:
    """Return one row per model and sweep: the fitted curve and its halfway level.

    Halfway means midway between the floor and the ceiling of the fitted curve, not an accuracy of one half.
    halfway, low and high are on the attribute's own scale, over photographs resampled as a whole; they are null where
    they lie outside the levels of the sweep, where accuracy is flat, or where its ceiling was not seen
    (`tells_halfway`). chance: fixes the floor; None fits it. Sweeps of fewer than five levels (four with a fixed
    floor) have no fit.
    """
    facts = read_facts(predictions) if facts is None else facts
    if chance is not None and not 0 <= chance < 1:
        raise UserError(f"the chance is {chance}", allowed="from 0 to below 1")
    settings = Settings(resamples, level, seed)
    rows = []
    for found, _ in _models(predictions):
        for sweep in sweeps(list(found.edits), facts):
            if len(sweep.levels) >= _fewest(chance):
                rows.append({"model": found.model, **_fit_row(found, sweep, chance, settings)})
    return pl.DataFrame(rows, schema=_FIT, infer_schema_length=None)


def smallest_flips(predictions: Predictions, *, facts: Facts | None = None) -> pl.DataFrame:
    """Return one row per model, sweep and correctly classified photograph: the mildest level that flips the prediction.

    Mildest is the end of the sweep at which accuracy over all photographs is higher. level: null where no level flips
    it; returns: whether the prediction is right again at a harder level. With several runs, more than half must be
    wrong.
    """
    facts = read_facts(predictions) if facts is None else facts
    frames = []
    for found, _ in _models(predictions):
        right = found.of(ORIGINAL) > 0.5
        for sweep in sweeps(list(found.edits), facts):
            share = np.stack([found.of(edit) for edit in sweep.edits], axis=1)
            levels = np.array(sweep.levels)
            if np.cov(levels, np.nanmean(share, axis=0))[0, 1] > 0:
                share, levels = share[:, ::-1], levels[::-1]
            share = share[right]
            wrong = share < 0.5
            first = np.where(wrong.any(axis=1), wrong.argmax(axis=1), len(levels))
            later = np.arange(len(levels)) > first[:, None]
            flipped = first < len(levels)
            frames.append(
                pl.DataFrame(
                    {
                        "model": found.model,
                        "attribute": sweep.attribute,
                        "side": sweep.side,
                        "source_id": np.array(found.images)[right].tolist(),
                        "level": [float(levels[one]) if one < len(levels) else None for one in first],
                        "returns": ((share > 0.5) & later).any(axis=1) & flipped,
                    },
                    schema=_FLIP,
                )
            )
    return pl.concat(frames) if frames else pl.DataFrame(schema=_FLIP)


def _fewest(chance: float | None) -> int:
    """Return one more than the number of the curve's parameters."""
    return 5 if chance is None else 4


def _fit_row(found: Outcomes, sweep: Sweep, chance: float | None, settings: Settings) -> dict[str, Any]:
    right, n, _ = resampled_counts(found, sweep, settings)
    axis = sweep.axis()
    fit = fit_logistic(axis, right, n, chance)
    tail = (1 - settings.level) / 2
    low, high = np.quantile(fit.halfway[1:], [tail, 1 - tail])
    told = axis[0] <= fit.halfway[0] <= axis[-1] and tells_halfway(axis, right[0], n[0], chance, settings.level)

    def on_scale(value: float) -> float | None:
        return sweep.on_scale(value) if told and axis[0] <= value <= axis[-1] else None

    return {
        "attribute": sweep.attribute,
        "side": sweep.side,
        "levels": len(sweep.levels),
        "n": int(n[0].max()),
        "halfway": on_scale(float(fit.halfway[0])),
        "low": on_scale(float(low)),
        "high": on_scale(float(high)),
        "floor": float(fit.floor[0]),
        "ceiling": float(fit.ceiling[0]),
        "slope": float(fit.slope[0]),
        "scale": "log" if sweep.is_log else "linear",
        "deviance": float(fit.deviance[0]),
    }


def resampled_counts(found: Outcomes, sweep: Sweep, settings: Settings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (1 + resamples, levels) correct and all predictions, and (1 + resamples,) accuracy on the originals.

    The first row is of the photographs themselves, the others are resampled.
    """
    share = np.stack([*(found.of(edit) for edit in sweep.edits), found.of(ORIGINAL)], axis=1)
    there = ~np.isnan(share)
    known = np.where(there, share, 0.0)
    weights = settings.weights(found.images).astype(np.float64)
    right, n = (np.vstack([one.sum(axis=0), weights @ one]) for one in (known, there.astype(np.float64)))
    return right[:, :-1], n[:, :-1], right[:, -1] / np.maximum(n[:, -1], 1e-9)


def _models(predictions: Predictions) -> Iterator[tuple[Outcomes, dict[str, float]]]:
    """Yield each model's outcomes, and its mean probability of the true class by edit, if available."""
    extra = ("true_probability",) if "true_probability" in columns_of(predictions) else ()
    images: tuple[str, ...] | None = None
    for name, rows in each_model(predictions, (*COLUMNS, *extra)):
        found = outcomes(name, rows, images)
        images = found.images
        means: dict[str, float] = {}
        if extra:
            means = dict(rows.group_by("edit").agg(pl.col("true_probability").mean()).iter_rows())
        yield found, means


_CURVE = schema("model attribute side level edit n accuracy low high true_probability")
_FIT = schema("model attribute side levels n halfway low high floor ceiling slope scale deviance")
_FLIP = schema("model attribute side source_id level returns")
