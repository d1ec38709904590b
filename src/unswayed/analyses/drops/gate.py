"""A gate for a release: limits of drops and accuracies, a baseline that a model must not be worse than, and verdicts.

A check passes or fails only where its whole interval lies on one side of the threshold; else it cannot tell. What the
predictions do not hold, or cannot show, is not measured, which is never a pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl

from unswayed.choices import OneLine, takes
from unswayed.errors import UserError, printable
from unswayed.evaluation.facts import ORIGINAL, SOURCE, Facts, read_facts, without_doubted
from unswayed.evaluation.model_cards import chance_in, remarks, suspicion_in
from unswayed.evaluation.predictions import (
    Overlap,
    Predictions,
    columns_of,
    common_predictions,
    each_model,
    is_frame,
    missing_model,
    model_names,
    overlap_of,
    read_cards,
)
from unswayed.files.whole import Json

from .. import Row
from ..settings import GateSettings
from ..statistics.paired import IntervalSettings
from . import limits
from .compare import comparison_rows
from .drop import dropped_accuracy
from .limits import CANNOT_TELL, FAIL, NOT_MEASURED, PASS, Rules, Verdict
from .outcomes import TOO_FEW_TO_PASS, each_outcomes, read_pair, weight_of_one

EXITS = {PASS: 0, FAIL: 1, CANNOT_TELL: 3, NOT_MEASURED: 3}
SAME_WEIGHTS = "the same weights give the same predictions"
_ACCURACY_LOST = ("accuracy_difference", "accuracy_high", "accuracy_low")


@dataclass(frozen=True, eq=False, repr=False)
class GateResult(OneLine):
    """What a gate found: the verdict over all checks, one row per check (columns: `run_checks`), where only
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

    def to_json(self) -> Json:
        """Return the verdict, the common part and the checks for a JSON file."""
        common = [overlap.to_json() for overlap in self.overlaps]
        return {"verdict": self.verdict, "common": common, "checks": self.checks.to_dicts()}


@takes(GateSettings)
def check(predictions: Predictions, settings: GateSettings) -> GateResult:
    """Whether the models may be released: `unswayed check` in Python; the fields of settings are also keywords.

    Predictions from another benchmark than the baseline's are refused; common: compare the pictures that both have.
    """
    given = dict(vars(settings))
    how = {name: given.pop(name) for name in ("common", "resamples", "seed")}
    if given.pop("leave_out") is not None:
        facts = read_facts(predictions, models=settings.models or None, common=settings.common)
        predictions, how["facts"] = without_doubted(predictions, facts, columns_of(predictions))
    return run_checks(predictions, limits.read_rules(**given), **how)


def run_checks(
    predictions: Predictions,
    rules: Rules,
    *,
    facts: Facts | None = None,
    common: bool = False,
    resamples: int = 1000,
    seed: int = 0,
) -> GateResult:
    """Check the models against the rules.

    common: where models or the baseline come from different benchmarks, use the pictures they share. One row per check:
    model, edit, measure, n, value, low, high, threshold, verdict, more and reason. value, low, high and threshold are
    points (percent for accuracy). Measures: `drop` at most, `accuracy` at least, `accuracy lost` and `drop gained`
    against the baseline at most. more: about how many further photographs would tell, where the verdict is `cannot
    tell`. An edit that a rule or the baseline names and the predictions lack is `not measured`, and so is everything
    about a model whose card has a suspicion.
    """
    names = model_names(predictions)
    for name in rules.models:
        if name not in names:
            raise missing_model(name, names, predictions)
    chosen = [name for name in names if not rules.models or name in rules.models]
    if facts is None:
        facts = read_facts(predictions, models=chosen, common=common)
    settings = IntervalSettings(resamples, rules.level, seed)
    overlaps: list[Overlap] = []
    judged = predictions
    if common and len(chosen) > 1 and (rules.max_drop or rules.min_accuracy or rules.min_threshold):
        judged = common_predictions(predictions, chosen)
        overlaps.append(overlap_of([(name, predictions, name) for name in chosen]))
    rows: list[Row] = []
    if rules.max_drop or rules.min_accuracy:
        table = dropped_accuracy(judged, models=chosen, facts=facts, level=rules.level, resamples=resamples, seed=seed)
        known = {*table["edit"], *facts.order}
        for model in chosen:
            rows += limits.threshold_rows(model, table.filter(model=model), rules, known, facts)
    if rules.min_threshold:
        for outcomes in each_outcomes(judged, chosen):
            rows += limits.sweep_rows(outcomes, rules, facts, settings)
    if rules.baseline is not None:
        pairs = _pairs(chosen, model_names(rules.baseline), bool(rules.models))
        old_cards = read_cards(rules.baseline)
        for model, other in pairs:
            old_card, overlap = old_cards.get(other, {}), None
            if common:
                here, there = (
                    name if is_frame(stored) else f"{name} in {stored}"
                    for name, stored in ((model, predictions), (other, rules.baseline))
                )
                there = there if there != here else f"{there}, the baseline"
                overlap = overlap_of([(here, predictions, model), (there, rules.baseline, other)])
                overlaps.append(overlap)
            suspected = suspicion_in(facts.cards.get(model, {})), suspicion_in(old_card)
            reason = suspected[0] or (f"the baseline cannot be compared with: {suspected[1]}" if suspected[1] else None)
            compared = _baseline_rows(predictions, model, other, rules, facts, old_card, settings, overlap)
            rows += [limits.withheld(row, reason) for row in compared]
        alone = [name for name in chosen if name not in dict(pairs)]
        why = "the baseline lacks this model"
        rows += [limits.not_measured(name, "all", "baseline", rules.margin, why) for name in alone]
    checks = pl.DataFrame(
        [limits.with_advice(row, rules.level) for row in rows], schema=limits.SCHEMA, infer_schema_length=None
    )
    return GateResult(verdict(checks), checks, tuple(overlaps), (*rules.doubts, *remarks(facts.cards, chosen)))


