"""Sections for other results than drops: ImageNet-X factors, sensitivity, distribution, repair, other analyses."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict

import polars as pl
from markupsafe import Markup

from unswayed.errors import UserError
from unswayed.evaluation.model_cards import sentences_in
from unswayed.files.records import read_object
from unswayed.files.tables import Column as StoredColumn
from unswayed.files.text_tables import read_csv
from unswayed.files.whole import Json
from unswayed.views.tables import Column, Table
from unswayed.views.text import interval, joined, sample_size

from .figures_sensitivity import MOST_HISTOGRAMS, score_histograms, sensitivity_curve
from .findings import Findings
from .section import MOST, Section, figure_block, paragraphs

_MOST_ROWS = 400


def factors_section(predictions: Path, findings: Findings) -> Section:
    """Return the ImageNet-X profile of predictions on ImageNet's validation images."""
    from unswayed.analyses.factors import Study, make_table

    from .figures_factors import factor_profile

    errors = findings.named(make_table(Study(predictions), "errors"))
    models = errors["model"].unique(maintain_order=True).to_list()[:MOST]
    figure = factor_profile(errors, models, findings.series)
    caption = "Error ratio of each factor of variation with 95 % intervals; in brackets the images that have it."
    body = joined(
        paragraphs(
            "An error ratio of 2 means that the error rate on images with this factor is twice the average "
            "(ImageNet-X annotations of ImageNet's validation set)."
        ),
        figure_block(figure, "factors", caption),
        frame_table("factors-table", "Error ratios by model and factor.", errors),
    )
    return Section("factors", "ImageNet-X profile", body, {"factor-profile": figure}, {"factors": errors})


def sensitivity_section(folder: Path, findings: Findings) -> Section:
    """Return the section about relative foreground sensitivity, from the folder that `unswayed sensitivity` wrote."""
    table = findings.named(sensitivity_table(folder))
    models = table["model"].unique(maintain_order=True).to_list()[:MOST]
    figure = sensitivity_curve(table.filter(pl.col("model").is_in(models)), series=findings.series)
    size = sample_size(table["n"])
    caption = f"Accuracy under noise and relative foreground sensitivity against the noise level; {size} pictures."
    body = joined(
        paragraphs(
            *sentences_in(folder),
            "The relative foreground sensitivity (RFS) is 1 if only noise on the object lowers the accuracy, −1 if "
            "only noise on the background does, 0 if both lower it equally.",
        ),
        figure_block(figure, "sensitivity", caption),
        frame_table("sensitivity-table", "Sensitivity by model, norm and level.", table),
    )
    return Section("sensitivity", "Sensitivity to noise", body, {"sensitivity": figure}, {"sensitivity": table})


def sensitivity_table(folder: Path) -> pl.DataFrame:
    """Return the table of relative foreground sensitivity in the folder of `unswayed sensitivity`."""
    path = folder / "rfs.csv"
    if not path.is_file():
        raise UserError(f"{folder} contains no rfs.csv", run=f"unswayed sensitivity SOURCE -m MODEL -o {folder}")
    table = pl.DataFrame(read_csv(path, _SENSITIVITY, required=list(_SENSITIVITY)))
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
        sets = table["set"].unique(maintain_order=True).to_list()[:MOST_HISTOGRAMS]
        figures["distribution"] = figure = score_histograms(table, sets)
        caption = f"Scores of {table['model'][0]} on each set (line) and on the reference (gray)."
        blocks.append(figure_block(figure, "distribution", caption))
    shown = {name: table for name, table in tables.items() if name not in ("verdicts", "histograms")}
    blocks += [frame_table(f"distribution-{number}", name, table) for number, (name, table) in enumerate(shown.items())]
    named = {f"distribution-{name}": table for name, table in tables.items()}
    return Section("distribution", "Distribution checks", joined(*blocks), figures, named)


def distribution_table(path: Path) -> pl.DataFrame:
    """Return one of the tables that `unswayed distribution` wrote."""
    columns = _DISTRIBUTION_COLUMNS.get(path.stem, {})
    return pl.DataFrame(read_csv(path, {"model": StoredColumn("text"), **columns}, required=list(columns)))


_NAMES = {"model": StoredColumn("text", nulls=False)}
_SENSITIVITY = {
    **_NAMES,
    "norm": StoredColumn("text"),
    "n": StoredColumn("integer", nulls=False),
    **dict.fromkeys(
        ("level", "accuracy_background", "accuracy_foreground", "rfs", "rfs_low", "rfs_high"), StoredColumn("number")
    ),
}
_DISTRIBUTION_COLUMNS = {
    "verdicts": {"sentence": StoredColumn("text", nulls=False)},
    "histograms": {
        **_NAMES,
        **dict.fromkeys(("set", "score"), StoredColumn("text", nulls=False)),
        **dict.fromkeys(("low", "high", "share", "reference_share"), StoredColumn("number", nulls=False)),
    },
}
_DISTRIBUTION = (
    "An AUROC of 0.5 says that a score cannot tell a set from the reference, 1 that it scores lower. A set is called "
    "out of distribution where the whole interval lies above the limit."
)
MOST_SENTENCES = 40


def frame_table(name: str, caption: str, frame: pl.DataFrame) -> Markup:
    """Return any frame as a sortable table; a long one is cut, and its caption says so."""
    columns = [Column(column, digits=".4g") for column in frame.columns]
    return Table(frame, columns, caption).html(name, most=_MOST_ROWS)


RESULT = "repair.json"
VERDICTS = {
    "better": "The repair was worth it",
    "worse": "The repair was not worth it",
    "cannot tell": "These photographs are too few to decide whether the repair was worth it",
}


class _Counts(TypedDict):
    train: int
    train_with_mask: int


class _Row(TypedDict, total=False):
    measure: str
    pictures: str
    n: int
    before: float | None
    control: float | None
    repaired: float | None
    difference: float | None
    low: float | None
    high: float | None


_KINDS = {
    "verdict": Literal["better", "worse", "cannot tell"],
    "reason": str,
    "model": str,
    "photographs": _Counts,
    "rows": list[_Row],
}


def repair_section(folder: Path, findings: Findings) -> Section:
    """The table of before and after that `unswayed repair` wrote into `folder`."""
    path = folder / RESULT
    if not path.is_file():
        raise UserError(f"{folder} holds no {RESULT}", run=f"unswayed repair SOURCE -m MODEL -o {folder}")
    result = read_object(path, _KINDS)
    frame = repair_table(result)
    counts = result["photographs"]
    columns = [
        *map(Column, ("measure", "pictures", "n")),
        *(Column(name, digits=1, number=True) for name in ("before", "control", "repaired")),
        Column("difference", digits="+.1f", number=True),
        Column("95 % interval", lambda row: interval(row["low"], row["high"], "+.1f")),
    ]
    body = joined(
        paragraphs(
            f"{VERDICTS[result['verdict']]}: {result['reason']}.",
            f"{result['model']} was fine-tuned twice on the same {counts['train']:,} photographs with the same "
            f"number of steps: plainly (the control) and with edits of the {counts['train_with_mask']:,} that have "
            "a mask (repaired). All values are points; the difference is repaired minus control, with its "
            "paired 95 % interval.",
        ),
        Table(frame, columns, "Before and after the repair.").html("repair-table"),
    )
    return Section("repair", "Before and after the repair", body, tables={"repair": frame})


def repair_table(result: Json) -> pl.DataFrame:
    """The rows of `repair.json` as a frame."""
    return pl.DataFrame(result["rows"], list(_Row.__annotations__), infer_schema_length=None)
