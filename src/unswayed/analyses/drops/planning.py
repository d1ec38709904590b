"""How many photographs a benchmark needs, from a pilot's predictions or from assumptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl

from unswayed.choices import OneLine, takes
from unswayed.errors import UserError, check_known
from unswayed.evaluation.facts import ORIGINAL, SOURCE
from unswayed.evaluation.predictions import Predictions

from .. import Row, schema
from ..settings import PlanSettings
from ..statistics import power as powers
from ..statistics.power import Design
from .outcomes import Outcomes, each_outcomes, need_original

PHOTOGRAPHS = (50, 100, 200, 500, 1000, 2000, 5000)
DETECT, SMALLEST, PASS = "photographs that show this drop", "smallest drop they show", "photographs that pass the gate"
# Above this a simulation takes minutes, and the computed power is exact to a tenth of a point.
_MOST_SIMULATED = 50_000
_Power = Callable[[Design, int], float]


@dataclass(frozen=True, eq=False, repr=False)
class PhotographPlan(OneLine):
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
        assumptions = (
            f"Pilot: {name}, {most:,} photographs. Its drops are themselves estimates: they are computed as if half a "
            "photograph more had been lost and half a one gained, and so differ a little from those of `analyze`."
        )
    own_drop = pilot is not None and not asked
    table = plan_photographs(designs, replace(settings, photographs=numbers), own_drop=own_drop)
    return PhotographPlan(table, assumptions)


@takes(PlanSettings)
def plan_photographs(
    designs: dict[tuple[str, str], Design], settings: PlanSettings, *, own_drop: bool = False
) -> pl.DataFrame:
    """One row per question and design: model, edit, question, drop, discordance, runs, photographs, power, simulated.

    designs: (model, edit) -> design, from `pilot_designs` or a guess. Of the settings, photographs: for each number,
    the smallest drop that it shows; drop (points): for each, how many photographs show it; own_drop: also for the
    design's own drop; max_drop (points): how many photographs let `check --max-drop` pass if the design's drop is the
    true one; power: the wanted chance, and the columns `power` and `simulated` are the computed and the simulated
    chances at that number; tests: how many tests share the error rate 1 - level.
    """
    power, level, max_drop, seed = settings.power, settings.level, settings.max_drop, settings.seed
    if not 0.5 <= power < 1:
        raise UserError(f"the power is {power:g}", allowed="0.5 to below 1, such as 0.8")
    if not 0.5 <= level < 1:
        raise UserError(f"the level is {level:g}", allowed="0.5 to below 1, such as 0.95")
    if settings.tests < 1:
        raise UserError(f"the number of tests is {settings.tests}", allowed="1 or more")
    alpha = (1 - level) / settings.tests
    detecting = (
        partial(powers.detection_power, alpha=alpha),
        partial(powers.simulated_detection_power, alpha=alpha, seed=seed),
    )
    rows: list[Row] = []
    for (model, edit), design in designs.items():
        named = {"model": model, "edit": edit}
        asked: list[tuple[str, Design | None, int | None]] = []
        for n in settings.photographs:
            if n < 1:
                raise UserError(f"the number of photographs is {n}", allowed="1 or more")
            drop = powers.smallest_drop(design, n, power, alpha)
            asked.append((SMALLEST, None if drop is None else replace(design, drop=drop), n))
        drops = [replace(design, drop=points / 100) for points in settings.drop]
        for wanted in [design, *drops] if own_drop else drops:
            asked.append((DETECT, wanted, powers.photographs_to_detect(wanted, power, alpha)))
        rows += [named | _row(*question, *detecting) for question in asked]
        if max_drop is not None:
            passing = partial(powers.pass_power, at_most=max_drop / 100, level=level)
            simulated = partial(powers.simulated_pass_power, at_most=max_drop / 100, level=level, seed=seed)
            number = powers.photographs_to_pass(design, max_drop / 100, power, level)
            rows.append(named | _row(PASS, design, number, passing, simulated) | {"max_drop": max_drop})
    types = schema("model edit question photographs drop max_drop discordance runs power simulated")
    return pl.DataFrame(rows, schema=types, infer_schema_length=None)


def _row(question: str, design: Design | None, number: int | None, power: _Power, simulated: _Power) -> Row:
    """Return the answer with the computed and the simulated power; design, number: None where there is none."""
    row: Row = {"question": question, "photographs": number}
    if design is not None:
        row |= {"drop": 100 * design.drop, "discordance": 100 * design.discordance, "runs": design.runs}
        row["power"] = None if number is None else power(design, number)
        if number is not None and number <= _MOST_SIMULATED:
            row["simulated"] = simulated(design, number)
    return row


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
    designs: dict[tuple[str, str], Design] = {}
    counts: dict[tuple[str, str], int] = {}
    for outcomes in each_outcomes(predictions, models):
        need_original(outcomes)
        there = [edit for edit in outcomes.edits if edit not in (ORIGINAL, SOURCE)]
        check_known("edit", edits or (), there)
        for edit in edits or there:
            both = ~np.isnan(outcomes.of(ORIGINAL)) & ~np.isnan(outcomes.of(edit))
            if both.any():
                design = _pilot(outcomes, edit, both)
                designs[outcomes.model, edit] = design if runs is None else replace(design, runs=runs)
                counts[outcomes.model, edit] = int(both.sum())
    if not designs:
        raise UserError("the pilot has no edited picture with its original", run="unswayed evaluate BENCH -m MODEL")
    return designs, counts


def _pilot(outcomes: Outcomes, edit: str, both: np.ndarray) -> Design:
    """Return the design of one edit from the photographs that have both pictures; shares are moved half a prediction
    away from 0 and 1, since a pilot is small."""
    base, share, n = outcomes.of(ORIGINAL)[both], outcomes.of(edit)[both], int(both.sum())
    accuracy, losses, gains = (
        float((part.sum() + 0.5) / (n + 1)) for part in (base, base * (1 - share), (1 - base) * share)
    )
    losses, gains = min(losses, accuracy), min(gains, 1 - accuracy)
    runs, correlation = int(outcomes.runs_of(edit)[both].max()), 1.0
    # Var(share) = p (1 - p) (rho + (1 - rho) / runs), with p the mean share among photographs right (or wrong) before.
    seen = most = 0.0
    for group in (share[base >= 0.5], share[base < 0.5]):
        if len(group) > 1:
            mean = float(group.mean())
            seen += len(group) * float(group.var(ddof=1))
            most += len(group) * mean * (1 - mean)
    if runs > 1 and most > 0:
        correlation = float(np.clip((seen / most - 1 / runs) / (1 - 1 / runs), 0.0, 1.0))
    return Design(losses - gains, gains, accuracy, runs, correlation)
