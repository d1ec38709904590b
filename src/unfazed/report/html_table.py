"""Tables of the page: a caption, headings that sort, cells that know what they are sorted by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .markup import Markup, joined, tag


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
    head = tag(
        "tr",
        *(
            tag("th", tag("button", heading, type="button"), scope="col", class_="number" if i in numbers else None)
            for i, heading in enumerate(headings)
        ),
    )
    body = [_row(line, numbers) for line in lines]
    table = tag("table", tag("caption", tag("span", caption)), tag("thead", head), tag("tbody", *body), id=name)
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _row(line: Line, numbers: frozenset[int]) -> Markup:
    cells = []
    for place, cell in enumerate(line.cells):
        inside = joined([cell.shown, tag("small", " ", cell.note) if cell.note else None])
        kind = "th" if place == 0 else "td"
        cells.append(
            tag(
                kind,
                inside,
                scope="row" if place == 0 else None,
                class_="number" if place in numbers else None,
                data_sort=None if cell.sort is None else f"{cell.sort:.6g}",
            )
        )
    return tag("tr", *cells, **{f"data_{key}": value for key, value in line.data.items()})


def chooser(name: str, label: str, values: Sequence[str], every: str) -> Markup:
    """A labelled list to choose one value or all of them; name: what the script knows it by."""
    options = [tag("option", every, value=""), *(tag("option", value, value=value) for value in values)]
    return tag("label", label, " ", tag("select", *options, data_filter=name))
