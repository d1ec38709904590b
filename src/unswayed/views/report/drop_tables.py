"""The tables of `unswayed analyze`: their displayed columns, titles and notes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import polars as pl

from unswayed.analyses import table_facts
from unswayed.analyses.drops.conditional import differs

from .formats import format_table, interval_cell, model_blocks
from .words import probability

_DIGITS = {"p_holm": 4, "level": 4}
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
    if format in ("csv", "json"):
        return format_table(frame, format)
    shown = table_facts(table)
    marks: dict[str, Any] = {"color": color, "suspicious": suspicious}
    if table == "drops":
        title, notes = _title(frame, by), " ".join([_notes(frame, format == "table"), *remarks])
        if format == "table":
            return model_blocks(_compact(frame, by, level), frame, digits=1, title=title, notes=notes, **marks)
        return format_table(for_people(frame, by, level), format, digits=_DIGITS, title=title, notes=notes)
    columns = [name for name in shown.columns.split() or frame.columns if name in frame.columns]
    none = f"{shown.empty}; {found}." if found else f"{shown.empty}."
    notes = " ".join([shown.notes if frame.height else none, *remarks])
    frame = frame.with_columns(pl.col(name) * 100 for name in shown.percent if name in frame.columns)
    chosen = frame.select(columns)
    if format == "table" and "model" in columns:
        return model_blocks(chosen, frame, digits=shown.digits, title=shown.title, notes=notes, **marks)
    return format_table(chosen, format, digits=shown.digits, title=shown.title, notes=notes)


def for_people(table: pl.DataFrame, by: str | None = None, level: float = 0.95) -> pl.DataFrame:
    """Return the drop table for display: percent, intervals as one cell, without columns that are empty."""
    columns = [pl.col("model"), pl.col("edit")]
    if by is not None:
        columns.append(pl.col(by))
    if "models" in table.columns:
        columns.append(pl.col("models"))
    columns += [
        pl.col("n"),
        (100 * pl.col("accuracy")).alias("accuracy %"),
        pl.col("drop"),
        interval_cell("low", "high").alias(f"{100 * level:g} %"),
        pl.col("relative_drop").alias("relative %"),
    ]
    if by is not None:
        columns.append(pl.col("shrunk_drop").alias("shrunk"))
    if table["net_drop"].is_not_null().any():
        columns += [
            pl.col("net_drop").alias("net"),
            interval_cell("net_low", "net_high").alias(f"net {100 * level:g} %"),
        ]
    if differs(table):
        valid = [pl.col("valid_n").alias("valid n"), pl.col("valid_drop").alias("valid drop")]
        columns += [*valid, interval_cell("valid_low", "valid_high").alias(f"valid {100 * level:g} %")]
    if "human_accuracy" in table.columns and table["human_accuracy"].is_not_null().any():
        columns.append((100 * pl.col("human_accuracy")).alias("human %"))
    columns.append(pl.col("p_holm"))
    if table["white_box"].any():
        columns.append(pl.when("white_box").then(pl.lit("yes")).otherwise(pl.lit("")).alias("white-box"))
    if "published" in table.columns and table["published"].is_not_null().any():
        columns += [pl.col("published"), pl.col("published_model").alias("of")]
    return table.select(columns)


def _compact(table: pl.DataFrame, by: str | None, level: float) -> pl.DataFrame:
    """Return the drop table for a terminal: the net drop with its interval and test, the raw drop beside it."""
    has_net = bool(table["net_drop"].is_not_null().any())
    first = ("net_drop", "net_low", "net_high", "net_p_holm") if has_net else ("drop", "low", "high", "p_holm")
    columns = [pl.col("model"), pl.col("edit"), *([pl.col(by)] if by else []), pl.col("n")]
    test = pl.col(first[3] if table[first[3]].is_not_null().any() else "p_holm")
    p = pl.when("white_box").then(pl.lit("white-box")).otherwise(test.map_elements(probability, return_dtype=pl.String))
    columns += [
        pl.col(first[0]).alias("net" if has_net else "drop"),
        interval_cell(first[1], first[2], 1).alias(f"{100 * level:g} %"),
        p.alias("p"),
    ]
    columns += [pl.col("drop").alias("raw")] if has_net else []
    columns += [pl.col("shrunk_drop").alias("shrunk")] if by else []
    columns.append((100 * pl.col("accuracy")).alias("acc. %"))
    if differs(table):
        columns.append(pl.col("valid_drop").alias("valid"))
    if "human_accuracy" in table.columns and table["human_accuracy"].is_not_null().any():
        columns.append((100 * pl.col("human_accuracy")).alias("human %"))
    if "published" in table.columns and table["published"].is_not_null().any():
        columns.append(pl.col("published"))
    return table.select(columns)


def _title(frame: pl.DataFrame, by: str | None) -> str:
    models = frame["model"].n_unique()
    if "models" in frame.columns:
        members = max(frame["models"].to_list())  # the group of all models is always there
        return f"Dropped accuracy of {models} group{'s' * (models != 1)} of models, {members} models in all"
    return f"Dropped accuracy of {models} model{'s' * (models != 1)}" + (f" by {by}, worst first" if by else "")


def _notes(frame: pl.DataFrame, compact: bool = False) -> str:
    relative = "relative: the drop in % of the accuracy on the originals"
    notes = [f"{_POINTS}; {'raw: without it; p: of the net drop, corrected (Holm)' if compact else relative}."]
    averages = frame.drop_nulls("edits")
    if averages.height:
        counts = sorted(set(averages["edits"].to_list()))
        edits = "edit" if counts == [1] else "edits"
        notes.append(f"average: mean over {' or '.join(map(str, counts))} {edits}, controls left out.")
    if differs(frame):
        notes.append("valid: on the pictures alone whose validity is 0.5 or more.")
    if "human_accuracy" in frame.columns:
        notes.append("human: how often people could tell the object, the ceiling for a model.")
    if frame["white_box"].any():
        notes.append("white-box: the edit was made to attack this model; left out of all models' averages.")
    if "published" in frame.columns and frame["published"].is_not_null().any():
        notes.append("published: ImageNet-E (CVPR 2023), % for the original, points elsewhere.")
    return " ".join(notes)
