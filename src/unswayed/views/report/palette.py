"""Empty figures, and their colors (Okabe and Ito, distinguishable with color blindness) and markers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
