"""A gate for a release: limits of drops and accuracies, a baseline that a model must not be worse than, and verdicts.

A check passes or fails only where its whole interval lies on one side of the threshold; else it cannot tell. What the
predictions do not hold, or cannot show, is not measured, which is never a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from unswayed.analyses.statistics.intervals import Settings
from unswayed.errors import UserError
from unswayed.evaluation.facts import Facts, read_facts
from unswayed.evaluation.model_cards import remarks, suspicion_in
from unswayed.evaluation.predictions import (
    Overlap,
    Predictions,
    common_predictions,
    is_frame,
    missing_model,
    model_names,
    overlap_of,
    overlap_of_models,
    read_cards,
)

from .baseline_rows import baseline_rows
from .compare import read_model
from .drop import dropped_accuracy
from .few import TOO_FEW_TO_PASS, weight_of_one
from .gate_rows import (
    CANNOT_TELL,
    FAIL,
    NOT_MEASURED,
    PASS,
    SCHEMA,
    Verdict,
    not_measured,
    sweep_rows,
    threshold_rows,
    with_advice,
    withheld,
)
from .rules import Rules, read_rules

EXITS = {PASS: 0, FAIL: 1, CANNOT_TELL: 3, NOT_MEASURED: 3}


@dataclass(frozen=True, eq=False)
class Checked:
    """What a gate found: the verdict over all checks, one row per check (columns: `check_predictions`), where only
    common pictures are compared, how many these are (`overlaps`), and `doubts`: limits that look like a mistake, and
    remarks about the models and the benchmark."""

    verdict: Verdict
    checks: pl.DataFrame
    overlaps: tuple[Overlap, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check passes; a check that cannot tell does not."""
        return self.verdict == PASS

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know about all checks."""
        few = self.checks.filter((pl.col("verdict") == PASS) & (pl.col("n") < TOO_FEW_TO_PASS))["n"].sort()[:1]
        doubts = [f"n = {n}: {weight_of_one(n)}, so a pass says little" for n in few]
        return (*map(str, self.overlaps), *self.doubts, *doubts)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict, the common part and the checks for a JSON file."""
        common = [overlap.to_json() for overlap in self.overlaps]
        return {"verdict": self.verdict, "common": common, "checks": self.checks.to_dicts()}


def check(
    predictions: Predictions,
    *,
    max_drop: Mapping[str, float] | None = None,
    min_accuracy: Mapping[str, float] | None = None,
    min_threshold: Mapping[str, tuple[float, float]] | None = None,
    baseline: str | Path | pl.DataFrame | None = None,
    margin: float | None = None,
    measure: Literal["accuracy", "drop"] | None = None,
    config: str | Path | None = None,
    models: Sequence[str] = (),
    level: float | None = None,
    common: bool = False,
    resamples: int = 1000,
    seed: int = 0,
) -> Checked:
    """Whether the models may be released: `unswayed check` in Python.

    max_drop: edit or pattern -> points at most; min_accuracy: edit or pattern -> percent at least; min_threshold:
    attribute of a sweep -> (level, percent), the level down to which that accuracy must be kept; baseline: earlier
    predictions, and margin: points by which `measure` (accuracy) may be worse; config: a TOML file with the same, what
    is given here wins; models: only these; level: of the intervals (0.95). Predictions from another benchmark than the
    baseline's are refused; common: compare the pictures that both have.
    """
    rules = read_rules(
        config,
        max_drop=dict(max_drop or {}),
        min_accuracy=dict(min_accuracy or {}),
        min_threshold=dict(min_threshold or {}),
        baseline=baseline,
        margin=margin,
        measure=measure,
        level=level,
        models=tuple(models),
    )
    return run_checks(predictions, rules, common=common, resamples=resamples, seed=seed)


def check_predictions(predictions: Predictions, rules: Rules, **settings: Any) -> pl.DataFrame:
    """One row per check: model, edit, measure, n, value, low, high, threshold, verdict, more and reason.

    value, low, high and threshold are points (percent for accuracy). Measures: `drop` at most, `accuracy` at least,
    `accuracy lost` and `drop gained` against the baseline at most. more: about how many further photographs would tell,
    where the verdict is `cannot tell`. An edit that a rule or the baseline names and the predictions lack is
    `not measured`, and so is everything about a model whose card has a suspicion. settings: those of `run_checks`.
    """
    return run_checks(predictions, rules, **settings).checks


