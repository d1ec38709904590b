"""The tables of `unswayed analyze` for people: columns, titles, notes, and remarks about the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from unswayed.analyses import TableFacts, table_facts
from unswayed.analyses.drops.drop import differs, verdict_line, with_effect
from unswayed.analyses.drops.sweeps import levels_found
from unswayed.choices import WideMeasure
from unswayed.errors import UserError, unknown
from unswayed.evaluation.facts import AVERAGE, ORIGINAL, SOURCE, read_facts
from unswayed.evaluation.model_cards import Cards, read_cards, read_failures, sentences, suspicion_in, tasks_in
from unswayed.evaluation.predictions import each_model, model_names, overlap_of
from unswayed.labels import worded
from unswayed.views.tables import Cell, Column, Row, Table, format_table, interval_of
from unswayed.views.text import number, plural, probability

_RAW = "†"  # marks a raw number among those that are net of a control
_POINTS = "Accuracies in %, drops in points with intervals over photographs; net: relative to the edit's control"


def analysis_text(
    frame: pl.DataFrame,
    table: str,
    format: str,
    by: str | None = None,
    level: float = 0.95,
    remarks: Sequence[str] = (),
    instead: str = "",
    color: bool = False,
    cards: Cards | None = None,
) -> str:
    """Return the frame in one of the formats; csv and json with all columns, the others with the displayed ones.

    `table` is for a terminal of 80 columns: one block per model, and with `color` what is sure in color. remarks:
    sentences that a reader of the numbers must know; below the table in the formats for people. instead: what there
    is instead of a sweep, where the table is empty. cards: of the models, whose tasks have words of their own; blocks
    of suspicious models are marked.
    """
    shown = table_facts(table)
    if table == "drops":
        columns = (_compact_columns if format == "table" else _drop_columns)(frame, by, level)
        title, notes = _title(frame, by), _notes(frame, format == "table")
        frame = with_effect(frame) if format == "table" else frame
        if format == "table" and by is None and "models" not in frame.columns:
            title = f"Verdict: {verdict_line(frame)}.\n\n{title}"
    else:
        no_side = "side" not in frame.columns or frame["side"].fill_null("").eq("").all()
        names = [name for name in shown.columns.split() or frame.columns if name != "side" or not no_side]
        columns = [_column(name, shown, level) for name in names]
        none = f"{shown.empty}; {instead}." if instead else f"{shown.empty}."
        title, notes = shown.title, shown.notes if frame.height else none
    blocks = "model" if any(column.heading == "model" for column in columns) else None
    marks = {name: " (suspicious, see the note below)" for name, card in (cards or {}).items() if suspicion_in(card)}
    made = Table(frame, columns, title, notes, remarks, blocks, _style, marks)
    return _worded(made, cards).text(format, color)


# What is left out last where a terminal is too narrow: what a row is about, then its numbers.
_KEYS = ("attribute", "first", "second", "target")
_FIRST = ("level", "accuracy", "halfway", "half_lost", "met", "threshold", "drop", "net_drop", "interaction", "p_holm")


def _column(name: str, facts: TableFacts, level: float) -> Column:
    """Return a displayed column of a table: a column of its frame, or an interval, `low..high`."""
    low, dots, high = name.partition("..")
    digits = facts.digits.get(low, 2)
    scale = 100.0 if low in facts.percent else 1.0

    def ends(row: Row) -> str | None:
        if row[low] is None and row[high] is None:
            return None
        # An end beyond the levels of a sweep is not known.
        return " to ".join(number(None if row[end] is None else scale * row[end], digits) for end in (low, high))

    if dots:
        return Column(f"{low.removesuffix('low').replace('_', ' ')}{100 * level:g} %", ends, importance=4)
    important = 5 if name in _KEYS else 4 if name in _FIRST else None
    return Column(name, scale * pl.col(name) if name in facts.percent else name, digits, importance=important)


def _style(row: Row) -> str:
    """Return the style of a row: red for a drop beyond chance, green for a gain, faint for a white-box result."""
    if row.get("white_box"):
        return "dim"
    if not row.get("certain"):
        return ""
    return "red" if row["effect"] > 0 else "green"


_WHITE_BOX = "white-box: the edit was made to attack this model; left out of all models' averages."
_VALID = "valid: the drop on those pictures alone whose validity is 0.5 or more."
_HUMAN = Column(
    "human %",
    100 * pl.col("human_accuracy"),
    note="human: how often people could tell the object, the ceiling for a model.",
)
_PUBLISHED = Column("published", note="published: ImageNet-E (CVPR 2023), % for the original, points elsewhere.")


def _drop_columns(table: pl.DataFrame, by: str | None, level: float) -> list[Column]:
    """Return the columns of the drops for a document: everything that was measured."""
    columns = [Column(name) for name in ("model", "edit", by, "models", "n") if name in table.columns]
    columns += [
        Column("accuracy %", 100 * pl.col("accuracy")),
        Column("drop"),
        Column(f"{100 * level:g} %", interval_of("low", "high")),
        Column("relative %", "relative_drop"),
    ]
    if by is not None:
        columns.append(Column("shrunk", "shrunk_drop"))
    if _has(table, "net_drop"):
        columns += [Column("net", "net_drop"), Column(f"net {100 * level:g} %", interval_of("net_low", "net_high"))]
    if differs(table):
        columns += [Column("valid n", "valid_n", note=_VALID), Column("valid drop", "valid_drop")]
        columns.append(Column(f"valid {100 * level:g} %", interval_of("valid_low", "valid_high")))
    columns += [_HUMAN] if _has(table, "human_accuracy") else []
    columns.append(Column("p_holm"))
    if table["white_box"].any():
        yes = pl.when("white_box").then(pl.lit("yes")).otherwise(pl.lit(""))
        columns.append(Column("white-box", yes, note=_WHITE_BOX))
    return columns + ([_PUBLISHED, Column("of", "published_model")] if _has(table, "published") else [])


def _compact_columns(table: pl.DataFrame, by: str | None, level: float) -> list[Column]:
    """Return the columns of the drops for a terminal: the net drop with its interval and test, and the raw drop."""
    net = _has(table, "net_drop")
    p = pl.col("effect_p").map_elements(probability, return_dtype=pl.String)
    columns = [
        *(Column(name) for name in ("model", "edit", by, "n") if name is not None),
        Column(
            "net" if net else "drop",
            lambda row: f"{number(row['effect'], 1)}{_RAW if net and row['raw'] else ''}",
            number=True,
            importance=2,
            note=f"{_RAW} raw: the control was not evaluated." if net and with_effect(table)["raw"].any() else "",
        ),
        Column(f"{100 * level:g} %", interval_of("effect_low", "effect_high", 1), importance=1),
        Column(
            "p",
            pl.when("white_box").then(pl.lit("white-box")).otherwise(p),
            number=True,
            importance=1,
            note=_WHITE_BOX if table["white_box"].any() else "",
        ),
        *([Column("raw", "drop")] if net else []),
        *([Column("shrunk", "shrunk_drop")] if by else []),
        Column("acc. %", 100 * pl.col("accuracy")),
        *([Column("valid", "valid_drop", note=_VALID)] if differs(table) else []),
        *([_HUMAN] if _has(table, "human_accuracy") else []),
        *([_PUBLISHED] if _has(table, "published") else []),
    ]
    return [replace(column, digits=1) for column in columns]


def _has(table: pl.DataFrame, name: str) -> bool:
    return name in table.columns and bool(table[name].is_not_null().any())


def _title(frame: pl.DataFrame, by: str | None) -> str:
    models = frame["model"].n_unique()
    if "models" in frame.columns:
        members = max(frame["models"].to_list())  # the group of all models is always there
        return f"Dropped accuracy of {plural(models, 'group')} of models, {members} models in all"
    return f"Dropped accuracy of {plural(models, 'model')}" + (f" by {by}, worst first" if by else "")


def _notes(frame: pl.DataFrame, compact: bool) -> str:
    relative = "relative: the drop in % of the accuracy on the originals"
    tested = "raw: without it; p: of the first number, corrected over all edits (Holm), an average's by itself; a "
    tested += "drop is certain if its p is below 0.05 and its interval leaves out 0"
    notes = f"{_POINTS}; {tested if compact else relative}."
    averages = frame.drop_nulls("edits")
    if averages.height:
        counts = sorted(set(averages["edits"].to_list()))
        edits = "edit" if counts == [1] else "edits"
        notes += f" average: mean over {' or '.join(map(str, counts))} {edits}, controls left out."
    return notes


# Marks of a drop that differs from zero, by the p-value corrected over the table.
MARKS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


def wide_text(
    drops: pl.DataFrame,
    measure: WideMeasure,
    format: str,
    remarks: Sequence[str] = (),
    cards: Cards | None = None,
) -> str:
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
    table = Table(frame, [Column("model"), *map(column, names)], title, notes, remarks)
    return _worded(table, cards).text(format)


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
    rows = groups.filter(pl.col("model").str.starts_with(prefix))
    if rows.is_empty():
        names = {name.partition(": ")[0] for name in groups["model"] if ": " in name}
        raise unknown("column of the groups", column, sorted(names))
    texts = rows["model"].str.strip_prefix(prefix)
    numbers = texts.cast(pl.Float64, strict=False)
    wrong = texts.filter(numbers.is_null() | ~numbers.is_finite()).unique(maintain_order=True).to_list()
    if wrong:
        raise UserError(
            f"the column {column} of the groups holds {', '.join(wrong)}", allowed="a number for each model"
        )
    table = rows.with_columns(numbers.alias(column)).filter(pl.col("drop").is_not_null())
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


def remark_lines(
    predictions: str | Path,
    models: Sequence[str] | None = None,
    common: bool = False,
    other: str | Path | None = None,
) -> list[str]:
    """Return sentences that a reader of these models' numbers must know, each once: the suspicions and remarks in their
    cards, and how much is common.

    other: the folder of the last model's predictions, if it is another one.
    """
    chosen = list(models or model_names(predictions))
    parts = [(predictions, chosen)] if other is None else [(predictions, chosen[:-1]), (other, chosen[-1:])]
    lines = [line for folder, names in parts for line in sentences(read_cards(folder), names)]
    if common and len(chosen) > 1:
        known = [(name, folder) for folder, names in parts for name in names]
        calls = [(name if other is None else f"{name} in {folder}", folder, name) for name, folder in known]
        lines.append(f"Note: {overlap_of(calls)}.")
    return list(dict.fromkeys(lines))


def _worded(table: Table, cards: Cards | None) -> Table:
    """Return the table with the words for the tasks of the models, such as detection rate for accuracy."""
    words = partial(worded, tasks=frozenset(tasks_in(cards or {}).values()))
    columns = [
        replace(
            column,
            heading=words(column.heading),
            note=words(column.note),
            value=column.heading if column.value is None else column.value,
        )
        for column in table.columns
    ]
    return replace(table, columns=columns, title=words(table.title), notes=words(table.notes))


def swept(predictions: str | Path, benchmark: str | Path | None = None) -> str:
    """Return which levels the predictions have, for a table that needs more of them."""
    facts = read_facts(predictions, benchmark, common=True)
    edits = {edit for _, rows in each_model(predictions, ("model", "edit")) for edit in rows["edit"].unique()}
    return f"levels found: {levels_found(facts.sorted(edits), facts)}"


def moved_lines(predictions: str | Path) -> list[str]:
    """A line where the benchmark is not at the place that the cards name, which leaves its controls unknown."""
    return list(read_facts(predictions, common=True).absent)


def failure_lines(predictions: str | Path) -> list[str]:
    """Return a line for each model whose last evaluation failed, and what that means for its numbers."""
    means = {True: "its numbers are from an earlier evaluation", False: "it has no numbers"}
    return [
        f"the last evaluation of {model} failed with: {reason}; {means[earlier]}"
        for model, reason, earlier in read_failures(predictions)
    ]
