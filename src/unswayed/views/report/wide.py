"""Dropped accuracy as papers print it: one row per model and one column per edit, or along a number of the models."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from unswayed.choices import WideMeasure
from unswayed.errors import UserError, unknown
from unswayed.evaluation.facts import AVERAGE, ORIGINAL, SOURCE
from unswayed.views.tables import Cell, Column, Row, Table, format_table
from unswayed.views.text import number

# Marks of a drop that differs from zero, by the p-value corrected over the table.
MARKS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


def wide_text(drops: pl.DataFrame, measure: WideMeasure, format: str, remarks: Sequence[str] = ()) -> str:
    """Return the drop table as text with one row per model and one column per edit.

    Accuracy on the originals in percent, then drops in points (or accuracies in percent), the average last; the best
    of each column in bold. csv and json hold the numbers, and each edit's corrected p-value in a column of its own.
    """
    frame = wide_table(drops, measure)
    if format in ("csv", "json"):
        tested = drops.filter(pl.col("p_holm").is_not_null())
        values = tested.pivot("edit", index="model", values="p_holm", maintain_order=True)
        named = values.rename({edit: f"{edit} p_holm" for edit in values.columns if edit != "model"})
        return format_table(frame.join(named, on="model", how="left", maintain_order="left"), format)
    names = [name for name in frame.columns if name != "model"]
    attacked = {(row["model"], row["edit"]) for row in drops.filter("white_box").iter_rows(named=True)}
    tests = {(row["model"], row["edit"]): row["p_holm"] for row in drops.iter_rows(named=True)}

    def column(name: str) -> Column:
        most = measure == "accuracy" or name == ORIGINAL
        best = _best(frame, name, most, attacked) if frame.height > 1 else set()

        def cell(row: Row) -> Cell:
            model, value = row["model"], row[name]
            return Cell(number(value) + _mark(tests.get((model, name))), strong=model in best)

        return Column(name, cell, number=True)

    what = "drops in points" if measure == "drop" else "accuracies in %"
    notes = f"original: accuracy in %; then {what}; {AVERAGE}: mean over the edits that are no controls. "
    notes += "Best of each column " + ("in brackets. " if format == "table" else "in bold. ")
    notes += "Drop different from zero, corrected over the table: * p < 0.05, ** p < 0.01, *** p < 0.001."
    if attacked:
        notes += " The white-box results of " + ", ".join(sorted({model for model, _ in attacked})) + " are never best."
    title = "Dropped accuracy by model and edit" if measure == "drop" else "Accuracy by model and edit"
    return Table(frame, [Column("model"), *map(column, names)], title, notes, remarks).text(format)


def wide_table(drops: pl.DataFrame, measure: WideMeasure = "drop") -> pl.DataFrame:
    """Return one row per model: `original` in percent, then each edit's drop in points, or accuracy in percent."""
    shown = drops.filter(pl.col("edit") != SOURCE)
    value = 100 * pl.col("accuracy")
    if measure == "drop":
        value = pl.when(pl.col("edit") == ORIGINAL).then(value).otherwise(pl.col("drop"))
    wide = shown.with_columns(value=value).pivot("edit", index="model", values="value", maintain_order=True)
    last = [AVERAGE] if AVERAGE in wide.columns else []
    return wide.select(*(name for name in wide.columns if name not in last), *last)


def along(groups: pl.DataFrame, column: str, edits: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the drops of groups along a column of numbers, such as the training budget, one row per number and edit.

    groups: the drop table of the groups file; edits: by default the average alone, or all edits if there is none.
    """
    prefix = f"{column}: "
    found = groups.filter(pl.col("model").str.starts_with(prefix))
    if found.is_empty():
        names = {name.partition(": ")[0] for name in groups["model"] if ": " in name}
        raise unknown("column of the groups", column, sorted(names))
    texts = found["model"].str.strip_prefix(prefix)
    numbers = texts.cast(pl.Float64, strict=False)
    wrong = texts.filter(numbers.is_null() | ~numbers.is_finite()).unique(maintain_order=True).to_list()
    if wrong:
        raise UserError(
            f"the column {column} of the groups holds {', '.join(wrong)}", allowed="a number for each model"
        )
    table = found.with_columns(numbers.alias(column)).filter(pl.col("drop").is_not_null())
    chosen = edits or ([AVERAGE] if AVERAGE in set(table["edit"]) else None)
    if chosen is not None:
        table = table.filter(pl.col("edit").is_in(list(chosen)))
    columns = [column, "edit", "models", "n", "accuracy", "drop", "low", "high"]
    return table.select(columns).sort(column, maintain_order=True)


def _best(frame: pl.DataFrame, name: str, most: bool, attacked: set[tuple[str, str]]) -> set[str]:
    """Return the models with the best value of a column, ties included; a model that the edit attacks is never best."""
    values = {
        model: round(value, 2)
        for model, value in frame.select("model", name).iter_rows()
        if value is not None and (model, name) not in attacked
    }
    best = (max if most else min)(values.values(), default=None)
    return {model for model, value in values.items() if value == best}


def _mark(p_value: float | None) -> str:
    return "" if p_value is None else next((mark for limit, mark in MARKS if p_value < limit), "")
