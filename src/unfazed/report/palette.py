"""Empty figures, and their colors (Okabe and Ito, distinguishable with color blindness) and markers."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
