"""A gate for a release: limits of drops and accuracies, a baseline that a model must not be worse than, and verdicts.

A check passes or fails only where its whole interval lies on one side of the threshold; else it cannot tell. What the
predictions do not hold is not measured, which is never a pass.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import polars as pl

from unfazed.analyses.columns import schema
from unfazed.analyses.statistics.intervals import Settings
from unfazed.analyses.statistics.power import photographs_to_tell
from unfazed.errors import UserError, unknown
from unfazed.predictions.facts import ORIGINAL, SOURCE, Facts, read_facts
from unfazed.predictions.frames import Predictions, common_predictions, each_model, model_names, read_cards

from .compare import compared, read_model, read_pair
from .curves import sweeps
from .drop import dropped_accuracy
from .outcomes import Outcomes
from .rules import Rules, read_rules
from .thresholds import threshold_bounds

Verdict = Literal["pass", "fail", "cannot tell", "not measured"]
PASS: Verdict = "pass"
FAIL: Verdict = "fail"
CANNOT_TELL: Verdict = "cannot tell"
NOT_MEASURED: Verdict = "not measured"
EXITS = {PASS: 0, FAIL: 1, CANNOT_TELL: 3, NOT_MEASURED: 3}


@dataclass(frozen=True, eq=False)
class Checked:
    """What a gate found: the verdict over all checks, and one row per check (columns: `check_predictions`)."""

    verdict: Verdict
    checks: pl.DataFrame

    @property
    def passed(self) -> bool:
        """Whether every check passes; a check that cannot tell does not."""
        return self.verdict == PASS


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
    """Whether the models may be released: `unfazed check` in Python.

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
    checks = check_predictions(predictions, rules, common=common, resamples=resamples, seed=seed)
    return Checked(verdict(checks), checks)


def check_predictions(
    predictions: Predictions,
    rules: Rules,
    *,
    facts: Facts | None = None,
    common: bool = False,
    resamples: int = 1000,
    seed: int = 0,
) -> pl.DataFrame:
    """One row per check: model, edit, measure, n, value, low, high, threshold, verdict, more and reason.

    value, low, high and threshold are points (percent for accuracy). Measures: `drop` at most, `accuracy` at least,
    `accuracy lost` and `drop gained` against the baseline at most. more: about how many further photographs would tell,
    where the verdict is `cannot tell`. An edit that a rule or the baseline names and the predictions lack is
    `not measured`. common: where models or the baseline come from different benchmarks, use the pictures they share.
    """
    names = model_names(predictions)
    for name in rules.models:
        if name not in names:
            raise unknown("model", name, names)
    chosen = [name for name in names if not rules.models or name in rules.models]
    if facts is None:
        facts = read_facts(predictions, models=chosen, common=common)
    judged = common_predictions(predictions, chosen) if common and len(chosen) > 1 else predictions
    rows: list[dict[str, Any]] = []
    if rules.max_drop or rules.min_accuracy:
        table = dropped_accuracy(judged, models=chosen, facts=facts, level=rules.level, resamples=resamples, seed=seed)
        known = {*table["edit"], *facts.order}
        for model in chosen:
            rows += _threshold_rows(model, table.filter(model=model), rules, known)
    if rules.min_threshold:
        for model in chosen:
            rows += _sweep_rows(read_model(judged, model), rules, facts, Settings(resamples, rules.level, seed))
    if rules.baseline is not None:
        settings = Settings(resamples, rules.level, seed)
        pairs = _pairs(chosen, model_names(rules.baseline), bool(rules.models))
        for model, other in pairs:
            rows += _baseline_rows(predictions, model, other, rules, facts, settings, common)
        alone = [name for name in chosen if name not in dict(pairs)]
        rows += [
            _not_measured(name, "all", "baseline", rules.margin, "the baseline lacks this model") for name in alone
        ]
    rows = [_with_advice(row, rules.level) for row in rows]
    return pl.DataFrame(rows, schema=_SCHEMA, infer_schema_length=None)


def verdict(checks: pl.DataFrame) -> Verdict:
    """The verdict over all checks: fail if one fails, else not measured or cannot tell if one is so, else pass."""
    found = set(checks["verdict"])
    return next((one for one in (FAIL, NOT_MEASURED, CANNOT_TELL) if one in found), PASS)


