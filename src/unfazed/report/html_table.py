"""Tables of the page: a caption, headings that sort, cells that know what they are sorted by (`table.html`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from .markup import render, tag


@dataclass(frozen=True)
class Cell:
    """What is shown; sort: what it is sorted by, if not by its text; note: a small remark behind it."""

    shown: object
    sort: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class Line:
    """A row of cells; data: `data-…` attributes that filters look at."""

    cells: Sequence[Cell]
    data: Mapping[str, str] = field(default_factory=dict)


def sortable(
    name: str, caption: str, headings: Sequence[str], lines: Sequence[Line], numbers: frozenset[int]
) -> Markup:
    """A table in a region that scrolls by itself; `numbers`: the columns that hold numbers."""
    return render("table.html", name=name, caption=caption, headings=headings, lines=lines, numbers=numbers)


def chooser(name: str, label: str, values: Sequence[str], every: str) -> Markup:
    """A labelled list to choose one value or all of them; name: what the script knows it by."""
    options = [tag("option", every, value=""), *(tag("option", value, value=value) for value in values)]
    return tag("label", label, " ", tag("select", *options, data_filter=name))
