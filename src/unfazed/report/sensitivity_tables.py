"""The tables and the curve of a folder of sensitivity results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from unfazed.analyses.sensitivity import alignment
from unfazed.analyses.sensitivity import foreground as measures
from unfazed.errors import UserError, unknown
from unfazed.files import write_bytes
from unfazed.probes.run import read_probe
from unfazed.probes.suspects import suspects

from .figures_factors import figure_bytes
from .figures_sensitivity import MOST_CURVES, sensitivity_curve

TABLES = ("rfs", "class", "group", "drops", "saliency", "answers", "edits", "suspects")
HEADINGS = {
    "accuracy_foreground": "acc. fg noise",
    "accuracy_background": "acc. bg noise",
    "rfs": "RFS",
    "rfs_low": "low",
    "rfs_high": "high",
    "irfs": "iRFS",
    "irfs_low": "low ",
    "irfs_high": "high ",
    "density_difference": "Δdensity",
    "average_precision": "AP",
}


def write_tables(
    folder: str | Path, slugs: Sequence[str], noise: bool, saliency: bool, groups: Path | None = None, draws: int = 1000
) -> dict[str, pl.DataFrame]:
    """Return every possible table by name; also write each as FOLDER/<name>.csv and the curve as FOLDER/rfs.png.

    noise, saliency: what was measured; groups: a CSV with the column model and one column per grouping.
    """
    folder = Path(folder)
    rows = read_probe(folder, "noise", slugs) if noise else None
    maps = read_probe(folder, "saliency", slugs) if saliency else None
    tables: dict[str, pl.DataFrame] = {}
    if rows is not None:
        tables["rfs"] = measures.sensitivity(rows, draws)
        tables["class"] = measures.sensitivity_by_class(rows, draws)
        tables["drops"] = measures.region_drops(rows, draws)
        if groups is not None:
            tables["group"] = measures.sensitivity_by_group(rows, read_model_groups(groups), draws)
        write_bytes(folder / "irfs.csv", measures.instance_sensitivity(rows).write_csv().encode())
    if maps is not None:
        tables["saliency"] = alignment.summary(maps)
        tables["answers"] = alignment.by_correctness(maps, draws)
        if maps["edit"].n_unique() > 1:
            tables["edits"] = alignment.by_edit(maps, draws)
    if rows is not None:
        tables["suspects"] = suspects(rows, maps)
    for name, table in tables.items():
        write_bytes(folder / f"{name}.csv", table.write_csv().encode())
    for name in ("rfs", "group"):
        _draw(folder, tables, name)
    return tables


def choose_table(tables: dict[str, pl.DataFrame], name: str | None) -> pl.DataFrame:
    """Return the table of that name, or if None the first existing one of group, rfs and saliency."""
    if name is None:
        return next(tables[one] for one in ("group", "rfs", "saliency") if one in tables)
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    if name not in tables:
        raise UserError(f"these results contain no table '{name}'", allowed=", ".join(tables))
    return tables[name]


def for_people(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with its levels as short text: 60, `all` for the row over all levels, `–` for none."""
    if "level" not in table.columns:
        return table
    rest = "all" if "rfs" in table.columns else None
    short = [rest if level is None else f"{level:g}" for level in table["level"]]
    return table.with_columns(pl.Series("level", short, dtype=pl.String))


def read_model_groups(path: Path) -> pl.DataFrame:
    """Return a CSV with the column model and one column per grouping (architecture, training, …), all as text."""
    try:
        return pl.read_csv(path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{path} cannot be read as a CSV of groups: {error}", allowed="model,GROUPING …") from None


def _draw(folder: Path, tables: dict[str, pl.DataFrame], name: str) -> None:
    """Draw FOLDER/rfs.png or, for each grouping, FOLDER/group-<grouping>.png; too many curves are not drawn."""
    if name not in tables:
        return
    parts = {"rfs": tables[name]} if name == "rfs" else _by_grouping(tables[name])
    for file, table in parts.items():
        column = "model" if name == "rfs" else "group"
        if table[column].n_unique() <= MOST_CURVES:
            write_bytes(folder / f"{file}.png", figure_bytes(sensitivity_curve(table, column), "png"))


def _by_grouping(table: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {f"group-{key[0]}": part for key, part in table.group_by("grouping", maintain_order=True)}
