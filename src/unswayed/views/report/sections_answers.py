"""The sections about single answers: how they change under each edit, calibration, and drops by superclass."""

from __future__ import annotations

import polars as pl
from markupsafe import Markup

from unswayed.views.tables import Cell, Column, Row, Table
from unswayed.views.text import interval, joined, percent, plural, points, tag

from .findings import LEAST_OF_GROUP, Findings
from .section import Section, filtered, matrix_cell, paragraphs, render

_PAIRS = 15


# What an edit can do to an answer, by the names of the style sheet and the script.
KINDS = {
    "kept": "stays right",
    "lost": "right → wrong",
    "blamed": "right → wrong, wrong in the control already",
    "gained": "wrong → right",
    "wrong": "stays wrong",
}


def answers_section(findings: Findings) -> Section | None:
    """Return how the answers change under each edit, the frequent mistakes, and calibration; None without edits."""
    counts = findings.flips.counts
    if counts.is_empty():
        return None
    place = {name: number for number, name in enumerate(findings.models)}
    order = {edit: number for number, edit in enumerate(findings.edits)}
    counts = counts.sort(
        pl.col("model").replace_strict(place), pl.col("edit").replace_strict(order, default=len(order))
    )
    right = findings.drops.select("model", "edit", "accuracy")
    calibrated = (
        counts.join(right, on=["model", "edit"], maintain_order="left")
        .drop_nulls(["accuracy", "confidence"])
        .with_columns(gap=100 * (pl.col("confidence") - pl.col("accuracy")))
    )
    model = Column("model", lambda row: Cell(row["model"], title=findings.spec(row["model"])))
    changes = [model, Column("edit"), Column("n"), *_change_columns()]
    gaps = [
        model,
        Column("edit"),
        Column("accuracy, %", 100 * pl.col("accuracy"), 1),
        Column("confidence, %", 100 * pl.col("confidence"), 1),
        Column("gap, points", "gap", "+.1f"),
        Column("calibration error, %", 100 * pl.col("calibration_error"), 1),
    ]
    body = [
        paragraphs(_blame_words(findings)),
        tag(
            "p", *(joined([tag("span", class_=f"key {kind}"), words]) for kind, words in KINDS.items()), class_="legend"
        ),
        filtered("answers-table", "rows"),
        Table(counts, changes, "How the answers change.").html("answers-table", data=("model", "edit")),
        tag("h3", "Most frequent mistakes"),
        _pairs(findings),
        tag("h3", "Calibration under each edit"),
        paragraphs(
            "The gap is the mean confidence minus the accuracy: positive if the model is too sure. The calibration "
            "error is the mean distance of both over 15 bins of confidence."
        ),
        filtered("calibration-table", "rows"),
        Table(calibrated, gaps, "Confidence and accuracy, in %.").html("calibration-table", data=("model", "edit")),
    ]
    tables = {"answers": counts, "mistakes": _named_pairs(findings)}
    return Section("answers", "How the answers change", joined(body), tables=tables)


def _blame_words(findings: Findings) -> str:
    counts = findings.changes
    flips, controlled, wrong, near, gained = (
        int(counts[name].sum()) for name in ("flips", "controlled", "control_wrong", "near", "gained")
    )
    words = f"{plural(flips, 'prediction')} turn from right to wrong and {gained:,} from wrong to right."
    if controlled:
        words += f" {percent(wrong / controlled, 0)} of the first, where a control exists, are wrong in the control "
        words += "already: the rendering is to blame for them, not the change."
    if flips and "superclass" in findings.groups.columns:
        words += f" {percent(near / flips, 0)} of the wrong answers are in the superclass of the true class."
    return words


def _shares(row: Row) -> dict[str, float]:
    """Return the share of each kind of change in a row of counts."""
    n = max(row["n"], 1)
    return {
        "kept": (row["right"] - row["flips"]) / n,
        "lost": (row["flips"] - row["control_wrong"]) / n,
        "blamed": row["control_wrong"] / n,
        "gained": row["gained"] / n,
        "wrong": (row["n"] - row["right"] - row["gained"]) / n,
    }


def _change_columns() -> list[Column]:
    """Return a bar of the changes and a column for the share of each kind."""

    def bar(row: Row) -> Markup:
        parts = (tag("span", class_=name, style=f"width: {100 * share:.1f}%") for name, share in _shares(row).items())
        return tag("span", *parts, class_="stack", aria_hidden="true")

    n = pl.max_horizontal("n", 1)
    wrong_in_control = 100 * pl.when(pl.col("controlled") > 0).then(pl.col("control_wrong") / pl.col("controlled"))
    return [
        Column("answers", bar),
        Column("stay right, %", lambda row: 100 * _shares(row)["kept"], 1, True),
        Column("right → wrong, %", 100 * pl.col("flips") / n, 1),
        Column("of these wrong in the control already, %", wrong_in_control, 1),
        Column("wrong → right, %", lambda row: 100 * _shares(row)["gained"], 1, True),
        Column("stay wrong, %", lambda row: 100 * _shares(row)["wrong"], 1, True),
    ]


def _named_pairs(findings: Findings) -> pl.DataFrame:
    names = pl.col("label", "predicted").map_elements(findings.class_name, return_dtype=pl.String)
    return findings.flips.answers.with_columns(names).rename({"label": "class", "predicted": "answer"})


def _pairs(findings: Findings) -> Markup:
    table = _named_pairs(findings)
    caption = f"The {min(_PAIRS, table.height)} most frequent of {table.height:,} pairs, over all models and edits."
    columns = [
        Column("true class", "class"),
        Column("answer under the edit", "answer"),
        Column("flips"),
        Column("of these wrong in the control already", "control_wrong"),
    ]
    return Table(table.head(_PAIRS), columns, caption).html("mistakes-table")


def groups_section(findings: Findings) -> Section | None:
    """Return the drops by superclass (by class if the classes are not ImageNet's) and edit, averaged over models; None
    if no group has enough photographs."""
    table = findings.groups
    kind = table.columns[0]
    if table.is_empty():
        return None
    names = table.group_by(kind).agg(pl.col("n").max()).sort("n", kind, descending=[True, False])
    edits = [edit for edit in findings.edits if edit in set(table["edit"])]
    largest = max(1.0, *table["drop"].abs())
    cells = {}
    for row in table.iter_rows(named=True):
        label = f"{points(row['drop'])} points, {interval(row['low'], row['high'])}, n = {row['n']:,}"
        ends = (row["low"], row["high"])
        cells[row[kind], row["edit"]] = matrix_cell(row["edit"], row["drop"], ends, largest, label)
    rows = [
        {"name": name, "n": n, "cells": [cells.get((name, edit)) for edit in edits]} for name, n in names.iter_rows()
    ]
    words = (
        f"Points of accuracy lost net of the control, averaged over models, for every {kind} with at least "
        f"{LEAST_OF_GROUP} photographs; hatched where the 95 % interval contains 0."
    )
    body = joined([paragraphs(words), render("groups.html", kind=kind, edits=edits, rows=rows)])
    return Section("groups", f"Drop by {kind}", body, tables={"groups": table})