def verdict(checks: pl.DataFrame) -> Verdict:
    """The verdict over all checks: fail if one fails, else not measured or cannot tell if one is so, else pass.

    Without any check nothing was measured.
    """
    verdicts = set(checks["verdict"]) or {NOT_MEASURED}
    return next((worst for worst in (FAIL, NOT_MEASURED, CANNOT_TELL) if worst in verdicts), PASS)


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


def _baseline_rows(
    predictions: Predictions,
    model: str,
    other: str,
    rules: Rules,
    facts: Facts,
    old_card: Mapping[str, object],
    settings: IntervalSettings,
    overlap: Overlap | None,
) -> list[Row]:
    """One row per edit of the baseline: how much worse the model is on it, or that it was not measured.

    overlap: what both have in common, if only that is compared.
    """
    assert rules.baseline is not None
    candidate, baseline = read_pair(predictions, model, rules.baseline, other, overlap is not None)
    card = facts.cards.get(model, {})
    partial = overlap is not None and not overlap.complete
    # The same network with the same answers needs no test. Where pictures fell away, the rest decides by its interval.
    same_network = card.get("weights_sha256") is not None and _network(card) == _network(old_card)
    same_pictures = (candidate.images, candidate.edits) == (baseline.images, baseline.edits) and not partial
    unchanged = same_network and same_pictures and np.array_equal(candidate.share, baseline.share, equal_nan=True)
    of_drop = rules.measure == "drop"
    measure = "drop gained" if of_drop else "accuracy lost"
    compared = comparison_rows(candidate, baseline, facts, settings, "drop" if of_drop else "accuracy")
    (_, old), *_ = each_model(rules.baseline, ("model", "edit"), models=[other])
    lost = set(old["edit"]) - {row["edit"] for row in compared} - {SOURCE, *([ORIGINAL] if of_drop else [])}
    reason = "the baseline has predictions for it, but these predictions have none for the same pictures"
    rows = [limits.not_measured(model, edit, measure, rules.margin, reason) for edit in facts.sorted(lost)]
    for row in compared:
        if of_drop and row["edit"] == ORIGINAL:
            continue
        names = ("drop_difference", "low", "high") if of_drop else _ACCURACY_LOST
        ends = [row[name] if of_drop else -row[name] for name in names]
        checked = limits.check_row(
            {**row, "model": model}, measure, ends, rules.margin, verdict=PASS if unchanged else None
        )
        if unchanged:
            checked["reason"] = SAME_WEIGHTS
        elif of_drop:
            original = row["first_accuracy"] + row["first_drop"] / 100
            checked = limits.withheld(checked, limits.out_of_reach(original, chance_in(card), rules.margin))
        if overlap is not None and partial:
            checked["reason"] = f"{checked['reason']} ({overlap.brief})"
        rows.append(checked)
    return rows


def _network(card: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what a card says about what is computed: the weights alone do not tell `lite:0+flip` from `lite:0`."""
    origin = card.get("origin") or {}
    function = str(origin.get("function", "")).rpartition(":")[2]
    wrappers = str(card.get("spec") or card.get("model", "")).split("+")[1:]
    return card.get("weights_sha256"), origin.get("code_sha256"), function, wrappers, card.get("transform")


def junit_xml(checks: pl.DataFrame, remarks: tuple[str, ...] = ()) -> bytes:
    """Return the checks as JUnit XML, one test case each; an undecided or unmeasured check is `skipped`.

    remarks: about all checks, as properties of the suite. The reason of every check is its output.
    """
    verdicts = checks["verdict"].to_list()
    skipped = verdicts.count(CANNOT_TELL) + verdicts.count(NOT_MEASURED)
    counts = {"tests": len(verdicts), "failures": verdicts.count(FAIL), "errors": 0, "skipped": skipped}
    attributes = {"name": "unswayed check", **{name: str(count) for name, count in counts.items()}}
    suite = ElementTree.Element("testsuite", attributes)
    if remarks:
        properties = ElementTree.SubElement(suite, "properties")
        for remark in remarks:
            ElementTree.SubElement(properties, "property", name="remark", value=printable(remark))
    for row in checks.iter_rows(named=True):
        names = {"classname": printable(row["model"]), "name": printable(f"{row['edit']}: {row['measure']}")}
        case = ElementTree.SubElement(suite, "testcase", names)
        if row["verdict"] != PASS:
            message = printable(f"{row['verdict']}: {row['reason']}")
            ElementTree.SubElement(case, "failure" if row["verdict"] == FAIL else "skipped", message=message)
        ElementTree.SubElement(case, "system-out").text = printable(row["reason"])
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True) + b"\n"
