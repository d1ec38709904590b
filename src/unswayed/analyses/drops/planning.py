"""How many photographs a benchmark needs, from a pilot's predictions or from assumptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from unswayed.choices import one_line, takes
from unswayed.errors import UserError, unknown
from unswayed.evaluation.facts import ORIGINAL, SOURCE
from unswayed.evaluation.predictions import Predictions

from .. import Row, schema
from ..settings import PlanSettings
from ..statistics.power import (
    Design,
    detection_power,
    pass_power,
    photographs_to_detect,
    photographs_to_pass,
    simulated_detection_power,
    simulated_pass_power,
    smallest_drop,
)
from .outcomes import Outcomes, each_outcomes, need_original

PHOTOGRAPHS = (50, 100, 200, 500, 1000, 2000, 5000)
DETECT, SMALLEST, PASS = "photographs that show this drop", "smallest drop they show", "photographs that pass the gate"
# Above this a simulation takes minutes, and the computed power is exact to a tenth of a point.
_MOST_SIMULATED = 50_000


@one_line
@dataclass(frozen=True, eq=False)
class PhotographPlan:
    """How many photographs are needed: the table of `plan_photographs`, and what it assumes, in a sentence."""

    table: pl.DataFrame
    assumptions: str


@takes(PlanSettings)
def plan(pilot: Predictions | None, settings: PlanSettings) -> PhotographPlan:
    """How many photographs show a drop, or what drop a number of photographs shows; fields of settings are keywords.

    pilot: predictions on a small benchmark, or None for the assumptions of the settings.

    >>> plan(None, drop=[5.0]).table["photographs"].to_list()
    [367]
    """
    asked = bool(settings.photographs or settings.drop or settings.max_drop is not None)
    numbers = tuple(settings.photographs)
    if pilot is None:
        shares = settings.expect / 100, settings.gains / 100, settings.accuracy / 100
        designs = {("guess", "any"): Design(*shares, settings.runs or 1, settings.correlation)}
        numbers = numbers or (() if asked else PHOTOGRAPHS)
        assumptions = (
            f"Assumed: accuracy {settings.accuracy:g} %, {settings.gains:g} % of the predictions turn from wrong to "
            "right."
        )
    else:
        designs, counts = pilot_designs(pilot, models=settings.models, edits=settings.edits, runs=settings.runs)
        most = max(counts.values())
        numbers = numbers or (() if asked else (most,))
        name = "the predictions" if isinstance(pilot, pl.DataFrame) else pilot
        assumptions = f"Pilot: {name}, {most:,} photographs; its drops are themselves estimates."
    table = plan_photographs(
        designs, photographs=numbers, drops=settings.drop, own_drop=pilot is not None and not asked,
        max_drop=settings.max_drop, power=settings.power, level=settings.level, tests=settings.tests,
        seed=settings.seed,
    )  # fmt: skip
    return PhotographPlan(table, assumptions)


def plan_photographs(
    designs: dict[tuple[str, str], Design],
    *,
    photographs: Sequence[int] = (),
    drops: Sequence[float] = (),
    own_drop: bool = False,
    max_drop: float | None = None,
    power: float = 0.8,
    level: float = 0.95,
    tests: int = 1,
    seed: int = 0,
) -> pl.DataFrame:
    """One row per question and design: model, edit, question, drop, discordance, runs, photographs, power, simulated.

    designs: (model, edit) -> design, from `pilot_designs` or a guess. photographs: for each number, the smallest drop
    that it shows; drops (points): for each, how many photographs show it; own_drop: also for the design's own drop;
    max_drop (points): how many photographs let `check --max-drop` pass if the design's drop is the true one.
    power: the wanted chance; the columns `power` and `simulated` are the computed and the simulated chances at
    that number. tests: how many tests share the error rate 1 - level.
    """
    if not 0.5 <= power < 1:
        raise UserError(f"the power is {power:g}", allowed="0.5 to below 1, such as 0.8")
    if not 0.5 <= level < 1:
        raise UserError(f"the level is {level:g}", allowed="0.5 to below 1, such as 0.95")
    if tests < 1:
        raise UserError(f"the number of tests is {tests}", allowed="1 or more")
    alpha = (1 - level) / tests
    rows: list[Row] = []
    for (model, edit), design in designs.items():
        named = {"model": model, "edit": edit}
        for n in photographs:
            if n < 1:
                raise UserError(f"the number of photographs is {n}", allowed="1 or more")
            found = smallest_drop(design, n, power, alpha)
            shown = None if found is None else replace(design, drop=found)
            rows.append(named | {"question": SMALLEST, "photographs": n} | _detection(shown, n, alpha, seed))
        for wanted in [*([design] if own_drop else []), *(replace(design, drop=points / 100) for points in drops)]:
            number = photographs_to_detect(wanted, power, alpha)
            rows.append(named | {"question": DETECT, "photographs": number} | _detection(wanted, number, alpha, seed))
        if max_drop is not None:
            limit = max_drop / 100
            number = photographs_to_pass(design, limit, power, level)
            entry = named | {"question": PASS, "photographs": number, "max_drop": max_drop} | _described(design)
            if number is not None:
                entry["power"] = pass_power(design, number, limit, level)
                if number <= _MOST_SIMULATED:
                    entry["simulated"] = simulated_pass_power(design, number, limit, level, seed=seed)
            rows.append(entry)
    return pl.DataFrame(rows, schema=_SCHEMA, infer_schema_length=None)


def pilot_designs(
    predictions: Predictions,
    *,
    models: Sequence[str] | None = None,
    edits: Sequence[str] | None = None,
    runs: int | None = None,
) -> tuple[dict[tuple[str, str], Design], dict[tuple[str, str], int]]:
    """Return the design from a pilot's predictions for each model and edit, and the pilot's number of photographs.

    runs: runs of the planned experiment, the pilot's if None. A pilot of one run cannot show how correlated several
    runs are; they are then assumed to be identical, so that further runs gain nothing.
    """
    found: dict[tuple[str, str], Design] = {}
    counts: dict[tuple[str, str], int] = {}
    for answers in each_outcomes(predictions, models):
        need_original(answers)
        there = [edit for edit in answers.edits if edit not in (ORIGINAL, SOURCE)]
        for edit in edits or ():
            if edit not in there:
                raise unknown("edit", edit, there)
        for edit in edits or there:
            design, count = _pilot(answers, edit)
            if count:
                found[answers.model, edit] = design if runs is None else replace(design, runs=runs)
                counts[answers.model, edit] = count
    if not found:
        raise UserError("the pilot has no edited picture with its original", run="unswayed evaluate BENCH -m MODEL")
    return found, counts


def _pilot(answers: Outcomes, edit: str) -> tuple[Design, int]:
    """Return the design of one edit; shares are moved half a prediction away from 0 and 1, since a pilot is small."""
    base, share, runs = answers.of(ORIGINAL), answers.of(edit), answers.runs_of(edit)
    both = ~np.isnan(base) & ~np.isnan(share)
    base, share, runs = base[both], share[both], runs[both]
    n = len(base)
    if not n:
        return Design(0.0), 0
    accuracy = float((base.sum() + 0.5) / (n + 1))
    losses = float(((base * (1 - share)).sum() + 0.5) / (n + 1))
    gains = float((((1 - base) * share).sum() + 0.5) / (n + 1))
    losses, gains = min(losses, accuracy), min(gains, 1 - accuracy)
    design = Design(losses - gains, gains, accuracy, int(runs.max()), correlation=1.0)
    if design.runs > 1:
        design = replace(design, correlation=_correlation(base, share, int(runs.max())))
    return design, n


def _correlation(base: np.ndarray, share: np.ndarray, runs: int) -> float:
    """Return the correlation between the runs of one photograph, from the variance of their shares.

    Var(share) = p (1 - p) (rho + (1 - rho) / runs), with p the mean share among photographs right (or wrong) before.
    """
    seen = most = 0.0
    for group in (share[base >= 0.5], share[base < 0.5]):
        if len(group) > 1:
            mean = float(group.mean())
            seen += len(group) * float(group.var(ddof=1))
            most += len(group) * mean * (1 - mean)
    if most <= 0:
        return 1.0
    return float(np.clip((seen / most - 1 / runs) / (1 - 1 / runs), 0.0, 1.0))


def _detection(design: Design | None, n: int | None, alpha: float, seed: int) -> Row:
    if design is None or n is None:
        return {} if design is None else _described(design)
    entry = _described(design) | {"power": detection_power(design, n, alpha)}
    if n <= _MOST_SIMULATED:
        entry["simulated"] = simulated_detection_power(design, n, alpha, seed=seed)
    return entry


def _described(design: Design) -> Row:
    return {"drop": 100 * design.drop, "discordance": 100 * design.discordance, "runs": design.runs}


_SCHEMA = schema("model edit question photographs drop max_drop discordance runs power simulated")
