"""The tables of `unswayed compare` and `unswayed check`, whose rows end in a verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence

import polars as pl

from unswayed.analyses.drops.baseline_rows import SAME_WEIGHTS
from unswayed.analyses.drops.same_model import SameModel

from .formats import format_table, interval_cell, number_cell

_DIGITS = {"p_holm": 4}
_DIFFERENCES = {
    "accuracy": ("accuracy_difference", "accuracy_low", "accuracy_high"),
    "drop": ("drop_difference", "low", "high"),
    "net": ("net_difference", "net_low", "net_high"),
}


def comparison_text(
    table: pl.DataFrame, models: Sequence[str], format: str, measure: str = "drop", remarks: Sequence[str] = ()
) -> str:
    """Return the comparison of two models, or of all pairs of several, in one of the formats."""
    if format in ("csv", "json"):
        return format_table(table, format)
    difference, low, high = _DIFFERENCES[measure]
    shown = table.select(
        *(["first", "second"] if "first" in table.columns else []),
        "edit",
        "verdict",
        "n",
        (100 * pl.col("first_accuracy")).alias("first %"),
        (100 * pl.col("second_accuracy")).alias("second %"),
        pl.col("first_drop").alias("first drop"),
        pl.col("second_drop").alias("second drop"),
        pl.col("first_relative_drop").alias("first relative %"),
        pl.col("second_relative_drop").alias("second relative %"),
        pl.col(difference).alias("difference"),
        interval_cell(low, high).alias("95 %"),
        "p_holm",
    )
    compared = {"accuracy": "accuracy", "drop": "drop", "net": "net drop"}[measure]
    less = "positive if the first is more accurate" if measure == "accuracy" else "negative if the first drops less"
    notes = (
        f"difference: first {compared} minus second {compared} in points, paired over photographs; {less}. "
        "Relative drops: in % of the accuracy on the originals. p_holm: sign-flip test, corrected over the table; "
        "for the original, it compares the accuracies."
    )
    title = f"first: {models[0]}, second: {models[1]}" if "first" not in table.columns else "all pairs"
    title = f"{title}; by {compared}"
    return format_table(shown, format, digits=_DIGITS, title=title, notes=" ".join([notes, *remarks]))


def same_model_text(found: SameModel, models: Sequence[str], format: str) -> str:
    """Return the comparison of one model in two forms, and its answer as the last line."""
    if format == "json":
        return json.dumps({"answer": found.answer, "sentence": found.sentence, "edits": found.table.to_dicts()}) + "\n"
    if format == "csv":
        return format_table(found.table, format)
    shown = found.table.select(
        "edit",
        "n",
        (100 * pl.col("first_accuracy")).alias("first %"),
        (100 * pl.col("second_accuracy")).alias("second %"),
        (100 * pl.col("same")).alias("same class %"),
        "cost",
        interval_cell("low", "high").alias("90 %"),
        "p_holm",
        "verdict",
    )
    notes = (
        "cost: points that the second form loses, in accuracy on the originals and in drop on the edits, paired over "
        "photographs. 90 % interval within the margin: equivalent (two one-sided tests at 5 %). p_holm: sign-flip test "
        "for a difference, corrected over the table."
    )
    title = f"first: {models[0]}, second: {models[1]}; the same model?"
    return format_table(shown, format, digits=_DIGITS, title=title, notes=notes) + f"\n{found.sentence}\n"


def checks_text(checks: pl.DataFrame, overall: str, format: str = "table", remarks: Sequence[str] = ()) -> str:
    """Return the checks as text, failures first; below it the remarks and why checks were not measured."""
    if format in ("csv", "json"):
        return format_table(checks, format)
    rank = {"fail": 0, "not measured": 1, "cannot tell": 2, "pass": 3}
    ordered = checks.sort(pl.col("verdict").replace_strict(rank, return_dtype=pl.Int64), maintain_order=True)
    fine = pl.col("measure").str.starts_with("level")
    value, limit = (
        pl.when(fine).then(number_cell(name, 4)).otherwise(number_cell(name, 2)).alias(name)
        for name in ("value", "threshold")
    )
    spans = pl.when(fine).then(interval_cell("low", "high", 4)).otherwise(interval_cell("low", "high"))
    columns: list[str | pl.Expr] = ["verdict", "model", "edit", "measure", "n"]
    columns += [value, spans.alias("interval")]
    notes = "Values in points, accuracies in %, levels in the attribute's own unit."
    doubtful = checks.filter(verdict="cannot tell")
    if doubtful.height:
        notes += " more: about how many more photographs would decide with a power of 80 %, if the value stays."
    # The interval of a check does not explain these verdicts.
    told = checks.filter((pl.col("verdict") == "not measured") | (pl.col("reason") == SAME_WEIGHTS))
    reasons = [
        f"{model}, {', '.join(dict.fromkeys(edits))}: {reason}"
        for model, reason, edits in told.group_by("model", "reason", maintain_order=True).agg("edit").iter_rows()
    ]
    shown = ordered.select(*columns, limit, *(["more"] if doubtful.height else []))  # type: ignore[arg-type]
    notes = " ".join([notes, *(f"Note: {one}." for one in [*remarks, *reasons])])
    return format_table(shown, format, title=f"unswayed check: {overall}", notes=notes)
