"""What `unswayed sensitivity` and `unswayed distribution` write for people: tables, figures, galleries of pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from unswayed.analyses import alignment
from unswayed.analyses import distribution as distributions
from unswayed.analyses import sensitivity as measures
from unswayed.analyses.drops.groups import read_model_groups
from unswayed.choices import OneLine, takes
from unswayed.errors import UserError, check_known
from unswayed.evaluation.distribution import SCHEMA as SCORES_SCHEMA
from unswayed.evaluation.distribution import run_distribution
from unswayed.evaluation.facts import ORIGINAL
from unswayed.evaluation.measures import check_measure, suspects
from unswayed.evaluation.probes import read_probe
from unswayed.evaluation.settings import DistributionSettings, SensitivitySettings
from unswayed.evaluation.study import SCHEMAS, run_study
from unswayed.files.text_tables import csv_text
from unswayed.files.whole import read_json, write_bytes
from unswayed.jobs.monitor import View

from .report import figures_sensitivity as figures
from .report.pictures import outlined, overlay, picture_sheet
from .report.section import figure_bytes
from .text import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unswayed.evaluation.study import Channels, Regions, Study


_IN_ROW = 6  # pictures of a cluster in the gallery as one picture
TABLES = (
    "rfs", "class", "group", "drops", "irfs", "saliency", "saliency-class", "saliency-group", "answers", "edits",
    "suspects",
)  # fmt: skip
HEADINGS = {
    "accuracy_foreground": "fg noise %",
    "accuracy_background": "bg noise %",
    "clean_accuracy": "clean %",
    "accuracy": "acc. %",
    "rfs": "RFS",
    "rfs_low": "low",
    "rfs_high": "high",
    "irfs": "iRFS",
    "irfs_low": "low ",
    "irfs_high": "high ",
    "density_difference": "Δdensity",
    "average_precision": "AP",
}


def write_tables(study: Study, settings: SensitivitySettings) -> dict[str, pl.DataFrame]:
    """Return every possible table by name; also write each as FOLDER/<name>.csv and its figures as FOLDER/*.png."""
    groups = None if settings.groups is None else read_model_groups(settings.groups)
    draws, convention, by = settings.resamples, settings.convention, settings.class_by
    rows, maps = (
        read_probe(study.folder, kind, models, SCHEMAS[kind]) if models else None
        for kind, models in (("noise", study.noise), ("saliency", study.saliency))
    )
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
    _write(study.folder, tables)
    for name, figure in _figures(tables, settings.measure, study.classes):
        write_bytes(study.folder / f"{name}.png", figure_bytes(figure, "png"))
    return tables


def _write(folder: Path, tables: Mapping[str, pl.DataFrame]) -> None:
    for name, table in tables.items():
        write_bytes(folder / f"{name}.csv", csv_text(table).encode())


def _figures(tables: Mapping[str, pl.DataFrame], measure: str, classes: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    """Yield the name and the figure of every picture that the tables allow."""
    if "rfs" in tables:
        yield "rfs", figures.sensitivity_curve(tables["rfs"])
        yield "noise-scatter", figures.noise_scatter(tables["rfs"], tables["class"], classes)
        yield "rfs-bars", figures.rfs_bars(tables["rfs"])
        yield "irfs", figures.irfs_densities(tables["irfs"], classes)
        yield "irfs-scatter", figures.probability_scatter(tables["irfs"], classes)
        attributes = figures.attribute_map(tables["drops"])
        if attributes is not None:
            yield "attributes", attributes
    if "group" in tables:
        for (grouping,), part in tables["group"].group_by("grouping", maintain_order=True):
            yield f"group-{grouping}", figures.sensitivity_curve(part, "group")
    if "saliency-class" in tables:
        yield "saliency-class", figures.alignment_map(tables["saliency-class"], measure, classes)
    if "saliency-group" in tables:
        for (grouping,), part in tables["saliency-group"].group_by("grouping", maintain_order=True):
            yield f"saliency-group-{grouping}", figures.alignment_bars(part)


def choose_table(tables: dict[str, pl.DataFrame], name: str | None) -> pl.DataFrame:
    """Return the table of that name, or if None the first existing one of group, rfs and saliency."""
    if name is None:
        return next(tables[kind] for kind in ("group", "rfs", "saliency") if kind in tables)
    check_known("table", [name], TABLES)
    if name not in tables:
        raise UserError(f"these results contain no table '{name}'", allowed=", ".join(tables))
    return tables[name]


def shares_of(table: pl.DataFrame) -> list[str]:
    """Return the columns that people read in percent or points: accuracies, and drops with their intervals."""
    drops = ("drop", "low", "high") if "drop" in table.columns else ()
    return [name for name in table.columns if "accuracy" in name or name.startswith("probability_") or name in drops]


def for_people(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with accuracies in percent, drops in points, and its levels as short text: 60, `all` for the row
    over all levels, `–` for none."""
    table = table.with_columns(pl.col(shares_of(table)) * 100)
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
    settings: DistributionSettings | None = None,
) -> dict[str, pl.DataFrame]:
    """FOLDER/{verdicts, scores, histograms, background, fid, adaptation}.csv, and the tables by these names."""
    settings = settings or DistributionSettings()
    reference, level = settings.reference or ORIGINAL, settings.level
    auroc = distributions.score_table(scores, reference, resamples=settings.resamples, level=level)
    tables = {
        "verdicts": distributions.verdict_table(auroc, settings.out_above, reference),
        "scores": auroc,
        "histograms": distributions.histogram_table(scores, reference),
        "background": distributions.background_table(scores, level=level),
        "fid": distributions.distance_table(features, reference) if features is not None else pl.DataFrame(),
        "adaptation": distributions.adaptation_table(Path(folder) / "answers", adapted, level=level),
    }
    tables = {name: table for name, table in tables.items() if table.height}
    _write(Path(folder), tables)
    return tables


def write_study_pictures(study: Study) -> list[str]:
    """Write FOLDER/spurious/<model>/gallery.html and .png, FOLDER/channels/<model>.png; return a line per gallery.

    Names of clusters are read from names.json next to the gallery.
    """
    lines = []
    for slug, regions in study.regions.items():
        folder = study.folder / "spurious" / slug
        names = read_json(folder / "names.json") if (folder / "names.json").is_file() else {}
        write_bytes(folder / "gallery.html", spurious_page(regions, names).encode())
        write_bytes(folder / "gallery.png", figure_bytes(spurious_sheet(regions, names), "png"))
        clusters = len({region.cluster for region in regions.regions})
        lines.append(f"{folder / 'gallery.html'}: {len(regions.regions)} pictures in {clusters} rows")
    for slug, channels in study.channels.items():
        write_bytes(study.folder / "channels" / f"{slug}.png", figure_bytes(channel_sheet(channels), "png"))
    return lines


def channel_sheet(channels: Channels) -> Figure:
    """Draw one row per attribute: its best channel's activation on the pictures where it is most active."""
    rows, names = [], []
    for row, examples in zip(channels.best.iter_rows(named=True), channels.examples, strict=True):
        pictures = [outlined(overlay(example.image, example.heat), example.mask) for example in examples]
        rows.append((pictures, [example.source_id for example in examples]))
        score = "" if row["auroc"] is None else f"\nAUROC {row['auroc']:.2f}"
        names.append(f"{row['attribute']}\nchannel {row['channel']}\nAP {row['average_precision']:.2f}{score}")
    return picture_sheet(rows, names)


def spurious_page(regions: Regions, names: Mapping[str, str]) -> str:
    """Return one self-contained HTML page: one section per cluster with its pictures and a field for its name.

    names: cluster number -> name, as the page's own button saves them (names.json).
    """
    return render("spurious.html", model=regions.model, clusters=_clusters(regions), names=names)


def spurious_sheet(regions: Regions, names: Mapping[str, str]) -> Figure:
    """Draw the gallery: one row per cluster with its first regions and its name at the left."""
    rows, titles = [], []
    for number, shown in _clusters(regions).items():
        texts, pictures = zip(*shown[:_IN_ROW], strict=True)
        rows.append((pictures, texts))
        titles.append(names.get(str(number)) or (f"cluster {number}" if number >= 0 else "no cluster"))
    return picture_sheet(rows, titles)


def _clusters(regions: Regions) -> dict[int, list[tuple[str, np.ndarray]]]:
    """Return a caption and a picture of each region by the number of its cluster."""
    import cv2

    clusters: dict[int, list[tuple[str, np.ndarray]]] = {}
    for region in regions.regions:
        seen = "" if region.predicted == region.label else f", seen as {regions.classes[region.predicted]}"
        caption = f"{region.source_id}{seen}: {region.share:.0%} of the heat outside the object"
        top, left, bottom, right = region.box
        picture, line = overlay(region.image, region.heat), max(1, len(region.image) // 110)
        cv2.rectangle(picture, (left, top), (right - 1, bottom - 1), (255, 255, 255), line)
        clusters.setdefault(region.cluster, []).append((caption, picture))
    return clusters


@dataclass(frozen=True, eq=False, repr=False)
class StudyTables(OneLine):
    """The tables of a study by name, and what a reader must know.

    remarks: sentences about the models; notes: what could not be made; failures: models and pictures that could not be
    used, with the reason; unfinished: what the last of several shards will write.
    """

    folder: Path
    tables: dict[str, pl.DataFrame]
    remarks: list[str]
    notes: list[str]
    failures: dict[str, str]
    unfinished: list[str]


@takes(SensitivitySettings)
def sensitivity(
    source: str,
    models: Sequence[str],
    output: str | Path,
    settings: SensitivitySettings,
    *,
    show: Callable[[View], None] | None = None,
) -> StudyTables:
    """Measure whether models use the object or its background, with RIVAL10's measures on any source with masks.

    source: also a benchmark's folder, for which only heat maps are measured. The rows, tables and figures are written
    to `output`; the same call resumes. The fields of settings are also keywords: `sensitivity("sample", ["lite:0"],
    "results", saliency="layercam")`.
    """
    check_measure(settings.measure)
    study = run_study(source, models, output, settings, show=show)
    tables, notes = {}, study.notes
    if study.noise or study.saliency:
        tables = write_tables(study, settings)
        notes = [*notes, *write_study_pictures(study)]
    return StudyTables(study.folder, tables, study.remarks, notes, study.failures, study.unfinished)


@takes(DistributionSettings)
def distribution(
    benchmark: str | Path,
    models: Sequence[str],
    output: str | Path,
    settings: DistributionSettings,
    *,
    show: Callable[[View], None] | None = None,
) -> StudyTables:
    """Measure whether the edits stay in the distribution of the photographs; the tables are also written to `output`.

    The table `verdicts` has one sentence for each edit. The same call resumes. The fields of settings are also
    keywords: `distribution("bench", ["lite:0"], "results", fid=False)`.
    """
    study = run_distribution(benchmark, models, output, settings, show=show)
    tables = {}
    if not study.unfinished:
        tables = write_distribution(
            output,
            read_probe(output, "scores", study.slugs, SCORES_SCHEMA),
            read_probe(output, "inception") if study.features else None,
            study.adapted,
            settings,
        )
    return StudyTables(study.folder, tables, [], study.notes, study.failures, study.unfinished)