def junit_xml(checks: pl.DataFrame, name: str = "unfazed check") -> bytes:
    """Return the checks as JUnit XML, one test case each; an undecided or unmeasured check is `skipped`."""
    found = checks["verdict"].to_list()
    suite = ElementTree.Element(
        "testsuite",
        name=name,
        tests=str(len(found)),
        failures=str(found.count(FAIL)),
        errors="0",
        skipped=str(found.count(CANNOT_TELL) + found.count(NOT_MEASURED)),
    )
    for row in checks.iter_rows(named=True):
        case = ElementTree.SubElement(
            suite, "testcase", classname=_printable(row["model"]), name=_printable(f"{row['edit']}: {row['measure']}")
        )
        if row["verdict"] != PASS:
            kind = "failure" if row["verdict"] == FAIL else "skipped"
            ElementTree.SubElement(case, kind, message=_printable(f"{row['verdict']}: {row['reason']}"))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True) + b"\n"


def judge(low: float, high: float, at_most: float) -> Verdict:
    """The verdict on a value that must be at most `at_most`, known to lie between low and high.

    >>> judge(1, 3, at_most=4), judge(5, 7, at_most=4), judge(3, 5, at_most=4)
    ('pass', 'fail', 'cannot tell')
    """
    return PASS if high <= at_most else FAIL if low > at_most else CANNOT_TELL


def _threshold_rows(model: str, table: pl.DataFrame, rules: Rules, known: set[str]) -> list[dict[str, Any]]:
    """One row per limit; known: the edits of the benchmark and of all models, whether this model has them or not."""
    by_edit = {row["edit"]: row for row in table.iter_rows(named=True)}
    dropping = [edit for edit, row in by_edit.items() if row["drop"] is not None]
    measured = [edit for edit, row in by_edit.items() if row["accuracy_low"] is not None]
    rows = []
    lacking = "these predictions do not contain it"
    known = known - set(by_edit) - {ORIGINAL, SOURCE}
    for edit, points in _expanded(rules.max_drop, dropping, known):
        if edit not in dropping:
            rows.append(_not_measured(model, edit, "drop", points, lacking))
            continue
        row = by_edit[edit]
        found = row["drop"], row["low"], row["high"]
        rows.append(_row(row, "drop", *found, points, judge(row["low"], row["high"], points), "at most"))
    for edit, percent in _expanded(rules.min_accuracy, measured, known):
        if edit not in measured:
            rows.append(_not_measured(model, edit, "accuracy", percent, lacking))
            continue
        row = by_edit[edit]
        found = tuple(100 * row[name] for name in ("accuracy", "accuracy_low", "accuracy_high"))
        rows.append(_row(row, "accuracy", *found, percent, judge(-found[2], -found[1], -percent), "at least"))
    return rows


def _sweep_rows(found: Outcomes, rules: Rules, facts: Facts, settings: Settings) -> list[dict[str, Any]]:
    """One row per attribute of `min_threshold`: the accuracy must be kept from the easy end to the wanted level."""
    there = {one.attribute + (f" {one.side}" if one.side else ""): one for one in sweeps(list(found.edits), facts)}
    rows = []
    for attribute, (wanted, percent) in rules.min_threshold.items():
        if attribute not in there:
            raise unknown("sweep of at least three levels", attribute, there)
        sweep = there[attribute]
        if not sweep.levels[0] <= wanted <= sweep.levels[-1]:
            levels = f"{sweep.levels[0]:g} to {sweep.levels[-1]:g}"
            raise UserError(f"the wanted level of {attribute} is {wanted:g}", allowed=f"the levels swept, {levels}")
        value, low, high, rising = threshold_bounds(found, sweep, percent, settings)
        result = judge(low, high, wanted) if rising else judge(-high, -low, -wanted)
        n = int(max((found.runs_of(edit) > 0).sum() for edit in sweep.edits))
        row = _row(
            {"model": found.model, "edit": attribute, "n": n}, f"level with {percent:g} %", value, low, high, wanted,
            result, "at most" if rising else "at least",
        )  # fmt: skip
        rows.append(row)
    return rows


