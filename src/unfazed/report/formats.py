"""A polars data frame as text: a terminal table, CSV, JSON records, Markdown or LaTeX."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from unfazed.choices import TableFormat
from unfazed.errors import UserError, unknown

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
) -> str:
    """Return the frame as text that ends with a newline.

    `csv` and `json` (a list of records) are for programs: every column with its name and full precision, without title
    and notes. `table`, `markdown` and `latex` are for people: floats rounded to `digits` (one number, or one per
    column, by default 2), missing values as a dash, columns renamed by `headings`, `title` above and `notes` below.

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
    rows = [[_cell(value, _digits(digits, name)) for name, value in row.items()] for row in frame.iter_rows(named=True)]
    shown = frame.rename({name: names[name] for name in frame.columns if name in names})
    return FORMATS[format](shown, rows, title, notes)


def _csv(frame: pl.DataFrame, rows: list[list[str]], title: str | None, notes: str | None) -> str:
    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    flat = frame.with_columns(
        pl.col(name).map_elements(lambda value: json.dumps(_plain(value)), return_dtype=pl.String) for name in nested
    )
    return flat.write_csv()


def _json(frame: pl.DataFrame, rows: list[list[str]], title: str | None, notes: str | None) -> str:
    records = [_plain(row) for row in frame.iter_rows(named=True)]
    return json.dumps(records, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def _table(frame: pl.DataFrame, rows: list[list[str]], title: str | None, notes: str | None) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title and Text(title), caption=notes and Text(notes), box=box.SIMPLE_HEAD, pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    for name, numeric in zip(frame.columns, _numeric(frame), strict=True):
        table.add_column(Text(name), justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        # Text, not str: a class or file called "[red]" must not be read as markup.
        table.add_row(*(Text(value) for value in row))
    # As wide as its content: a terminal wraps long lines, but shortened names could not be copied.
    console = Console(file=io.StringIO(), force_terminal=False, color_system=None, width=10_000)
    console.width = max(console.measure(table).maximum, 80)
    console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _markdown(frame: pl.DataFrame, rows: list[list[str]], title: str | None, notes: str | None) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(_escape_markdown(cell) for cell in cells) + " |"

    lines = [line(frame.columns), "| " + " | ".join("---:" if n else ":---" for n in _numeric(frame)) + " |"]
    lines += [line(row) for row in rows]
    if title:
        lines = [f"**{_escape_markdown(title)}**", "", *lines]
    if notes:
        lines += ["", _escape_markdown(notes)]
    return "\n".join(lines) + "\n"


def _latex(frame: pl.DataFrame, rows: list[list[str]], title: str | None, notes: str | None) -> str:
    def line(cells: list[str]) -> str:
        return " & ".join(_escape_latex(cell) for cell in cells) + r" \\"

    body = [
        r"\begin{tabular}{" + "".join("r" if numeric else "l" for numeric in _numeric(frame)) + "}",
        r"\toprule",
        line(frame.columns),
        r"\midrule",
        *(line(row) for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if title or notes:
        caption = _escape_latex(". ".join(part.rstrip(".") for part in (title, notes) if part)) + "."
        body = [r"\begin{table}", r"\centering", *body, rf"\caption{{{caption}}}", r"\end{table}"]
    return "% needs \\usepackage{booktabs}\n" + "\n".join(body) + "\n"


FORMATS: dict[str, Callable[[pl.DataFrame, list[list[str]], str | None, str | None], str]] = {
    "table": _table,
    "csv": _csv,
    "json": _json,
    "markdown": _markdown,
    "latex": _latex,
}


def _cell(value: Any, digits: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        # A p-value of 0.0000 would be wrong; very small numbers keep one significant digit.
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
