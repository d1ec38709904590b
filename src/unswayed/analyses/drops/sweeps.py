"""Sweeps and grids: the levels of attributes, and whether a pair of changes costs more than the sum of both."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import polars as pl

from unswayed.edits import edit_named_in
from unswayed.edits.edit import allowed
from unswayed.evaluation.facts import ORIGINAL, Facts, read_facts
from unswayed.evaluation.predictions import COLUMNS, Predictions, each_model

from .. import Row, schema
from ..statistics import corrected
from ..statistics.paired import IntervalSettings, Resampling, estimates, sign_flip
from .outcomes import POINTS, Outcomes, each_outcomes, lattice_of, need_original, outcomes_of

TOO_MUCH = 10.0  # points: the verdict names the levels that cost more
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

    @property
    def entries(self) -> Row:
        """Return the columns that name the sweep in a table."""
        scale = "log" if self.is_log else "linear"
        return {"attribute": self.attribute, "side": self.side, "levels": len(self.levels), "scale": scale}

    def axis(self) -> np.ndarray:
        return np.log(self.levels) if self.is_log else np.array(self.levels)

    def on_scale(self, values: Iterable[float], names: Iterable[str]) -> Row:
        """Return values of the axis on the attribute's own scale by these names, None beyond the sweep's levels."""
        first, *_, last = self.axis()
        return {
            name: float(np.exp(value) if self.is_log else value) if first <= value <= last else None
            for name, value in zip(names, values, strict=True)
        }

    def too_much(self, costs: Mapping[str, float]) -> str:
        """Return from which level on the attribute costs more than `TOO_MUCH` points; empty if no level does."""
        points = np.array([costs.get(edit, 0.0) for edit in self.edits])
        below = points[0] >= points[-1]  # whether small levels are the hard ones
        axis = self.axis()
        if below:
            points, axis = points[::-1], axis[::-1]
        points = np.maximum.accumulate(points)
        if points[-1] <= TOO_MUCH:
            return ""
        if points[0] > TOO_MUCH:
            return f"at {self._level(float(axis[0]))} or {'less' if below else 'more'}"
        return f"{'below' if below else 'above'} {self._level(float(np.interp(TOO_MUCH, points, axis)))}"

    def _level(self, at: float) -> str:
        """Return a level with its unit; shares in percent."""
        level = float(np.exp(at)) if self.is_log else at
        edit = edit_named_in(self.attribute)
        unit = "" if edit is None else getattr(allowed(edit, edit.axis), "unit", "")
        if unit.startswith("of the "):
            return f"{100 * level:.2g} % {unit}"
        return f"{level:.2g} {unit.partition(' of ')[0]}".strip()


def find_sweeps(edits: list[str], facts: Facts) -> list[Sweep]:
    """Return the sweeps among the edits: three or more levels of one attribute; a sweep through zero gives two."""
    levels: dict[str, dict[float, str]] = defaultdict(dict)
    for edit, (attribute, level) in single_levels(edits, facts).items():
        levels[attribute][level] = edit
    sweeps = []
    for attribute, by_level in sorted(levels.items()):
        sides = {"": by_level}
        if min(by_level) < 0 < max(by_level):
            below = {-level: edit for level, edit in by_level.items() if level <= 0}
            sides = {"below 0": below, "above 0": {level: edit for level, edit in by_level.items() if level >= 0}}
        for side, chosen in sides.items():
            if len(chosen) >= 3:
                ordered = tuple(sorted(chosen))
                sweeps.append(Sweep(attribute, side, tuple(chosen[level] for level in ordered), ordered))
    return sweeps


def levels_found(edits: list[str], facts: Facts) -> str:
    """Return the attributes with numeric levels and these levels, as text; `none` if there are none.

    >>> levels_found(["original", "size-0.1", "size-0.3"], Facts())
    'size has 2 levels (0.1, 0.3)'
    """
    levels: dict[str, list[float]] = defaultdict(list)
    for attribute, level in single_levels(edits, facts).values():
        levels[attribute].append(level)
    parts = []
    for attribute, values in levels.items():
        numbers = ", ".join(f"{value:g}" for value in sorted(values))
        parts.append(f"{attribute} has {len(values)} level{'s' * (len(values) != 1)} ({numbers})")
    return "; ".join(parts) or "none"


def single_levels(edits: list[str], facts: Facts) -> dict[str, tuple[str, float]]:
    """Return edit -> (attribute, level) of edits with one numeric attribute, from the manifest or the edit's name.

    The attribute keeps the rest of the name (`lighting-object`), so that different edits do not share a curve.
    """
    known: Mapping[str, tuple[str | None, str | float | None]] = {}
    if facts.manifest is not None and {"attribute", "level"} <= set(facts.manifest.columns):
        rows = facts.manifest.unique("edit").select("edit", "attribute", "level")
        known = {edit: (attribute, level) for edit, attribute, level in rows.iter_rows()}
    signed = {re.sub(_NUMBER, "", edit) for edit in edits if re.search(r"\+[\d.]+$", edit)}
    levels = {}
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
            levels[edit] = stem, float(level)
        except ValueError:
            continue
    return levels


def each_sweep(
    predictions: Predictions, facts: Facts | None, columns: Sequence[str] = COLUMNS
) -> Iterator[tuple[Outcomes, Sweep, pl.DataFrame]]:
    """Yield each model's outcomes with each of its sweeps, and the model's rows with these columns."""
    facts = read_facts(predictions) if facts is None else facts
    images: tuple[str, ...] | None = None
    for name, rows in each_model(predictions, columns):
        outcomes = outcomes_of(name, rows, images)
        images = outcomes.images
        for sweep in find_sweeps(list(outcomes.edits), facts):
            yield outcomes, sweep, rows


def resampled_counts(
    outcomes: Outcomes, sweep: Sweep, settings: IntervalSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (1 + resamples, levels) correct and all predictions, and (1 + resamples,) accuracy on the originals.

    The first row is of the photographs themselves, the others are resampled.
    """
    share = outcomes.matrix([*sweep.edits, ORIGINAL])
    there = ~np.isnan(share)
    known = np.where(there, share, 0.0)
    weights = settings.weights(outcomes.images).astype(np.float64)
    right, n = (np.vstack([counts.sum(axis=0), weights @ counts]) for counts in (known, there.astype(np.float64)))
    return right[:, :-1], n[:, :-1], right[:, -1] / np.maximum(n[:, -1], 1e-9)


