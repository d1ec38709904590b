"""The tables of `unswayed compare` and `unswayed check`, whose rows end in a verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import polars as pl

from unswayed.analyses.drops.compare import SameModel
from unswayed.analyses.drops.gate import SAME_WEIGHTS, GateResult
from unswayed.analyses.flips import worst_flips
from unswayed.errors import UserError
from unswayed.evaluation.facts import Facts, read_facts
from unswayed.views.tables import Column, Row, Table, interval_of
from unswayed.views.text import interval, number, safe

# What is compared, and the columns of its difference and the interval.
_MEASURES = {
    "accuracy": ("accuracy", "accuracy_difference", "accuracy_low", "accuracy_high"),
    "drop": ("drop", "drop_difference", "low", "high"),
    "net": ("net drop", "net_difference", "net_low", "net_high"),
}


def comparison_text(
    table: pl.DataFrame, models: Sequence[str], format: str, measure: str = "drop", remarks: Sequence[str] = ()
) -> str:
    """Return the comparison of two models, or of all pairs of several, in one of the formats."""
    compared, difference, low, high = _MEASURES[measure]
    several = "first" in table.columns
    first, second = ("A", "B") if several else _short(models)
    verdict = pl.col("verdict").str.replace_all("first", first, literal=True)
    columns = [
        *([Column("first"), Column("second")] if several and format != "table" else []),
        Column("edit"),
        Column("verdict", verdict.str.replace_all("second", second, literal=True)),
        Column("n", importance=1),
        *_of_both("%", "accuracy", (first, second), format, 100, importance=1),
        *_of_both("drop", "drop", (first, second), format),
        *_of_both("relative %", "relative_drop", (first, second), format),
        Column("difference", difference, 1, importance=3),
        Column("95 %", interval_of(low, high, 1), importance=3),
        Column("p_holm", importance=2),
    ]
    less = "more accurate" if measure == "accuracy" else "drops less"
    notes = (
        f"difference: {compared} of {first} minus {compared} of {second} in points, paired over photographs; "
        f"{'positive' if measure == 'accuracy' else 'negative'} if {first} {'is ' * (less != 'drops less')}{less}. "
        "Relative drops: in % of the accuracy on the originals. p_holm: sign-flip test, corrected over the table; "
        "for the original, it compares the accuracies."
    )
    legend = "" if several or [first, second] == list(models) else f" ({first}: {models[0]}, {second}: {models[1]})"
    title = f"{'All pairs of models' if several else f'{first} against {second}{legend}'}; by {compared}"
    if several and format == "table":
        pair = pl.format("A: {}, B: {}", "first", "second")
        return Table(table.with_columns(pair=pair), columns, title, notes, remarks, "pair").text(format)
    return Table(table, columns, title, notes, remarks).text(format)


def _of_both(
    what: str, column: str, names: tuple[str, str], format: str, scale: float = 1.0, importance: int = 0
) -> list[Column]:
    """The values of both models: two columns; in a terminal one, so that none is left out without the other."""
    first, second = (f"{order}_{column}" for order in ("first", "second"))
    if format != "table":
        return [
            Column(f"{name} {what}", scale * pl.col(key), 1) for name, key in zip(names, (first, second), strict=True)
        ]

    def values(row: Row) -> str:
        return " / ".join(number(None if row[key] is None else scale * row[key], 1) for key in (first, second))

    return [Column(f"{' / '.join(names)} {what}", values, number=True, importance=importance)]


def _short(models: Sequence[str]) -> tuple[str, str]:
    """Two names that fit into headings: the models' own, or A and B for long ones."""
    return (models[0], models[1]) if max(map(len, models)) <= 12 else ("A", "B")


def same_model_text(comparison: SameModel, models: Sequence[str], format: str) -> str:
    """Return the comparison of one model in two forms, and its answer as the last line."""
    if format == "json":
        record = {"answer": comparison.answer, "sentence": comparison.sentence, "edits": comparison.table.to_dicts()}
        return json.dumps(record) + "\n"
    first, second = _short(models)
    columns = [
        Column("edit"),
        Column("n", importance=1),
        Column(f"{first} %", 100 * pl.col("first_accuracy")),
        Column(f"{second} %", 100 * pl.col("second_accuracy")),
        Column("same class %", 100 * pl.col("same")),
        Column("cost"),
        Column("90 %", interval_of("low", "high")),
        Column("p_holm"),
        Column("verdict"),
    ]
    notes = (
        f"cost: points that the second form ({second}) loses, in accuracy on the originals and in drop on the edits, "
        "paired over photographs. 90 % interval within the margin: equivalent (two one-sided tests at 5 %). p_holm: "
        "sign-flip test for a difference, corrected over the table."
    )
    title = f"{models[0]} against {models[1]}; the same model?"
    text = Table(comparison.table, columns, title, notes).text(format)
    return text if format == "csv" else f"{text}\n{safe(comparison.sentence, format)}\n"


