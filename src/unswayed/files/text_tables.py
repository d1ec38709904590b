"""Tables in text files: CSV and lines of JSON, read with every column checked; CSV written without formulas."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as arrow_csv
from pyarrow import types

from unswayed.errors import CONTROLS, UserError

from .records import require_fields
from .tables import WORDS, Column, Kind, check_column, check_names, readable
from .whole import parse_json, read_lines

if TYPE_CHECKING:
    import polars as pl
_TYPES = {"text": "string", "integer": "int64", "number": "double", "truth": "bool"}
_JSON: dict[str, type] = {"text": str, "integer": int, "number": float, "truth": bool}
_LONGEST_HEADER = 2**20
_SMALL = 2**24  # bytes up to which one thread reads a file; its errors name the row
# What a spreadsheet calculates begins so, after quotes of ours (see `csv_text`); a signed number or a sign does not.
_CONTROLS = CONTROLS.replace(r"\x00-\x1f", r"\x00-\x08\x0a-\x1f")  # a tab stays, as a formula may begin with it
_FORMULA, _NUMBER = r"'*[=+\-@\t\r\n＝＋－＠]", r"[+\-](?:(?:\d+\.?\d*|\.\d+)(?:[eE][+\-]?\d+)?)?"


def csv_names(path: str | Path, run: str | None = None) -> list[str]:
    """The names of a CSV file's columns, without surrounding blanks."""
    with readable(path, "CSV", run), open(path, "rb") as file:
        header = file.readline(_LONGEST_HEADER).decode("utf-8-sig")
        try:
            names = [name.strip() for name in next(csv.reader([header]), [])]
        except csv.Error as error:
            raise ValueError(f"row 1: {error}") from None
        if not names:
            raise ValueError("it is empty")
        return names


def read_csv(
    path: str | Path,
    columns: Mapping[str, Column],
    *,
    select: Sequence[str] | None = None,
    required: Sequence[str] = (),
    others: Kind | None = None,
    categories: Sequence[str] = (),
    run: str | None = None,
) -> pa.Table:
    """The table in a CSV file with a header; UserError with the file, the row and the column of what is wrong.

    columns: the declared types, as for `read_checked`; an empty cell has no value, and the header is row 1. select: the
    columns to read, all if None; required: those that must be there. others: the type of columns that are not declared;
    None: that of their values. categories: columns of text in which each different text is stored once.
    """
    names = csv_names(path, run)
    check_names(names, required, path, run)
    declared = {} if others is None else {name: Column(others) for name in names}
    declared |= {name: column for name, column in columns.items() if name in names}
    stored = {name: pa.type_for_alias(_TYPES[column.kind]) for name, column in declared.items()}
    stored |= {name: pa.dictionary(pa.int32(), pa.string()) for name in categories if name in names}
    convert = arrow_csv.ConvertOptions(
        column_types=stored,
        include_columns=None if select is None else [name for name in names if name in select],
        null_values=[""],
        strings_can_be_null=True,
    )
    with readable(path, "CSV", run):
        read = arrow_csv.ReadOptions(column_names=names, skip_rows=1, use_threads=os.path.getsize(path) > _SMALL)
        try:
            table = arrow_csv.read_csv(path, read, arrow_csv.ParseOptions(newlines_in_values=True), convert)
        except pa.ArrowInvalid as error:
            problem = re.match(r"In CSV column #(\d+): (?:Row #(\d+): )?.*?: (.*)", str(error), re.DOTALL)
            if problem is None or names[int(problem[1])] not in declared:
                raise
            kind = declared[name := names[int(problem[1])]].kind
            where = f"{path}, column '{name}'" + (f", row {problem[2]}" if problem[2] else "")
            raise UserError(f"{where}: {problem[3][:100]}", allowed=WORDS[kind], run=run) from None
    return _checked(table.unify_dictionaries(), declared, path, run)


def read_json_lines(path: str | Path, columns: Mapping[str, Column], run: str | None = None) -> pa.Table:
    """The table in a file with one JSON object on each line; other fields than `columns` are left out.

    pyarrow's own reader of JSON ends the process at some damaged files.
    """
    schema = pa.schema([(name, pa.type_for_alias(_TYPES[column.kind])) for name, column in columns.items()])
    kinds = {
        name: _JSON[column.kind] | (None if column.nulls else _JSON[column.kind]) for name, column in columns.items()
    }
    rows = []
    for number, line in enumerate(read_lines(path, "file"), 1):
        if line.strip():
            row = parse_json(line, f"{path}, row {number}")
            require_fields(row, kinds, f"{path}, row {number}", run)
            rows.append(row)
    with readable(path, "JSON-lines", run):
        table = pa.Table.from_pylist(rows, schema=schema)
    return _checked(table, columns, path, run, first=1)


def csv_text(frame: pl.DataFrame) -> str:
    """The frame as CSV in which no text is a formula: spreadsheets calculate what begins with = @ + - or a tab.

    Control characters, line breaks and changes of the direction of text become spaces, since what prints the file may
    obey them. `read_csv` takes away the quote that is put before such a text. Lists and structures are JSON.

    >>> import polars as pl
    >>> csv_text(pl.DataFrame({"model": ["=1+1", "a=b"], "drop": [-1.5, 2.0]}))
    "model,drop\\n'=1+1,-1.5\\na=b,2.0\\n"
    """
    import polars as pl

    def named(name: str) -> str:
        name = re.sub(_CONTROLS, " ", name)
        return f"'{name}" if re.match(_FORMULA, name) and not re.fullmatch(_NUMBER, name) else name

    json_text = pl.selectors.nested().map_elements(lambda value: json.dumps(plain_value(value)), return_dtype=pl.String)
    frame = frame.with_columns(json_text).with_columns(pl.col(pl.String).str.replace_all(_CONTROLS, " "))
    text = pl.col(pl.String)
    formula = text.str.contains(f"^{_FORMULA}") & ~text.str.contains(f"^{_NUMBER}$")
    return (
        frame.with_columns(pl.when(formula).then(text.str.replace("^", "'")).otherwise(text)).rename(named).write_csv()
    )


def plain_value(value: object) -> object:
    """What JSON can hold: no infinite numbers, and lists for series."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain_value(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [plain_value(item) for item in value]
    return value


def _checked(
    table: pa.Table, columns: Mapping[str, Column], path: str | Path, run: str | None, first: int = 2
) -> pa.Table:
    """The table with its texts as they were before `csv_text`, if every column has the declared type."""
    for index, name in enumerate(table.column_names):
        values, where = table.column(name), f"{path}, column '{name}'"
        if types.is_binary(values.type):
            raise UserError(f"{where} contains bytes that are not UTF-8", run=run)
        if name in columns:
            check_column(values, columns[name], where, run, first)
        if types.is_string(values.type) and compute.any(compute.starts_with(values, "'")).as_py():
            number = compute.match_substring_regex(values, f"^'{_NUMBER}$")
            formula = compute.and_not(compute.match_substring_regex(values, f"^'{_FORMULA}"), number)
            bare = compute.if_else(formula, compute.utf8_slice_codeunits(values, 1), values)
            table = table.set_column(index, name, bare)
    return table
