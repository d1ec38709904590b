"""A heat map of a small table: one cell per row and column, with its number in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from .palette import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEXT_CELLS = 700  # more cells than this are drawn without numbers


def heat_map(
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    *,
    colors: str = "RdBu",
    around_zero: bool = True,
    most: float = np.inf,
    decimals: int = 1,
    marked: np.ndarray | None = None,
) -> Figure:
    """Draw `values` (rows, columns), NaN for an empty cell; `label` explains the colors.

    around_zero: the colors are symmetrical around 0, otherwise they span the values; beyond `most` they stay the
    same. marked: (rows, columns) bool,
    cells whose number is bold with an asterisk.
    """
    size = (2.4 + 0.5 * len(columns), 1.9 + max(0.26, 0.45 - 0.012 * len(rows)) * len(rows))
    figure = new_figure(*size)
    axes = figure.subplots()
    shown = values[np.isfinite(values)]
    high = min(most, float(np.abs(shown).max() if around_zero else shown.max())) if shown.size else 1.0
    low = -high if around_zero or not shown.size else float(shown.min())
    picture = axes.imshow(values, cmap=colors, vmin=low, vmax=high, aspect="auto")
    if values.size <= _TEXT_CELLS:
        for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True):
            sure = marked is not None and bool(marked[row, column])
            # Adding 0.0 turns a rounded -0.0 into 0.0.
            text = f"{values[row, column].round(decimals) + 0.0:.{decimals}f}".replace("-", "−") + ("*" if sure else "")
            red, green, blue, _ = picture.cmap(picture.norm(values[row, column]))
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
            axes.text(
                column, row, text, ha="center", va="center", fontsize=8 if len(text) < 6 else 7,
                color="white" if dark else "black", fontweight="bold" if sure else "normal",
            )  # fmt: skip
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.colorbar(picture, ax=axes, label=label, pad=0.02)
    return figure


def cells_of(
    table: pl.DataFrame, rows: str, columns: str, value: str, row_names: Sequence[object], column_names: Sequence[str]
) -> np.ndarray:
    """Return (rows, columns) float64 with the table's values by the names in two of its columns, NaN where there is
    none."""
    cells = np.full((len(row_names), len(column_names)), np.nan)
    for row, column, number in table.select(rows, columns, value).iter_rows():
        if number is not None:
            cells[row_names.index(row), column_names.index(column)] = number
    return cells