def checks_text(checks: pl.DataFrame, overall: str, format: str = "table", remarks: Sequence[str] = ()) -> str:
    """Return the checks as text, failures first; below it the remarks and why checks were not measured."""
    if format in ("csv", "json"):
        return Table(checks).text(format)

    def digits(row: Row) -> int:
        return 4 if row["measure"].startswith("level") else 2

    note = "more: about how many more photographs would decide with a power of 80 %, if the value stays."
    undecided = checks.filter(verdict="cannot tell")
    # Where only unsure masks leave a check undecided, more photographs would not help.
    more = undecided.filter(~pl.col("reason").str.contains("; look at these masks"))["more"].to_list()
    unsure = bool(undecided["reason"].str.contains("mend them").any())
    if undecided.height and None not in more:
        needed = [f"about {max(more):,} more photographs"] if more else []
        overall += f"; {' and '.join([*needed, *(['mended masks'] if unsure else [])])} would decide"
    close = undecided.filter(pl.col("reason").str.contains("so close to the limit"))["edit"]
    if at_limit := sorted(set(close)):
        overall += f"; {', '.join(at_limit)}: too close to the limit for any number of photographs"
    columns = [
        *map(Column, ("model", "edit", "measure", "verdict")),
        Column("n", importance=-1),
        Column("value", lambda row: number(row["value"], f".{digits(row)}f")),
        Column("interval", lambda row: interval(row["low"], row["high"], f".{digits(row)}f")),
        Column("limit", lambda row: number(row["threshold"], f".{digits(row)}f")),
        *([Column("more", importance=1, note=note)] if undecided.height else []),
    ]
    # The interval of a check does not explain these verdicts.
    explained = checks.filter((pl.col("verdict") == "not measured") | (pl.col("reason") == SAME_WEIGHTS))
    reasons = [
        f"{model}, {', '.join(dict.fromkeys(edits))}: {reason}"
        for model, reason, edits in explained.group_by("model", "reason", maintain_order=True).agg("edit").iter_rows()
    ]
    if unsure:
        reasons.append("automatic masks that are unsure widen the intervals by their share; `unswayed review BENCH`")
    notes = "Values in points, accuracies in %, levels in the attribute's own unit."
    rank = {"fail": 0, "not measured": 1, "cannot tell": 2, "pass": 3}
    ordered = checks.sort(pl.col("verdict").replace_strict(rank, return_dtype=pl.Int64), maintain_order=True)
    lines = [f"Note: {line}." for line in [*remarks, *reasons]]
    return Table(ordered, columns, f"unswayed check: {overall}", notes, lines, "model").text(format)


_SIGNS = {"pass": "✅", "fail": "❌", "cannot tell": "❔", "not measured": "❔"}


def check_markdown(result: GateResult, predictions: str | Path) -> str:
    """Return the verdict as a heading, the table of checks, and the three worst flips of what was checked."""
    checks, verdict = result.checks, result.verdict
    counts = ", ".join(f"{count} {name}" for name, count in checks["verdict"].value_counts(sort=True).rows())
    lines = [f"## {_SIGNS[verdict]} unswayed check: {verdict}", "", f"{checks.height} checks: {counts}.", ""]
    lines += [checks_text(checks, verdict, "markdown", result.remarks).strip(), ""]
    flips = worst_flips(predictions, list(dict.fromkeys(checks["model"])), _edits_to_show(checks))
    if flips:
        try:
            facts = read_facts(predictions)
        except UserError:  # the cards contradict each other: classes are shown by their numbers
            facts = Facts()
        columns = [
            Column("photograph", "source_id"),
            *map(Column, ("edit", "model")),
            Column("class", lambda row: facts.class_name(row["label"])),
            Column(
                "predicted after the edit",
                lambda row: f"{facts.class_name(row['after'])} ({row['after_probability']:.0%})",
            ),
        ]
        table = Table(pl.DataFrame([asdict(flip) for flip in flips], infer_schema_length=None), columns)
        lines += ["### The worst flips", "", table.text("markdown")]
    return "\n".join(lines)


def _edits_to_show(checks: pl.DataFrame) -> list[str] | None:
    """Return the edits to look for flips in: those that fail, else those undecided, else all that were checked."""
    for verdict in ("fail", "cannot tell", "pass"):
        checked = list(dict.fromkeys(checks.filter(verdict=verdict)["edit"]))
        if checked:
            return [edit for edit in checked if edit not in ("original", "average", "all")] or None
    return None
