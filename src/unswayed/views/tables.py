"""The one renderer of tables: a frame and its columns for people as terminal text, Markdown, LaTeX, HTML, CSV or JSON.

>>> import polars as pl
>>> frame = pl.DataFrame({"edit": ["size-0.05"], "n": [4352], "accuracy": [0.5], "drop": [21.2649]})
>>> columns = [Column("edit"), Column("n"), Column("accuracy %", 100 * pl.col("accuracy"), digits=1), Column("drop")]
>>> table = Table(frame, columns, title="Dropped accuracy")
>>> print(table.text("markdown"), end="")
**Dropped accuracy**
<BLANKLINE>
| edit | n | accuracy % | drop |
| :--- | ---: | ---: | ---: |
| size-0.05 | 4,352 | 50.0 | 21.26 |
>>> table.text("csv")
'edit,n,accuracy,drop\\nsize-0.05,4352,0.5,21.2649\\n'
>>> print(format_table(frame, "markdown", digits={"drop": 1}, headings={"drop": "points"}).splitlines()[-1])
| size-0.05 | 4,352 | 0.50 | 21.3 |

`csv` and `json` (a list of records) are for programs: every column of the frame with its name and full precision,
without title and notes. The other formats are for people: the chosen columns, rounded, a dash for a missing value.
"""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
from markupsafe import Markup

from unswayed.choices import TableFormat
from unswayed.errors import CONTROLS, UserError, check_known
from unswayed.files.text_tables import csv_text, plain_value

from .text import DASH, interval, number, probability, render, safe

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 80  # columns of a terminal, where it does not say how many it has
LONGEST = 30  # characters of a word that is never divided; longer ones are paths
SENTENCE = 20  # characters; a longer text is wrapped where there is little room, down to this width
WIDE = 8  # columns; a wider LaTeX table is scaled to the width of the line
FORMATS: tuple[TableFormat, ...] = ("table", "csv", "json", "markdown", "latex")
_SUFFIXES: dict[str, TableFormat] = {
    ".csv": "csv",
    ".json": "json",
    ".md": "markdown",
    ".tex": "latex",
    ".txt": "table",
}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """A cell that is more than a value of the frame.

    shown: its text, its number or, for HTML alone, Markup; strong: whether it stands out. Only in HTML: sort, the key
    by which it is sorted if that is not its number; note, a small remark after it; title, shown on hover; faint, true
    if it is less important than the others.
    """

    shown: object
    sort: float | None = None
    note: str | None = None
    title: str | None = None
    faint: bool = False
    strong: bool = False


@dataclass(frozen=True)
class Column:
    """A column for people.

    value: what it holds: the name of a column of the frame (that of the heading if None), a polars expression, or a
    function that returns the value or `Cell` of a row. digits: decimals of its floats, or a format such as `.3g`.
    number: whether it is aligned to the right; if None, by the type of its values. note: a sentence below the table.
    importance: the least important columns are left out first where a terminal is too narrow for all; by default 0 for
    numbers and 3 for text.
    """

    heading: str
    value: str | pl.Expr | Callable[[Row], object] | None = None
    digits: int | str = 2
    number: bool | None = None
    note: str = ""
    importance: int | None = None


