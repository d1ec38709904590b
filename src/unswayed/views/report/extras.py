"""Sections for other results than drops: ImageNet-X factors, RIVAL10 sensitivity, distribution checks."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from markupsafe import Markup

from unswayed.analyses import ANALYSES, table_facts
from unswayed.analyses.tables import analyze
from unswayed.errors import UserError
from unswayed.evaluation.predictions import polars_table
from unswayed.files.tables import Column
from unswayed.files.text_tables import read_csv
from unswayed.views.text import joined

from .distribution_tables import MOST_PANELS, score_histograms
from .figures_factors import MOST_MODELS, factor_profile
from .figures_sensitivity import MOST_CURVES, sensitivity_curve
from .findings import Findings
from .html_table import Cell, Line, sortable
from .section import Section, figure_block, paragraphs

_MOST_ROWS = 400


def factors_section(predictions: Path, findings: Findings) -> Section:
    """Return the ImageNet-X profile of predictions on ImageNet's validation images."""
    from unswayed.analyses.factors.study import Study, make_table

    errors = findings.named(make_table(Study(predictions), "errors"))
    models = errors["model"].unique(maintain_order=True).to_list()[:MOST_MODELS]
    figure = factor_profile(errors, models, findings.series)
    caption = "Error ratio of each factor of variation with 95 % intervals; in brackets the images that have it."
    body = joined(
        [
            paragraphs(
                "An error ratio of 2 means that the error rate on images with this factor is twice the average "
                "(ImageNet-X annotations of ImageNet's validation set)."
            ),
            figure_block(figure, "factors", caption, caption),
            frame_table("factors-table", "Error ratios by model and factor.", errors),
        ]
    )
    return Section("factors", "ImageNet-X profile", body, {"factor-profile": figure}, {"factors": errors})


def outside_sections(findings: Findings) -> list[Section]:
    """Return one section for each analysis of another installed package."""
    sections = []
    for name in (name for name in ANALYSES if not ANALYSES.is_own(name)):
        facts = table_facts(name)
        table = findings.named(analyze(findings.predictions, name, benchmark=findings.benchmark))
        note = facts.notes or ANALYSES.part(name).help if table.height else f"{facts.empty}."
        body = joined([paragraphs(note), frame_table(f"{name}-table", facts.title, table)])
        sections.append(Section(name, facts.title, body, {}, {name: table}))
    return sections


def sensitivity_section(folder: Path, findings: Findings) -> Section:
    """Return the section about relative foreground sensitivity, from the folder that `unswayed sensitivity` wrote."""
    from unswayed.evaluation.plausibility import sentences_in

    table = findings.named(sensitivity_table(folder))
    models = table["model"].unique(maintain_order=True).to_list()[:MOST_CURVES]
    figure = sensitivity_curve(table.filter(pl.col("model").is_in(models)), series=findings.series)
    counts = sorted(set(table["n"].to_list()))
    size = f"n = {counts[0]:,}" if len(counts) == 1 else f"n = {counts[0]:,} to {counts[-1]:,}"
    caption = f"Accuracy under noise and relative foreground sensitivity against the noise level; {size} pictures."
    body = joined(
        [
            paragraphs(
                *sentences_in(folder),
                "The relative foreground sensitivity (RFS) is 1 if only noise on the object lowers the accuracy, −1 if "
                "only noise on the background does, 0 if both lower it equally.",
            ),
            figure_block(figure, "sensitivity", caption, caption),
            frame_table("sensitivity-table", "Sensitivity by model, norm and level.", table),
        ]
    )
    return Section("sensitivity", "Sensitivity to noise", body, {"sensitivity": figure}, {"sensitivity": table})


