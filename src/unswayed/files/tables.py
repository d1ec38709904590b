"""Reading Parquet files that need not be trusted: with pyarrow, and every column checked against a declared type.

polars ends the whole process at some damaged files, so it gets only tables that were read and checked here.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from unswayed.errors import UserError

from .parquet_sizes import Sizes, sizes_of
from .whole import check_regular

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as parquet

Kind = Literal["text", "integer", "number", "truth", "list"]
WORDS = {
    "text": "text",
    "integer": "whole numbers",
    "number": "numbers",
    "truth": "true and false",
    "list": "lists of numbers",
}
# A table may take so many bytes of memory, or so many times the size of its file: repeated values need nearly no space
# in a Parquet file, so a small one can hold a table that no machine has the memory for.
MOST_BYTES = 2**28
MOST_TIMES = 256


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
        table = _read_bounded(file, path, wanted).replace_schema_metadata(None)
        table.validate(full=True)
    for name, column in columns.items():
        if name in table.column_names:
            check_column(table.column(name), column, f"{path}, column '{name}'", run)
    return table


def _read_bounded(file: parquet.ParquetFile, path: str | Path, wanted: list[str] | None) -> pa.Table:
    """The table of a Parquet file, whose size in memory is checked before the repeated texts are written out."""
    import pyarrow.parquet as parquet

    sizes = check_size(path)
    leaves = [file.schema.column(index) for index in range(len(file.schema)) if index not in sizes.plain]
    texts = [one.path for one in leaves if one.physical_type == "BYTE_ARRAY" and one.logical_type.type != "DECIMAL"]
    table = parquet.ParquetFile(path, metadata=file.metadata, read_dictionary=texts).read(columns=wanted)
    check_size(path, sum(_text_bytes(chunk) for one in table.columns for chunk in one.chunks))
    for index, name in enumerate(table.column_names):
        declared = file.schema_arrow.field(name)
        if declared.type != table.field(index).type:
            table = table.set_column(index, declared, _cast(table.column(index), declared.type))
    return table


def check_size(path: str | Path, texts: int = 0) -> Sizes:
    """What the values of a Parquet file take in memory; UserError if that is too much for its size.

    texts: bytes of repeated texts, which are counted once without it.
    """
    sizes = sizes_of(path)
    most = max(MOST_BYTES, MOST_TIMES * os.path.getsize(path))
    if sizes.held + texts > most:
        raise UserError(
            f"{path} holds a table of {sizes.held + texts:,} bytes or more", allowed=f"{most:,} for a file of its size"
        )
    return sizes


def _text_bytes(values: pa.Array) -> int:
    """The bytes of the texts of an array when each is written out, also where one stands in many rows."""
    import pyarrow.compute as compute
    from pyarrow import types

    if types.is_dictionary(values.type):
        lengths = compute.binary_length(values.dictionary).cast("int64")
        return int(compute.sum(lengths.take(values.indices)).as_py() or 0)
    if not types.is_nested(values.type):
        return 0
    inner = [values.keys, values.items] if types.is_map(values.type) else values.flatten()
    return sum(map(_text_bytes, inner if isinstance(inner, list) else [inner]))


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Texts that were read as a dictionary, as the type that the file declares."""
    from pyarrow import types

    # pyarrow has no direct conversion from a dictionary to views.
    views = {types.is_string_view(kind): "string", types.is_binary_view(kind): "binary"}
    return (values.cast(views[True]) if True in views else values).cast(kind)


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