Cell = tuple[tuple[str, str], ...]


def interactions(predictions: Predictions, *, facts: Facts | None = None, **how: Unpack[Resampling]) -> pl.DataFrame:
    """Return one row per model and pair of levels: how many points the pair drops more than the sum of its parts.

    Of the columns: drop is the pair's, first_drop and second_drop those of its parts, against `reference`; interaction
    = drop - first_drop - second_drop in points with low and high over photographs, positive where the pair is worse
    than the sum; p_value by sign flips over photographs, p_holm over the table. The parts are the edits that make one
    change only, against the original, where the benchmark has them; else the grid's cells at the mildest level of the
    other attribute, against the cell that is mildest in both. Empty where there is no grid.
    """
    facts = read_facts(predictions) if facts is None else facts
    settings = IntervalSettings(**how)
    models = list(each_outcomes(predictions))
    cells = _cells({edit for outcomes in models for edit in outcomes.edits}, facts)
    # (the attributes of a grid, one of them) -> level -> accuracies; the level with the highest is the mildest
    scores: dict[tuple[tuple[str, ...], str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell, edit in cells.items():
        accuracies = [float(np.nanmean(outcomes.of(edit))) for outcomes in models if edit in outcomes.edits]
        for attribute, at in cell if len(cell) == 2 else ():
            scores[tuple(name for name, _ in cell), attribute][at] += accuracies
    mildest = {}
    for key, by_level in scores.items():
        means = {at: float(np.mean(by_level[at])) for at in sorted(by_level)}
        mildest[key] = max(means, key=means.__getitem__)
    rows = [row for outcomes in models for row in _rows(outcomes, cells, mildest, settings)]
    types = schema("model edit first second reference n drop first_drop second_drop interaction low high p_value")
    return corrected(pl.DataFrame(rows, schema=types, infer_schema_length=None))


def _cells(edits: Iterable[str], facts: Facts) -> dict[Cell, str]:
    """Return (attribute, level) pairs -> the edit with exactly these, for grids and for single changes."""
    cells: dict[Cell, str] = {(): ORIGINAL}
    edits = sorted(edits)
    if facts.manifest is not None and {"attribute", "level"} <= set(facts.manifest.columns):
        rows = facts.manifest.drop_nulls(["attribute", "level"]).unique("edit").sort("edit")
        for edit, attribute, level in rows.select("edit", "attribute", "level").iter_rows():
            names, levels = attribute.split(" x "), str(level).split(" x ")
            if edit in edits and len(names) == len(levels) and len(set(names)) == len(names):
                cells.setdefault(tuple(sorted(zip(names, levels, strict=True))), edit)
        return cells
    for edit, (attribute, value) in single_levels(edits, facts).items():
        cells.setdefault(((attribute, f"{value:g}"),), edit)
    return cells


def _rows(
    outcomes: Outcomes,
    cells: dict[Cell, str],
    mildest: dict[tuple[tuple[str, ...], str], str],
    settings: IntervalSettings,
) -> list[Row]:
    base = need_original(outcomes)
    rows = []
    for cell, edit in cells.items():
        if len(cell) != 2 or edit not in outcomes.edits:
            continue
        (first, first_level), (second, second_level) = cell
        parts = [cells.get(((first, first_level),)), cells.get(((second, second_level),))]
        reference = ORIGINAL
        if None in parts:
            best = {name: mildest[(first, second), name] for name in (first, second)}
            if best[first] == first_level or best[second] == second_level:
                continue
            parts = [
                cells.get(tuple(sorted([(first, first_level), (second, best[second])]))),
                cells.get(tuple(sorted([(first, best[first]), (second, second_level)]))),
            ]
            reference = cells.get(tuple(sorted(best.items())), ORIGINAL)
        if any(part not in outcomes.edits for part in (*parts, reference)):
            continue
        start = base if reference == ORIGINAL else outcomes.of(reference)
        first_share, second_share, both = (outcomes.of(str(name)) for name in (*parts, edit))
        beyond = first_share + second_share - start - both
        runs = [outcomes.runs_of(str(name)) for name in (*parts, edit, reference)]
        answers = np.array([2 * max(int(each.max()) for each in runs)])
        there = ~np.isnan(beyond)
        if not there.any():
            continue
        result = estimates(beyond[:, None], answers, outcomes.images, settings, reach=2.0, unit=POINTS)
        row = {"model": outcomes.model, "edit": edit, "reference": reference, "n": int(there.sum())}
        row |= {"first": f"{first} {first_level}", "second": f"{second} {second_level}"}
        for name, after in (("drop", both), ("first_drop", first_share), ("second_drop", second_share)):
            row[name] = float((start - after)[there].mean()) * POINTS
        row |= result.entries(0, "interaction", "low", "high")
        rows.append(row | {"p_value": sign_flip(beyond, lattice_of(*runs))})
    return rows