def sensitivity_table(folder: Path) -> pl.DataFrame:
    """Return the table of relative foreground sensitivity in the folder of `unswayed sensitivity`."""
    path = folder / "rfs.csv"
    if not path.is_file():
        raise UserError(f"{folder} contains no rfs.csv", run=f"unswayed sensitivity SOURCE -m MODEL -o {folder}")
    table = polars_table(read_csv(path, _SENSITIVITY, required=list(_SENSITIVITY)))
    if table.is_empty():
        raise UserError(f"{path} contains no rows", run=f"unswayed sensitivity SOURCE -m MODEL -o {folder}")
    return table


def distribution_section(folder: Path, findings: Findings) -> Section:
    """Return the section about whether edited pictures still look like photographs, from the folder of
    `unswayed distribution`."""
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise UserError(
            f"{folder} contains no CSV table of distribution checks",
            run=f"unswayed distribution BENCH -m MODEL -o {folder}",
        )
    tables = {path.stem: findings.named(distribution_table(path)) for path in files}
    blocks: list[Markup] = []
    figures = {}
    if "verdicts" in tables:
        blocks.append(paragraphs(_DISTRIBUTION, *tables["verdicts"]["sentence"].to_list()[:MOST_SENTENCES]))
    if "histograms" in tables and tables["histograms"].height:
        table = tables["histograms"].filter(pl.col("model") == tables["histograms"]["model"][0])
        sets = table["set"].unique(maintain_order=True).to_list()[:MOST_PANELS]
        figures["distribution"] = figure = score_histograms(table, sets)
        caption = f"Scores of {table['model'][0]} on the edited pictures (line) and on the originals (gray)."
        blocks.append(figure_block(figure, "distribution", caption, caption))
    shown = {name: table for name, table in tables.items() if name not in ("verdicts", "histograms")}
    blocks += [frame_table(f"distribution-{number}", name, table) for number, (name, table) in enumerate(shown.items())]
    named = {f"distribution-{name}": table for name, table in tables.items()}
    return Section("distribution", "Distribution checks", joined(blocks), figures, named)


def distribution_table(path: Path) -> pl.DataFrame:
    """Return one of the tables that `unswayed distribution` wrote."""
    columns = _DISTRIBUTION_COLUMNS.get(path.stem, {})
    return polars_table(read_csv(path, {"model": Column("text"), **columns}, required=list(columns)))


_NAMES = {"model": Column("text", nulls=False)}
_SENSITIVITY = {
    **_NAMES,
    "norm": Column("text"),
    "n": Column("integer", nulls=False),
    **dict.fromkeys(
        ("level", "accuracy_background", "accuracy_foreground", "rfs", "rfs_low", "rfs_high"), Column("number")
    ),
}
_DISTRIBUTION_COLUMNS = {
    "verdicts": {"sentence": Column("text", nulls=False)},
    "histograms": {
        **_NAMES,
        **dict.fromkeys(("set", "score"), Column("text", nulls=False)),
        **dict.fromkeys(("low", "high", "share", "original_share"), Column("number", nulls=False)),
    },
}
_DISTRIBUTION = (
    "An AUROC of 0.5 says that a score cannot tell the edited pictures from the originals, 1 that it always can. A set "
    "is called out of distribution where the whole interval lies above the limit."
)
MOST_SENTENCES = 40


def frame_table(name: str, caption: str, frame: pl.DataFrame) -> Markup:
    """Return any frame as a sortable table; a long one is cut, and its caption says so."""
    numbers = frozenset(place for place, kind in enumerate(frame.dtypes) if kind.is_numeric())
    lines = [
        Line(
            [
                Cell(
                    _shown(value),
                    float(value) if place in numbers and value is not None else None,
                )
                for place, value in enumerate(row)
            ]
        )
        for row in frame.head(_MOST_ROWS).iter_rows()
    ]
    if frame.height > _MOST_ROWS:
        caption = f"{caption} The first {_MOST_ROWS} of {frame.height:,} rows; all with --assets."
    return sortable(name, caption, frame.columns, lines, numbers)


def _shown(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}".replace("-", "−") if isinstance(value, float) else str(value)
