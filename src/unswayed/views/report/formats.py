"""A polars data frame as text: a terminal table, CSV, JSON records, Markdown or LaTeX."""

from __future__ import annotations

import io
import json
import math
import re
import textwrap
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from unswayed.choices import TableFormat
from unswayed.errors import UserError, unknown
from unswayed.files.text_tables import csv_text

from .words import probability

WIDTH = 80  # columns of a terminal
WIDE = 8  # columns; a wider table is scaled to the width of the line
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": r"$-$",
    "–": "--",
    "<": r"$<$",
    ">": r"$>$",
    "×": r"$\times$",
    "λ": r"$\lambda$",
}


def format_of(output: Path | None) -> TableFormat:
    """The format that the suffix of a file stands for; a table for none; other suffixes are refused.

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


_SUFFIXES: dict[str, TableFormat] = {
    ".csv": "csv",
    ".json": "json",
    ".md": "markdown",
    ".tex": "latex",
    ".txt": "table",
}


def format_table(
    frame: pl.DataFrame,
    format: str = "table",
    *,
    digits: int | Mapping[str, int] = 2,
    headings: Mapping[str, str] | None = None,
    title: str | None = None,
    notes: str | None = None,
    strong: Collection[tuple[int, str]] = (),
    marks: Mapping[tuple[int, str], str] | None = None,
) -> str:
    """Return the frame as text that ends with a newline.

    `csv` and `json` (a list of records) are for programs: every column with its name and full precision, without title
    and notes. `table`, `markdown` and `latex` are for people: floats rounded to `digits` (one number, or one per
    column, by default 2), missing values as a dash, columns renamed by `headings`, `title` above and `notes` below.
    strong: cells (row, column) in bold, in brackets in a `table`; marks: what follows a cell's number, such as `*`.

    >>> print(format_table(pl.DataFrame({"edit": ["size-0.05"], "drop": [21.2649]}), "markdown"), end="")
    | edit | drop |
    | :--- | ---: |
    | size-0.05 | 21.26 |
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if format in ("csv", "json"):
        return FORMATS[format](frame, [], title, notes)
    names = headings or {}
    rows = _rows(frame, digits)
    for place, row in enumerate(rows):
        for at, name in enumerate(frame.columns):
            mark = (marks or {}).get((place, name), "")
            row[at] = Strong(row[at] + mark) if (place, name) in strong else row[at] + mark
    shown = frame.rename({name: names[name] for name in frame.columns if name in names})
    return FORMATS[format](shown, rows, title, notes)


class Strong(str):
    """The text of a cell that stands out."""


def _csv(frame: pl.DataFrame, rows: list[list[str]], title: str | None, notes: str | None) -> str:
    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    flat = frame.with_columns(
        pl.col(name).map_elements(lambda value: json.dumps(_plain(value)), return_dtype=pl.String) for name in nested
    )
    return csv_text(flat)


