"""The tables of `unswayed distribution` as CSV files that the report reads, and its histograms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from unswayed.analyses.distribution import (
    LIMIT,
    adaptation_table,
    background_table,
    distance_table,
    histogram_table,
    score_table,
    verdict_table,
)
from unswayed.evaluation.facts import ORIGINAL
from unswayed.files.text_tables import csv_text
from unswayed.files.whole import write_bytes

from .palette import COLORS, QUIET, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS = 8
_TITLES = {"energy": "Energy", "gradnorm": "GradNorm"}


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


def score_histograms(table: pl.DataFrame, sets: Sequence[str]) -> Figure:
    """Histograms of the scores of each set over those of the originals, a panel for each set and score.

    table: of `histogram_table`, of one model; sets: at most eight.
    """
    scores = [one for one in _TITLES if one in table["score"].to_list()]
    figure = new_figure(3.6 * len(scores) + 0.6, 0.5 + 1.5 * len(sets))
    panels = figure.subplots(len(sets), len(scores), squeeze=False)
    for line, name in zip(panels, sets, strict=True):
        for axes, score in zip(line, scores, strict=True):
            part = table.filter((pl.col("set") == name) & (pl.col("score") == score)).sort("low")
            edges = [*part["low"].to_list(), *part["high"].to_list()[-1:]]
            if not edges:
                axes.set_visible(False)
                continue
            axes.stairs(part["original_share"].to_list(), edges, fill=True, color="#dddddd", label=ORIGINAL)
            axes.stairs(part["share"].to_list(), edges, color=COLORS[0], linewidth=1.5, label="edited")
            axes.set_title(f"{name}: {_TITLES[score]}", fontsize=9, loc="left")
            axes.set_yticks([])
            axes.tick_params(labelsize=8, color=QUIET)
            axes.spines[["top", "right", "left"]].set_visible(False)
    panels[0][0].legend(frameon=False, fontsize=8)
    return figure
