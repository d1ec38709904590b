"""What all figures share: an empty figure, colors, the map of a small table, and the bytes of a file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from matplotlib.figure import Figure


COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A00")
MARKERS = "osD^vPX*"
MOST = len(COLORS)
GRID, QUIET = "#dddddd", "#888888"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches; not by pyplot, which has a global state and needs a window system."""
    from matplotlib.figure import Figure as NewFigure

    return NewFigure(figsize=(width, height), layout="constrained")


def series(models: Sequence[str]) -> dict[str, int]:
    """Return each model's place in COLORS and MARKERS, the same in every figure of a report; of more than eight models
    the first four and the last four have one."""
    named = list(models) if len(models) <= MOST else [*models[: MOST // 2], *models[-MOST // 2 :]]
    return {name: place for place, name in enumerate(named)}


def places(names: Iterable[str], known: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the place of each name: the known one, or the next that no other name has.

    >>> places(["b", "new", "a"], {"a": 0, "b": 1})
    {'b': 1, 'new': 2, 'a': 0}
    """
    known = known or {}
    names = list(names)
    free = iter(place for place in range(MOST + len(names)) if place not in known.values())
    return {name: known[name] if name in known else next(free) for name in names}


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


SUFFIXES = (".png", ".svg", ".pdf")


def figure_bytes(figure: Figure, format: str = "svg") -> bytes:
    """Return the figure as the bytes of a file; the report uses `svg`."""
    buffer = io.BytesIO()
    # No date in the file, so that equal tables give equal bytes.
    dates: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(buffer, format=format, dpi=160, bbox_inches="tight", metadata=dates.get(format, {}))
    return buffer.getvalue()


def short(name: str, most: int = 34) -> str:
    """Return a long name with its middle left out.

    >>> short("timm:convnext_tiny.fb_in22k_ft_in1k", 21)
    'timm:conv…2k_ft_in1k'
    """
    half = most // 2
    return name if len(name) <= most else f"{name[: half - 1]}…{name[-half:]}"
