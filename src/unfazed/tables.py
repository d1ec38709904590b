"""Reading Parquet files that need not be trusted: with pyarrow, and every column checked against a declared type.

polars ends the whole process at some damaged files, so it gets only tables that were read and checked here.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .errors import UserError
from .files import check_regular

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["text", "integer", "number", "truth", "list"]
WORDS = {
    "text": "text",
    "integer": "whole numbers",
    "number": "numbers",
    "truth": "true and false",
    "list": "lists of numbers",
}


@dataclass(frozen=True)
class Column:
    """The declared type of a column; nulls: whether a row may have no value; lowest, highest: the allowed range."""

    kind: Kind
    nulls: bool = True
    lowest: float | None = None
    highest: float | None = None


def read_checked(
    path: str | Path,
    columns: Mapping[str, Column],
    *,
    select: Sequence[str] | None = None,
    required: Sequence[str] = (),
    run: str | None = None,
) -> pa.Table:
    """The table in a Parquet file; UserError with the file, the row and the column of what is wrong.

    columns: the declared types; a column that is not among them is returned as it is, if `select` does not exclude it.
    select: the columns to read, all if None; required: those that must be there.
    """
    import pyarrow.parquet as parquet

    with readable(path, "Parquet", run):
        file = parquet.ParquetFile(path)
        there = file.schema_arrow.names
        check_names(there, required, path, run)
        wanted = None if select is None else [name for name in select if name in there]
        table = file.read(columns=wanted).replace_schema_metadata(None)
        table.validate(full=True)
    for name, column in columns.items():
        if name in table.column_names:
            check_column(table.column(name), column, f"{path}, column '{name}'", run)
    return table


def column_names(path: str | Path) -> list[str]:
    """The names of the columns of a Parquet file."""
    import pyarrow.parquet as parquet

    with readable(path, "Parquet"):
        return list(parquet.read_schema(path).names)


def stored_text(path: str | Path, key: bytes) -> str | None:
    """The text that a Parquet file holds under a key of its metadata; None if there is none."""
    import pyarrow.parquet as parquet

    with readable(path, "Parquet"):
        found = (parquet.read_schema(path).metadata or {}).get(key)
    return None if found is None else str(found.decode("utf-8", "replace"))


def check_names(there: Sequence[str], required: Sequence[str], path: str | Path, run: str | None = None) -> None:
    """Raise UserError if a column has no name, two have the same, or one that is required is not there."""
    # C libraries read a name up to its first zero byte.
    read = Counter(name.partition("\0")[0] for name in there)
    twice = next((name for name, count in read.items() if not name or count > 1), None)
    if twice is not None:
        raise UserError(f"{path} has {f'two columns named {twice}' if twice else 'a column without a name'}", run=run)
    missing = [name for name in required if name not in there]
    if missing:
        raise UserError(
            f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; it has {', '.join(there)}",
            run=run,
        )


@contextlib.contextmanager
def readable(path: str | Path, kind: str, run: str | None = None) -> Iterator[None]:
    """A block in which what pyarrow raises for a damaged file becomes a UserError that names `path`."""
    import pyarrow as pa

    check_regular(path)
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"{path} is not a readable {kind} file: {first[:300]}", run=run) from None


def check_column(values: pa.ChunkedArray, column: Column, where: str, run: str | None, first: int = 1) -> None:
    """Raise UserError unless the values have the declared type and range; `first`: the number of the first row."""
    import pyarrow.compute as compute

    if not _has_kind(values.type, column.kind):
        raise UserError(f"{where} contains {values.type}", allowed=WORDS[column.kind], run=run)
    if values.null_count and not column.nulls:
        raise UserError(f"{where}, row {_place(compute.is_null(values)) + first} has no value", run=run)
    if column.kind in ("integer", "number") and len(values) > values.null_count:
        tests: list[tuple[Callable[..., pa.ChunkedArray], float | None]] = [
            (compute.less, column.lowest),
            (compute.greater, column.highest),
        ]
        for outside, limit in tests:
            found = None if limit is None else outside(values, limit)
            if found is not None and compute.any(found).as_py():
                place = _place(found)
                raise UserError(
                    f"{where}, row {place + first} is {values[place].as_py()}",
                    allowed=f"{column.lowest} to {column.highest}",
                    run=run,
                )


def _place(found: pa.ChunkedArray) -> int:
    """The index of the first row in which a column of truth values is true."""
    import pyarrow.compute as compute

    return int(compute.index(found, True).as_py())


def _has_kind(kind: pa.DataType, wanted: Kind) -> bool:
    from pyarrow import types

    if types.is_null(kind):  # a column without any value
        return True
    if types.is_dictionary(kind):
        return wanted == "text" and _has_kind(kind.value_type, wanted)
    if wanted == "text":
        return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if wanted == "integer":
        return types.is_integer(kind)
    if wanted == "number":
        return types.is_floating(kind) or types.is_integer(kind)
    if wanted == "list":
        return (types.is_list(kind) or types.is_large_list(kind)) and _has_kind(kind.value_type, "number")
    return types.is_boolean(kind)