@dataclass(frozen=True)
class Table:
    """A frame, its columns for people (all of the frame's if empty), a title above; below it notes and remarks.

    A terminal shows as many columns as it has room for: the least important ones are left out, and a line says so.
    blocks: a column whose values each get their own table in a terminal. style: of a row in a terminal that has colors;
    block_marks: what follows the names of some blocks.
    """

    frame: pl.DataFrame
    columns: Sequence[Column] = ()
    title: str = ""
    notes: str = ""
    remarks: Sequence[str] = ()
    blocks: str | None = None
    style: Callable[[Row], str] = field(default=lambda row: "")
    block_marks: Mapping[str, str] = field(default_factory=dict)

    def text(self, format: str = "table", color: bool = False) -> str:
        """Return the table as text that ends with a newline; color: whether a terminal may be sent colors."""
        check_known("format", [format], FORMATS)
        if format == "csv":
            return csv_text(self.frame)
        if format == "json":
            records = [plain_value(row) for row in self.frame.iter_rows(named=True)]
            text = json.dumps(records, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"
            # JSON escapes line breaks in texts, but neither C1 controls nor the direction of text.
            return re.sub(CONTROLS.replace(r"\x00-\x1f", ""), lambda match: f"\\u{ord(match[0]):04x}", text)
        table, cells = self._settled()
        if format == "table":
            return _terminal(table, cells, color)
        return _markdown(table, cells) if format == "markdown" else _latex(table, cells)

    def html(self, name: str, data: Sequence[str] = (), most: int | None = None) -> Markup:
        """Return a table of HTML with the id `name`, a caption and headings that sort, in a region that scrolls.

        data: columns of the frame whose values the rows have as `data-…` attributes, for the page's filters; a line
        above the table says how much they leave. most: the rows that are shown of a long table, whose caption says so.
        """
        (table, cells), caption = self._settled(), self.title
        if most is not None and self.frame.height > most:
            caption = f"{caption} The first {most} of {self.frame.height:,} rows; all with --assets."
        rows = [
            ({key: row[key] for key in data}, list(map(_html_cell, line, table.columns)))
            for row, line in zip(self.frame.slice(0, most).iter_rows(named=True), cells, strict=False)
        ]
        values = {"name": name, "caption": caption, "columns": table.columns, "rows": rows, "filtered": bool(data)}
        return render("sections.html", "table", **values)

    def _settled(self) -> tuple[Table, list[tuple[Cell, ...]]]:
        """Return the table with every default of its columns settled and all notes as one safe text, and its cells."""
        columns, values = [], []
        for column in self.columns or map(Column, self.frame.columns):
            series: pl.Series | list[object]
            if callable(column.value):
                series = [column.value(row) for row in self.frame.iter_rows(named=True)]
            else:
                chosen = column.heading if column.value is None else column.value
                series = self.frame.select(pl.col(chosen) if isinstance(chosen, str) else chosen).to_series()
            numeric = isinstance(series, pl.Series) and series.dtype.is_numeric()
            right = numeric if column.number is None else column.number
            importance = (0 if right else 3) if column.importance is None else column.importance
            columns.append(replace(column, heading=safe(column.heading), number=right, importance=importance))
            values.append([value if isinstance(value, Cell) else Cell(value) for value in series])
        notes = " ".join(filter(None, [self.notes, *(column.note for column in columns), *self.remarks]))
        title = "\n\n".join(map(safe, self.title.split("\n\n")))
        return replace(self, columns=columns, title=title, notes=safe(notes)), list(zip(*values, strict=True))


Cells = Sequence[Sequence[Cell]]  # by row


def _lines(table: Table, cells: Cells, written: Callable[[str, bool], str]) -> list[list[str]]:
    """Return the texts of all cells; written: the text of a cell that is strong or not, in the format's own way."""
    return [
        [written(_text(cell.shown, column), cell.strong) for cell, column in zip(row, table.columns, strict=True)]
        for row in cells
    ]


def _html_cell(cell: Cell, column: Column) -> dict[str, object]:
    shown = cell.shown if isinstance(cell.shown, Markup) else _text(cell.shown, column)
    sort = cell.sort
    if sort is None and column.number and isinstance(cell.shown, (int, float)) and not math.isnan(cell.shown):
        sort = cell.shown
    kinds = "number " * bool(column.number) + "faint" * cell.faint
    title = cell.title if cell.title != shown else None
    return {"shown": shown, "note": cell.note, "kinds": kinds.strip(), "title": title, "sort": sort}


def _terminal(table: Table, cells: Cells, color: bool) -> str:
    """Return the table as lines that fit a terminal; each value of `table.blocks` has a grid of its own."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    width = shutil.get_terminal_size((WIDTH, 24)).columns
    lines = _lines(table, cells, lambda text, strong: f"[{text}]" if strong else text)
    widths = _fitting(table, lines, width)
    owners = table.frame[table.blocks].to_list() if table.blocks else [""] * len(lines)
    styles = [table.style(row) for row in table.frame.iter_rows(named=True)]
    parts = [line for paragraph in table.title.split("\n") for line in textwrap.wrap(paragraph, width) or [""]]
    for owner in dict.fromkeys(owners) or [""]:
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        # Text, not str: a class or file called "[red]" must not be read as markup.
        for index, wide in widths.items():
            column = table.columns[index]
            justify: Literal["left", "right"] = "right" if column.number else "left"
            grid.add_column(Text(column.heading), justify=justify, width=wide, overflow="fold")
        above = None
        for line, style in ((lines[at], styles[at]) for at, name in enumerate(owners) if name == owner):
            texts = [line[index] for index in widths]
            # In a block of its own, what is the same as in the row above is written once.
            name, above = "" if table.blocks and texts[0] == above else texts[0], texts[0]
            grid.add_row(*(Text(text, style) for text in [name, *texts[1:]]))
        if table.blocks:
            above_it = Text(f"{safe(str(owner))}{table.block_marks.get(owner, '')}", "bold")
            parts += ["", _printed(above_it, color).rstrip("\n")]
        parts.append(_printed(grid, color).strip("\n"))
    headings = [column.heading for index, column in enumerate(table.columns) if index not in widths]
    left_out = [heading.strip() for heading in headings if heading != table.blocks]
    more = f"Not shown at this width: {', '.join(left_out)}." if left_out else ""
    words = " ".join(part for part in (table.notes, more) if part)
    notes = ["", *textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False)] if words else []
    # A line that begins with two colons would be a command of a workflow that prints the table.
    return re.sub(r"(?m)^(\s*)::", r"\1: :", "\n".join([*parts, *notes])) + "\n"


def _fitting(table: Table, lines: list[list[str]], width: int) -> dict[int, int]:
    """Return the columns that fit beside each other, at least two, and how wide each is; only paths are divided.

    Sentences and headings are wrapped first; then the least important columns are left out, of equals the last ones.
    """
    widest, whole, least = [], [], []
    for at, column in enumerate(table.columns):
        cells = [line[at] for line in lines]
        long = max(map(len, cells), default=0)
        words = [column.heading, *cells] if long > SENTENCE and not column.number else [column.heading]
        word = max(len(word) for text in words for word in text.split() or [""])
        shortest = word if column.number else min(word, LONGEST)
        widest.append(max(len(column.heading), long))
        least.append(max(shortest, SENTENCE) if len(words) > 1 else max(shortest, long))
        whole.append(max(word, least[-1]))
    kept = [index for index, column in enumerate(table.columns) if column.heading != table.blocks]
    while sum(least[index] + 2 for index in kept) > width and len(kept) > 2:
        kept.remove(min(kept, key=lambda index: (table.columns[index].importance or 0, -index)))
    widths = {index: widest[index] for index in kept}
    while sum(wide + 2 for wide in widths.values()) > width:
        # Words are divided last.
        index = max(kept, key=lambda index: (widths[index] > whole[index], widths[index] - least[index]))
        if widths[index] == least[index]:
            break
        widths[index] -= 1
    return widths


def _markdown(table: Table, cells: Cells) -> str:
    def written(text: str, strong: bool) -> str:
        return f"**{safe(text, 'markdown')}**" if strong else safe(text, "markdown")

    rows = [[written(column.heading, False) for column in table.columns]]
    rows += [["---:" if column.number else ":---" for column in table.columns], *_lines(table, cells, written)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if table.title:
        lines = [written(table.title, True), "", *lines]
    if table.notes:
        lines += ["", written(table.notes, False)]
    return "\n".join(lines) + "\n"


def _latex(table: Table, cells: Cells) -> str:
    wide = len(table.columns) > WIDE

    def written(text: str, strong: bool) -> str:
        return rf"\textbf{{{safe(text, 'latex')}}}" if strong else safe(text, "latex")

    def heading(name: str) -> str:
        """A heading of a wide table in two lines, `background-simple` over each other."""
        first, dash, second = name.partition("-")
        if not wide or not dash or not first:
            return safe(name, "latex")
        return rf"\shortstack[r]{{{safe(first, 'latex')}\\{safe(second, 'latex')}}}"

    body = [
        r"\begin{tabular}{" + "".join("r" if column.number else "l" for column in table.columns) + "}",
        r"\toprule",
        " & ".join(heading(column.heading) for column in table.columns) + r" \\",
        r"\midrule",
        *(" & ".join(line) + r" \\" for line in _lines(table, cells, written)),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    packages = "booktabs"
    if table.title or table.notes:
        words = ". ".join(part.rstrip(".") for part in (table.title, table.notes) if part)
        if wide:
            packages = "booktabs,graphicx"
            body = [r"\resizebox{\linewidth}{!}{%", *body, "}"]
        caption = rf"\caption{{{safe(words, 'latex')}.}}"
        body = [r"\begin{table}", r"\centering", *body, caption, r"\end{table}"]
    return f"% needs \\usepackage{{{packages}}}\n" + "\n".join(body) + "\n"


def format_table(
    frame: pl.DataFrame,
    format: str = "table",
    *,
    digits: int | Mapping[str, int] = 2,
    headings: Mapping[str, str] | None = None,
    title: str = "",
    notes: str = "",
) -> str:
    """Return all columns of a frame as text; digits: decimals, or those of each column, 2 by default."""
    columns = [
        Column((headings or {}).get(name, name), name, digits if isinstance(digits, int) else digits.get(name, 2))
        for name in frame.columns
    ]
    return Table(frame, columns, title, notes).text(format)


def format_of(output: Path | None) -> TableFormat:
    """Return the format that the suffix of a file stands for; a table for none; other suffixes are refused.

    >>> format_of(Path("drops.tex"))
    'latex'
    """
    if output is None:
        return "table"
    if output.suffix.lower() not in _SUFFIXES:
        raise UserError(
            f"the format of {output.name} is not known",
            allowed=f"a file that ends in {', '.join(_SUFFIXES)}, or --format",
        )
    return _SUFFIXES[output.suffix.lower()]


def interval_of(low: str, high: str, digits: int = 2) -> pl.Expr:
    """Return two columns as one text, `1.00 to 2.00`; nothing where the first is null."""
    ends = pl.struct(pl.col(low).alias("low"), pl.col(high).alias("high"))
    text = ends.map_elements(lambda row: interval(row["low"], row["high"], digits), return_dtype=pl.String)
    return pl.when(pl.col(low).is_not_null()).then(text)


def _text(value: object, column: Column) -> str:
    """Return the text of a value for people."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        names = (column.heading, column.value if isinstance(column.value, str) else "")
        p_value = any(re.match(r"(net_)?p(_|$| )", name) for name in names)
        return probability(value) if p_value else number(value, column.digits)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (list, tuple, pl.Series)):
        return ", ".join(_text(item, column) for item in value)
    return safe(str(value))


def _printed(renderable: RenderableType, color: bool = False) -> str:
    """Return what rich prints, as wide as its content: shortened names could not be copied."""
    from rich.console import Console

    file = io.StringIO()
    console = Console(file=file, force_terminal=color, color_system="standard" if color else None, width=10_000)
    console.width = max(console.measure(renderable).maximum, WIDTH)
    console.print(renderable)
    lines = (re.sub(r" +((\x1b\[[0-9;]*m)*)$", r"\1", line) for line in file.getvalue().splitlines())
    return "\n".join(lines) + "\n"
