"""Tables of the page: a caption, headings that sort, cells with their sort keys (`table.html`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from .markup import render, tag


@dataclass(frozen=True)
class Cell:
    """A cell's text; sort: the sort key, if not the text; note: a small remark after it."""

    shown: object
    sort: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class Line:
    """A row of cells; data: `data-…` attributes for the filters."""

    cells: Sequence[Cell]
    data: Mapping[str, str] = field(default_factory=dict)


def sortable(
    name: str, caption: str, headings: Sequence[str], lines: Sequence[Line], numbers: frozenset[int]
) -> Markup:
    """Return a table in a scrolling region; `numbers`: the columns with numbers."""
    return render("table.html", name=name, caption=caption, headings=headings, lines=lines, numbers=numbers)


def chooser(name: str, label: str, values: Sequence[str], every: str) -> Markup:
    """Return a labeled list to choose one value or all; name: its name in the script."""
    options = [tag("option", every, value=""), *(tag("option", value, value=value) for value in values)]
    return tag("label", label, " ", tag("select", *options, data_filter=name))
