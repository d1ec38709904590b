"""The tables of `unswayed sensitivity` and `unswayed distribution` as CSV files, with their figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from unswayed.analyses import alignment
from unswayed.analyses import sensitivity as measures
from unswayed.analyses.distribution import (
    LIMIT,
    adaptation_table,
    background_table,
    distance_table,
    histogram_table,
    score_table,
    verdict_table,
)
from unswayed.analyses.drops.groups import read_model_groups
from unswayed.choices import ClassColumn, Convention
from unswayed.errors import UserError, unknown
from unswayed.evaluation.measures import suspects
from unswayed.evaluation.run import read_probe
from unswayed.files.text_tables import csv_text
from unswayed.files.whole import write_bytes

from .figures import figure_bytes
from .figures_sensitivity import (
    alignment_bars,
    alignment_map,
    attribute_map,
    irfs_densities,
    noise_scatter,
    sensitivity_curve,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TABLES = (
    "rfs", "class", "group", "drops", "irfs", "saliency", "saliency-class", "saliency-group", "answers", "edits",
    "suspects",
)  # fmt: skip
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


@dataclass(frozen=True)
class TableSettings:
    """How tables are made from the rows.

    groups: a CSV with the column model and one column per grouping; draws: bootstrap resamples; convention: of iRFS and
    of drops; class_by: the classes of the saliency tables and of the suspects; measure: the measure of heat maps that
    ranks suspects and is drawn; classes: the names of the classes.
    """

    groups: Path | None = None
    draws: int = 1000
    convention: Convention = "default"
    class_by: ClassColumn = "label"
    measure: str = "precision"
    classes: Sequence[str] = ()


def write_tables(
    folder: str | Path, noise: Sequence[str], saliency: Sequence[str], settings: TableSettings = TableSettings()
) -> dict[str, pl.DataFrame]:
    """Return every possible table by name; also write each as FOLDER/<name>.csv and its figures as FOLDER/*.png.

    noise, saliency: the file names of the models with these results.
    """
    folder = Path(folder)
    rows = read_probe(folder, "noise", noise) if noise else None
    maps = read_probe(folder, "saliency", saliency) if saliency else None
    groups = None if settings.groups is None else read_model_groups(settings.groups)
    draws, convention, by = settings.draws, settings.convention, settings.class_by
    tables: dict[str, pl.DataFrame] = {}
    if rows is not None:
        tables["rfs"] = measures.sensitivity(rows, draws, convention=convention)
        tables["class"] = measures.sensitivity_by_class(rows, draws, convention=convention)
        tables["drops"] = measures.region_drops(rows, draws, convention=convention)
        tables["irfs"] = measures.instance_sensitivity(rows, convention)
        if groups is not None:
            tables["group"] = measures.sensitivity_by_group(rows, groups, draws, convention=convention)
    if maps is not None:
        tables["saliency"] = alignment.summary(maps)
        tables["saliency-class"] = alignment.by_class(maps, by)
        if groups is not None:
            tables["saliency-group"] = alignment.by_group(maps, groups, by)
        tables["answers"] = alignment.by_correctness(maps, draws)
        if maps["edit"].n_unique() > 1:
            tables["edits"] = alignment.by_edit(maps, draws)
    if rows is not None:
        tables["suspects"] = suspects(rows, maps, by=by, measure=settings.measure)
    for name, table in tables.items():
        write_bytes(folder / f"{name}.csv", csv_text(table).encode())
    for name, figure in _figures(tables, settings):
        write_bytes(folder / f"{name}.png", figure_bytes(figure, "png"))
    return tables


def _figures(tables: dict[str, pl.DataFrame], settings: TableSettings) -> Iterator[tuple[str, Figure]]:
    """Yield the name and the figure of every picture that the tables allow."""
    if "rfs" in tables:
        yield "rfs", sensitivity_curve(tables["rfs"])
        yield "noise-scatter", noise_scatter(tables["rfs"], tables["class"], settings.classes)
        yield "irfs", irfs_densities(tables["irfs"], settings.classes)
        attributes = attribute_map(tables["drops"])
        if attributes is not None:
            yield "attributes", attributes
    for (grouping,), part in _groupings(tables.get("group")):
        yield f"group-{grouping}", sensitivity_curve(part, "group")
    if "saliency-class" in tables:
        yield "saliency-class", alignment_map(tables["saliency-class"], settings.measure, settings.classes)
    for (grouping,), part in _groupings(tables.get("saliency-group")):
        yield f"saliency-group-{grouping}", alignment_bars(part)


def _groupings(table: pl.DataFrame | None) -> Iterator[tuple[tuple[object, ...], pl.DataFrame]]:
    return iter(()) if table is None else iter(table.group_by("grouping", maintain_order=True))


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


def write_distribution(
    folder: str | Path,
    scores: pl.DataFrame,
    features: pl.DataFrame | None,
    adapted: Sequence[tuple[str, str]],
    *,
    limit: float = LIMIT,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, pl.DataFrame]:
    """FOLDER/{verdicts, scores, histograms, background, fid, adaptation}.csv, and the tables by these names."""
    found = score_table(scores, resamples=resamples, level=level, seed=seed)
    tables = {
        "verdicts": verdict_table(found, limit),
        "scores": found,
        "histograms": histogram_table(scores),
        "background": background_table(scores, level=level, seed=seed),
        "fid": distance_table(features) if features is not None else pl.DataFrame(),
        "adaptation": adaptation_table(Path(folder) / "answers", adapted, level=level, seed=seed),
    }
    tables = {name: table for name, table in tables.items() if table.height}
    for name, table in tables.items():
        write_bytes(Path(folder) / f"{name}.csv", csv_text(table).encode())
    return tables