def _json(frame: pl.DataFrame, rows: list[list[str]], title: str | None, notes: str | None) -> str:
    records = [_plain(row) for row in frame.iter_rows(named=True)]
    return json.dumps(records, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def _table(frame: pl.DataFrame, rows: list[list[str]], title: str | None, notes: str | None) -> str:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title and Text(title), caption=notes and Text(notes), box=box.SIMPLE_HEAD, pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    for name, numeric in zip(frame.columns, _numeric(frame), strict=True):
        table.add_column(Text(name), justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        # Text, not str: a class or file called "[red]" must not be read as markup.
        table.add_row(*(Text(f"[{value}]" if isinstance(value, Strong) else value) for value in row))
    return _printed(table)


def model_blocks(
    shown: pl.DataFrame,
    frame: pl.DataFrame,
    *,
    digits: int | Mapping[str, int] = 2,
    title: str | None = None,
    notes: str | None = None,
    color: bool = False,
    suspicious: Collection[str] = (),
) -> str:
    """Return the table `shown` for a terminal of 80 columns: one block per model, repeated names left out.

    frame: the rows in full, whose tests say what is sure; color: print sure drops in red and sure gains in green;
    suspicious: models that are marked, because the notes say why their numbers mean little. Of a table that is wider
    than 80 columns the last columns are left out, and a line says so.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = _rows(shown, digits)
    styles = [_style(row) for row in frame.iter_rows(named=True)]
    names, numeric = shown.columns, _numeric(shown)
    widths = [max([len(name), *(len(row[place]) for row in rows)]) for place, name in enumerate(names)]
    kept = [place for place, name in enumerate(names) if name != "model"]
    while sum(widths[place] + 2 for place in kept) > WIDTH and len(kept) > 4:
        kept.remove(next(place for place in reversed(kept) if numeric[place]))
    left_out = [names[place] for place in range(len(names)) if place not in kept and names[place] != "model"]
    parts = [title] if title else []
    for model in shown["model"].unique(maintain_order=True).to_list():
        block = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for place in kept:
            right = numeric[place] or names[place] == "p"
            block.add_column(Text(names[place]), justify="right" if right else "left", no_wrap=True)
        before: list[str] = []
        for row, style, owner in zip(rows, styles, shown["model"], strict=True):
            if owner != model:
                continue
            cells = [row[place] for place in kept]
            again = bool(before) and cells[0] == before[0]
            block.add_row(*(Text("" if again and at == 0 else cell, style) for at, cell in enumerate(cells)))
            before = cells
        mark = " (suspicious, see the note below)" if model in suspicious else ""
        parts += ["", _printed(Text(f"{model}{mark}", "bold"), color).rstrip("\n"), _printed(block, color).strip("\n")]
    more = f"Also measured, with --format csv or json: {', '.join(left_out)}." if left_out else ""
    words = " ".join(part for part in (notes, more) if part)
    parts += ["", *textwrap.wrap(words, WIDTH)]
    return "\n".join(parts) + "\n"


def _rows(frame: pl.DataFrame, digits: int | Mapping[str, int]) -> list[list[str]]:
    """Return the cells as text."""
    digits_of = [_digits(digits, name) for name in frame.columns]
    return [
        [_cell(value, places, name) for value, places, name in zip(row, digits_of, frame.columns, strict=True)]
        for row in frame.iter_rows()
    ]


def _style(row: Mapping[str, Any]) -> str:
    """Return the style of a row: red for a drop beyond chance, green for a gain, faint for a white-box result."""
    net = row.get("net_p_holm") is not None
    p, drop = row.get("net_p_holm" if net else "p_holm"), row.get("net_drop" if net else "drop")
    if row.get("white_box"):
        return "dim"
    if p is None or drop is None or p >= 0.05:
        return ""
    return "red" if drop > 0 else "green"


def _printed(table: Any, color: bool = False) -> str:
    """Return a table of rich as text, as wide as its content: shortened names could not be copied."""
    from rich.console import Console

    file = io.StringIO()
    console = Console(file=file, force_terminal=color, color_system="standard" if color else None, width=10_000)
    console.width = max(console.measure(table).maximum, WIDTH)
    console.print(table)
    lines = (re.sub(r" +((\x1b\[[0-9;]*m)*)$", r"\1", line) for line in file.getvalue().splitlines())
    return "\n".join(lines) + "\n"


def _markdown(frame: pl.DataFrame, rows: list[list[str]], title: str | None, notes: str | None) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(bold(_escape_markdown(cell), cell) for cell in cells) + " |"

    def bold(text: str, cell: str) -> str:
        return f"**{text}**" if isinstance(cell, Strong) else text

    lines = [line(frame.columns), "| " + " | ".join("---:" if n else ":---" for n in _numeric(frame)) + " |"]
    lines += [line(row) for row in rows]
    if title:
        lines = [f"**{_escape_markdown(title)}**", "", *lines]
    if notes:
        lines += ["", _escape_markdown(notes)]
    return "\n".join(lines) + "\n"


def _latex(frame: pl.DataFrame, rows: list[list[str]], title: str | None, notes: str | None) -> str:
    def line(cells: list[str]) -> str:
        return " & ".join(bold(_escape_latex(cell), cell) for cell in cells) + r" \\"

    def bold(text: str, cell: str) -> str:
        return rf"\textbf{{{text}}}" if isinstance(cell, Strong) else text

    def heading(name: str) -> str:
        """A heading of a wide table in two lines, `background-simple` over each other."""
        first, dash, second = name.partition("-")
        if len(frame.columns) <= WIDE or not dash or not first:
            return _escape_latex(name)
        return rf"\shortstack[r]{{{_escape_latex(first)}\\{_escape_latex(second)}}}"

    body = [
        r"\begin{tabular}{" + "".join("r" if numeric else "l" for numeric in _numeric(frame)) + "}",
        r"\toprule",
        " & ".join(heading(name) for name in frame.columns) + r" \\",
        r"\midrule",
        *(line(row) for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    packages = "booktabs"
    if title or notes:
        caption = _escape_latex(". ".join(part.rstrip(".") for part in (title, notes) if part)) + "."
        if len(frame.columns) > WIDE:
            packages = "booktabs,graphicx"
            body = [r"\resizebox{\linewidth}{!}{%", *body, "}"]
        body = [r"\begin{table}", r"\centering", *body, rf"\caption{{{caption}}}", r"\end{table}"]
    return f"% needs \\usepackage{{{packages}}}\n" + "\n".join(body) + "\n"


FORMATS: dict[str, Callable[[pl.DataFrame, list[list[str]], str | None, str | None], str]] = {
    "table": _table,
    "csv": _csv,
    "json": _json,
    "markdown": _markdown,
    "latex": _latex,
}


def _cell(value: Any, digits: int, name: str = "") -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float) and re.match(r"(net_)?p(_|$| )", name):
        return probability(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        # Very small numbers keep one significant digit.
        if value != 0 and abs(value) < 0.5 * 10**-digits and digits >= 3:
            return f"{value:.0e}"
        return f"{value:.{digits}f}".replace("-", "−", 1) if round(value, digits) < 0 else f"{abs(value):.{digits}f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(one, digits) for one in value)
    return "".join(character if character.isprintable() else " " for character in str(value))


def _digits(digits: int | Mapping[str, int], name: str) -> int:
    return digits if isinstance(digits, int) else digits.get(name, 2)


def _numeric(frame: pl.DataFrame) -> list[bool]:
    return [kind.is_numeric() for kind in frame.dtypes]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, pl.Series)):
        return [_plain(one) for one in value]
    return value


def _escape_markdown(text: str) -> str:
    for character in "\\|`*<>[]":
        text = text.replace(character, "\\" + character)
    return text


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def interval_cell(low: str, high: str, digits: int = 2) -> pl.Expr:
    """Return two columns as one cell, `1.00 to 2.00`; nothing where the first is null."""
    text = pl.format("{} to {}", number_cell(low, digits), number_cell(high, digits))
    return pl.when(pl.col(low).is_not_null()).then(text)


def number_cell(name: str, digits: int) -> pl.Expr:
    """Return the column as text with this many decimals and a true minus sign."""

    def text(value: float) -> str:
        return f"{value:.{digits}f}".replace("-", "−")

    # Adding zero turns −0.0 into 0.0.
    return (pl.col(name).round(digits) + 0.0).map_elements(text, return_dtype=pl.String)