def _baseline_rows(
    predictions: Predictions,
    model: str,
    other: str,
    rules: Rules,
    facts: Facts,
    settings: Settings,
    common: bool,
) -> list[dict[str, Any]]:
    """One row per edit of the baseline: how much worse the model is on it, or that it was not measured."""
    assert rules.baseline is not None
    candidate, baseline = read_pair(predictions, model, rules.baseline, other, common)
    old_cards = read_cards(rules.baseline)
    hashes = [cards.get(name, {}).get("weights_sha256") for cards, name in ((facts.cards, model), (old_cards, other))]
    same_weights = hashes[0] is not None and hashes[0] == hashes[1]
    rows = []
    found = compared(candidate, baseline, facts, settings, "drop" if rules.measure == "drop" else "accuracy")
    lost = _edits_of(rules.baseline, other) - {row["edit"] for row in found} - {SOURCE}
    measure = "accuracy lost" if rules.measure == "accuracy" else "drop gained"
    for edit in facts.sorted(lost - ({ORIGINAL} if rules.measure == "drop" else set())):
        reason = "the baseline has predictions for it, but these predictions have none for the same pictures"
        rows.append(_not_measured(model, edit, measure, rules.margin, reason))
    for row in found:
        if rules.measure == "accuracy":
            value, low, high = (-row[name] for name in ("accuracy_difference", "accuracy_high", "accuracy_low"))
        elif row["edit"] == ORIGINAL:
            continue
        else:
            value, low, high = (row[name] for name in ("drop_difference", "low", "high"))
        result = judge(low, high, rules.margin)
        # The weights and so the predictions are the same: no test is needed.
        unchanged = same_weights and value == 0 and row["p_value"] == 1.0
        entry = {"model": model, "edit": row["edit"], "n": row["n"]}
        out = _row(entry, measure, value, low, high, rules.margin, PASS if unchanged else result, "at most")
        if unchanged:
            out["reason"] = "the same weights give the same predictions"
        rows.append(out)
    return rows


def _edits_of(predictions: Predictions, model: str) -> set[str]:
    (_, rows), *_ = each_model(predictions, ("model", "edit"), models=[model])
    return set(rows["edit"])


def _not_measured(model: str, edit: str, measure: str, limit: float, why: str) -> dict[str, Any]:
    """Return the row of a check that was not measured."""
    row = {"model": model, "edit": edit, "measure": measure, "n": 0, "threshold": limit}
    return row | {"verdict": NOT_MEASURED, "reason": f"not measured: {why}"}


def _row(
    source: Mapping[str, Any],
    measure: str,
    value: float,
    low: float,
    high: float,
    limit: float,
    verdict: Verdict,
    must: str,
) -> dict[str, Any]:
    unit = "%" if measure == "accuracy" else "" if measure.startswith("level") else "points"
    where = {PASS: "is within the limit,", FAIL: "is beyond the limit,", CANNOT_TELL: "contains the limit,"}[verdict]
    digits = 4 if measure.startswith("level") else 2
    shown = f"{value:.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f})".replace("  ", " ")
    reason = f"{shown} of n = {source['n']:,} {where} {must} {limit:g} {unit}".rstrip()
    return {
        "model": source["model"],
        "edit": source["edit"],
        "measure": measure,
        "n": source["n"],
        "value": value,
        "low": low,
        "high": high,
        "threshold": limit,
        "verdict": verdict,
        "reason": reason,
    }


def _with_advice(row: dict[str, Any], level: float) -> dict[str, Any]:
    """Return the row with the number of further photographs that would decide, if it is undecided."""
    if row["verdict"] != CANNOT_TELL:
        return row
    needed = photographs_to_tell(row["value"], row["low"], row["high"], row["n"], row["threshold"], level)
    if needed is None:
        advice = "the value is so close to the limit that no feasible number of photographs would decide"
        return row | {"reason": f"{row['reason']}; {advice}"}
    more = max(needed - row["n"], 1)
    advice = f"about {more:,} more photographs would decide with a power of 80 %, if the value stays the same"
    return row | {"more": more, "reason": f"{row['reason']}; {advice}"}


def _expanded(limits: Mapping[str, float], edits: Sequence[str], known: set[str]) -> list[tuple[str, float]]:
    """Return (edit, limit) with patterns expanded; an edit's own limit overrides a pattern's.

    edits: the measured ones; known: edits of the benchmark that a limit may name although they were not measured.
    """
    found: dict[str, float] = {}
    for pattern, limit in limits.items():
        everything = [*edits, *sorted(known - set(edits))]
        matching = fnmatch.filter(everything, pattern) if any(one in pattern for one in "*?[") else []
        for edit in matching:
            if edit not in limits:
                found[edit] = limit
        if not matching:
            if pattern not in edits and pattern not in known:
                raise unknown("edit", pattern, edits)
            found[pattern] = limit
    return list(found.items())


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


def _printable(text: str) -> str:
    """Return text without the control characters that XML does not allow."""
    return "".join(one if one.isprintable() else " " for one in text)


_SCHEMA = schema("model edit measure n value low high threshold verdict more reason")
