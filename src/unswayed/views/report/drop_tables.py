"""The tables of `unswayed analyze`: their displayed columns, titles and notes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import polars as pl

from unswayed.analyses import table_facts
from unswayed.analyses.drops.drop import differs
from unswayed.views.tables import Column, Row, Table, interval_of
from unswayed.views.text import plural, probability

_POINTS = "Accuracies in %, drops in points with intervals over photographs; net: relative to the edit's control"


def analysis_text(
    frame: pl.DataFrame,
    table: str,
    format: str,
    by: str | None = None,
    level: float = 0.95,
    remarks: Sequence[str] = (),
    found: str = "",
    color: bool = False,
    suspicious: Collection[str] = (),
) -> str:
    """Return the frame in one of the formats; csv and json with all columns, the others with the displayed ones.

    `table` is for a terminal of 80 columns: one block per model, and with `color` what is sure in color. remarks:
    sentences that a reader of the numbers must know; below the table in the formats for people. found: what there is
    instead of a sweep, where the table is empty. suspicious: models whose blocks are marked.
    """
    shown = table_facts(table)
    if table == "drops":
        columns = (_compact_columns if format == "table" else _drop_columns)(frame, by, level)
        title, notes = _title(frame, by), _notes(frame, format == "table")
    else:
        columns = [
            Column(name, 100 * pl.col(name) if name in shown.percent else name, shown.digits.get(name, 2))
            for name in shown.columns.split() or frame.columns
            if name in frame.columns
        ]
        none = f"{shown.empty}; {found}." if found else f"{shown.empty}."
        title, notes = shown.title, shown.notes if frame.height else none
    blocks = "model" if any(column.heading == "model" for column in columns) else None
    marks = dict.fromkeys(suspicious, " (suspicious, see the note below)")
    return Table(frame, columns, title, notes, remarks, blocks, _style, marks).text(format, color)


def _style(row: Row) -> str:
    """Return the style of a row: red for a drop beyond chance, green for a gain, faint for a white-box result."""
    net = row.get("net_p_holm") is not None
    p, drop = row.get("net_p_holm" if net else "p_holm"), row.get("net_drop" if net else "drop")
    if row.get("white_box"):
        return "dim"
    if p is None or drop is None or p >= 0.05:
        return ""
    return "red" if drop > 0 else "green"


_WHITE_BOX = "white-box: the edit was made to attack this model; left out of all models' averages."
_VALID = "valid: on the pictures alone whose validity is 0.5 or more."
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
    net = "net_" if _has(table, "net_drop") else ""
    tested = f"{net}p_holm" if _has(table, f"{net}p_holm") else "p_holm"
    p = pl.col(tested).map_elements(probability, return_dtype=pl.String)
    columns = [
        *(Column(name) for name in ("model", "edit", by, "n") if name is not None),
        Column("net" if net else "drop", f"{net}drop", importance=2),
        Column(f"{100 * level:g} %", interval_of(f"{net}low", f"{net}high", 1), importance=1),
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
    notes = f"{_POINTS}; {'raw: without it; p: of the net drop, corrected (Holm)' if compact else relative}."
    averages = frame.drop_nulls("edits")
    if averages.height:
        counts = sorted(set(averages["edits"].to_list()))
        edits = "edit" if counts == [1] else "edits"
        notes += f" average: mean over {' or '.join(map(str, counts))} {edits}, controls left out."
    return notes
