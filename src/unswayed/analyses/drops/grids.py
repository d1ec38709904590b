"""Grids: whether a pair of changes costs more than the sum of both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from unswayed.analyses.columns import schema
from unswayed.analyses.statistics.intervals import Settings, estimates
from unswayed.analyses.statistics.paired import sign_flip
from unswayed.evaluation.facts import ORIGINAL, Facts, read_facts
from unswayed.evaluation.predictions import Predictions

from .curves import single_levels
from .drop_rows import POINTS, corrected, lattice_of, need_original
from .outcomes import Outcomes, each_outcomes

Cell = tuple[tuple[str, str], ...]


def interactions(
    predictions: Predictions,
    *,
    facts: Facts | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pl.DataFrame:
    """Return one row per model and pair of levels: how many points the pair drops more than the sum of its parts.

    Of the columns: drop is the pair's, first_drop and second_drop those of its parts, against `reference`; interaction
    = drop - first_drop - second_drop in points with low and high over photographs, positive where the pair is worse
    than the sum; p_value by sign flips over photographs, p_holm over the table. The parts are the edits that make one
    change only, against the original, where the benchmark has them; else the grid's cells at the mildest level of the
    other attribute, against the cell that is mildest in both. Empty where there is no grid.
    """
    facts = read_facts(predictions) if facts is None else facts
    settings = Settings(resamples, level, seed)
    found = list(each_outcomes(predictions))
    cells = _cells({edit for one in found for edit in one.edits}, facts)
    mildest = _mildest(found, cells)
    table: list[dict[str, Any]] = []
    for one in found:
        table += _rows(one, cells, mildest, settings)
    return corrected(pl.DataFrame(table, schema=_SCHEMA, infer_schema_length=None))


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


def _mildest(found: list[Outcomes], cells: dict[Cell, str]) -> dict[Cell, dict[str, str]]:
    """Return for each pair of attributes (as a cell of names) the level of each with the highest accuracy."""
    scores: dict[Cell, dict[str, dict[str, list[float]]]] = {}
    for cell, edit in cells.items():
        if len(cell) == 2:
            values = [float(np.nanmean(one.of(edit))) for one in found if edit in one.edits]
            for attribute, level in cell:
                scores.setdefault(_names(cell), {}).setdefault(attribute, {}).setdefault(level, []).extend(values)
    return {
        names: {
            attribute: max(sorted(levels), key=lambda level: float(np.mean(levels[level])))
            for attribute, levels in by_attribute.items()
        }
        for names, by_attribute in scores.items()
    }


def _rows(
    found: Outcomes, cells: dict[Cell, str], mildest: dict[Cell, dict[str, str]], settings: Settings
) -> list[dict[str, Any]]:
    base = need_original(found)
    rows = []
    for cell, edit in cells.items():
        if len(cell) != 2 or edit not in found.edits:
            continue
        (first, first_level), (second, second_level) = cell
        parts = [cells.get(((first, first_level),)), cells.get(((second, second_level),))]
        reference = ORIGINAL
        if None in parts:
            best = mildest[_names(cell)]
            if best[first] == first_level or best[second] == second_level:
                continue
            parts = [
                cells.get(tuple(sorted([(first, first_level), (second, best[second])]))),
                cells.get(tuple(sorted([(first, best[first]), (second, second_level)]))),
            ]
            reference = cells.get(tuple(sorted(best.items())), ORIGINAL)
        if any(part not in found.edits for part in (*parts, reference)):
            continue
        start = base if reference == ORIGINAL else found.of(reference)
        one, two, both = (found.of(str(name)) for name in (*parts, edit))
        beyond = one + two - start - both
        runs = [found.runs_of(str(name)) for name in (*parts, edit, reference)]
        answers = np.array([2 * max(int(each.max()) for each in runs)])
        result = estimates(beyond[:, None], answers, found.images, settings, reach=2.0, unit=POINTS)
        there = ~np.isnan(beyond)
        if not there.any():
            continue
        rows.append(
            {
                "model": found.model,
                "edit": edit,
                "first": f"{first} {first_level}",
                "second": f"{second} {second_level}",
                "reference": reference,
                "n": int(there.sum()),
                "drop": float((start - both)[there].mean()) * POINTS,
                "first_drop": float((start - one)[there].mean()) * POINTS,
                "second_drop": float((start - two)[there].mean()) * POINTS,
                **result.entries(0, "interaction", "low", "high"),
                "p_value": sign_flip(beyond, lattice_of(*runs)),
            }
        )
    return rows


def _names(cell: Cell) -> Cell:
    return tuple((attribute, "") for attribute, _ in cell)


_SCHEMA = schema("model edit first second reference n drop first_drop second_drop interaction low high p_value")
