"""Tables of the page: a caption, headings that sort, cells with their sort keys (`table.html`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from unswayed.views.text import tag

from .markup import render


@dataclass(frozen=True)
class Cell:
    """A cell's text; sort: the sort key, if not the text; note: a small remark after it; title: shown on hover; faint:
    whether it is less important than the others."""

    shown: object
    sort: float | None = None
    note: str | None = None
    title: str | None = None
    faint: bool = False


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


def filtered(name: str, noun: str, *choosers: Markup) -> Markup:
    """Return the line above a table or list that says how much of it the page's filters leave; choosers: its own
    filters."""
    counted = tag("output", "", aria_live="polite")
    return tag("div", *choosers, counted, class_="filters", data_for=name, data_noun=noun)


def chooser(name: str, label: str, values: Sequence[str], every: str) -> Markup:
    """Return a labeled list to choose one value or all; name: its name in the script."""
    options = [tag("option", every, value=""), *(tag("option", value, value=value) for value in values)]
    return tag("label", label, " ", tag("select", *options, data_filter=name))