def run_checks(
    predictions: Predictions,
    rules: Rules,
    *,
    facts: Facts | None = None,
    common: bool = False,
    resamples: int = 1000,
    seed: int = 0,
) -> Checked:
    """Check the models against the rules.

    common: where models or the baseline come from different benchmarks, use the pictures they share.
    """
    names = model_names(predictions)
    for name in rules.models:
        if name not in names:
            raise missing_model(name, names, predictions)
    chosen = [name for name in names if not rules.models or name in rules.models]
    if facts is None:
        facts = read_facts(predictions, models=chosen, common=common)
    settings = Settings(resamples, rules.level, seed)
    overlaps: list[Overlap] = []
    judged = predictions
    if common and len(chosen) > 1 and (rules.max_drop or rules.min_accuracy or rules.min_threshold):
        judged = common_predictions(predictions, chosen)
        overlaps.append(overlap_of_models(predictions, chosen))
    rows: list[dict[str, Any]] = []
    if rules.max_drop or rules.min_accuracy:
        table = dropped_accuracy(judged, models=chosen, facts=facts, level=rules.level, resamples=resamples, seed=seed)
        known = {*table["edit"], *facts.order}
        for model in chosen:
            rows += threshold_rows(model, table.filter(model=model), rules, known, facts)
    if rules.min_threshold:
        for model in chosen:
            rows += sweep_rows(read_model(judged, model), rules, facts, settings)
    rows = [withheld(row, suspicion_in(facts.cards.get(row["model"], {}))) for row in rows]
    if rules.baseline is not None:
        pairs = _pairs(chosen, model_names(rules.baseline), bool(rules.models))
        old_cards = read_cards(rules.baseline)
        for model, other in pairs:
            overlap = _overlap(predictions, model, rules.baseline, other) if common else None
            overlaps += [overlap] if overlap else []
            found = baseline_rows(predictions, model, other, rules, facts, old_cards.get(other, {}), settings, overlap)
            suspected = suspicion_in(facts.cards.get(model, {})), suspicion_in(old_cards.get(other, {}))
            told = suspected[0] or (f"the baseline cannot be compared with: {suspected[1]}" if suspected[1] else None)
            rows += [withheld(row, told) for row in found]
        alone = [name for name in chosen if name not in dict(pairs)]
        rows += [not_measured(name, "all", "baseline", rules.margin, "the baseline lacks this model") for name in alone]
    checks = pl.DataFrame([with_advice(row, rules.level) for row in rows], schema=SCHEMA, infer_schema_length=None)
    return Checked(verdict(checks), checks, tuple(overlaps), (*rules.doubts, *remarks(facts.cards, chosen)))


def verdict(checks: pl.DataFrame) -> Verdict:
    """The verdict over all checks: fail if one fails, else not measured or cannot tell if one is so, else pass.

    Without any check nothing was measured.
    """
    found = set(checks["verdict"]) or {NOT_MEASURED}
    return next((one for one in (FAIL, NOT_MEASURED, CANNOT_TELL) if one in found), PASS)


def _overlap(predictions: Predictions, model: str, baseline: Predictions, other: str) -> Overlap:
    here, there = (
        name if is_frame(place) else f"{name} in {place}" for name, place in ((model, predictions), (other, baseline))
    )
    there = there if there != here else f"{there}, the baseline"
    return overlap_of([(here, predictions, model), (there, baseline, other)])


def _pairs(models: list[str], baseline: list[str], chosen: bool) -> list[tuple[str, str]]:
    """Return which model is compared with which of the baseline: by name, or the only one with the only one."""
    pairs = [(name, name) for name in models if name in baseline]
    if not pairs and len(models) == 1 and len(baseline) == 1:
        return [(models[0], baseline[0])]
    missing = [name for name in models if name not in baseline]
    if not pairs or (chosen and missing):
        raise UserError(
            f"the baseline has no predictions of {', '.join(missing)}; it has {', '.join(baseline)}",
            allowed="a model of the same name in both folders, or one model in each",
        )
    return pairs
