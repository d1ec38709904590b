"""Reading Parquet files that need not be trusted: with pyarrow, and every column checked against a declared type.

polars ends the whole process at some damaged files, so it gets only tables that were read and checked here.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet
from pyarrow import types

from unswayed.errors import UserError

from .whole import check_regular

Kind = Literal["text", "integer", "number", "truth", "list"]
WORDS = {"text": "text", "integer": "whole numbers", "number": "numbers", "truth": "true and false"}
WORDS |= {"list": "lists of numbers"}
_TESTS: dict[Kind, tuple[Callable[[pa.DataType], bool], ...]] = {
    "text": (types.is_string, types.is_large_string, types.is_string_view),
    "integer": (types.is_integer,),
    "number": (types.is_floating, types.is_integer),
    "truth": (types.is_boolean,),
}
# A table may take so many bytes of memory, or so many times the size of its file: repeated values need nearly no space
# in a Parquet file, so a small one can hold a table that no machine has the memory for.
MOST_BYTES = 2**28
MOST_TIMES = 256


def array_of(values: Sequence[object] | np.ndarray, kind: pa.DataType) -> pa.Array:
    """The values as an Arrow array, as `pa.array` makes it; that imports pandas first, wherever it is installed.

    values: an array, (N,), masked where there is no value, or for lists of numbers (N, K), or a list of texts, numbers
    or None.
    """
    if isinstance(values, np.ndarray):
        missing = np.ma.getmask(values)
    else:
        missing = np.array([value is None for value in values], bool)
    count = len(values)
    if missing.all():
        return pa.nulls(count, kind)
    known = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    if types.is_string(kind):
        texts = [b"" if value is None else str(value).encode() for value in values]
        return pa.Array.from_buffers(kind, count, [known, _starts(map(len, texts)), pa.py_buffer(b"".join(texts))])
    if types.is_list(kind):
        if not isinstance(values, np.ndarray):
            return pa.array(values, kind)
        inside = array_of(values.reshape(-1), kind.value_type)
        return pa.Array.from_buffers(kind, count, [known, _starts([values.shape[1]] * count)], children=[inside])
    numbers = np.array([value or 0 for value in values]) if known and not isinstance(values, np.ndarray) else values
    # Arrow's names of types are numpy's, but for this one; `to_pandas_dtype` needs pandas with older versions.
    stored = np.ascontiguousarray(numbers, np.float32 if types.is_float32(kind) else str(kind))
    if types.is_boolean(kind):
        stored = np.packbits(stored, bitorder="little")
    return pa.Array.from_buffers(kind, count, [known, pa.py_buffer(stored)])


def _starts(lengths: Iterable[int]) -> pa.Buffer:
    """Where each text or list begins, and where the last one ends."""
    return pa.py_buffer(np.array([0, *itertools.accumulate(lengths)], np.int32))


@dataclass(frozen=True)
class Column:
    """The declared type of a column; nulls: whether a row may have no value; lowest, highest: the allowed range."""

    kind: Kind
    nulls: bool = True
    lowest: float | None = None
    highest: float | None = None


def columns_of(
    schema: pa.Schema, filled: Container[str] = (), ranges: Mapping[str, tuple[float, float]] = MappingProxyType({})
) -> dict[str, Column]:
    """The declared columns of a schema; filled: those with a value in every row; ranges: of numbers."""

    def kind_of(type: pa.DataType) -> Kind:
        return "list" if types.is_list(type) else next(kind for kind in _TESTS if _has_kind(type, kind))

    return {
        field.name: Column(kind_of(field.type), field.name not in filled, *ranges.get(field.name, (None, None)))
        for field in schema
    }


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
    with readable(path, "Parquet", run):
        file = parquet.ParquetFile(path)
        there = file.schema_arrow.names
        check_names(there, required, path, run)
        wanted = None if select is None else [name for name in select if name in there]
        # The size in memory is checked before the repeated texts are written out.
        plain = check_size(path)
        leaves = [file.schema.column(index) for index in range(len(file.schema)) if index not in plain]
        texts = [leaf for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type != "DECIMAL"]
        repeated = [leaf.path for leaf in texts]
        table = parquet.ParquetFile(path, metadata=file.metadata, read_dictionary=repeated).read(columns=wanted)
        check_size(path, sum(_text_bytes(chunk) for column in table.columns for chunk in column.chunks))
        for index, name in enumerate(table.column_names):
            declared, values = file.schema_arrow.field(name), table.column(index)
            if declared.type != values.type:
                # pyarrow has no direct conversion from a dictionary to views.
                if types.is_string_view(declared.type) or types.is_binary_view(declared.type):
                    values = values.cast("string" if types.is_string_view(declared.type) else "binary")
                table = table.set_column(index, declared, values.cast(declared.type))
        table = table.replace_schema_metadata(None)
        table.validate(full=True)
    for name, column in columns.items():
        if name in table.column_names:
            check_column(table.column(name), column, f"{path}, column '{name}'", run)
    return table


def check_size(path: str | Path, texts: int = 0) -> frozenset[int]:
    """The columns of a Parquet file whose texts are not repeated; UserError if its values take too much memory for its
    size. texts: bytes of repeated texts, which are counted once without it."""
    held, plain = _sizes_of(path)
    most = max(MOST_BYTES, MOST_TIMES * os.path.getsize(path))
    if held + texts > most:
        raise UserError(
            f"{path} holds a table of {held + texts:,} bytes or more", allowed=f"{most:,} for a file of its size"
        )
    return plain


def _text_bytes(values: pa.Array) -> int:
    """The bytes of the texts of an array when each is written out, also where one stands in many rows."""
    if types.is_dictionary(values.type):
        lengths = compute.binary_length(values.dictionary).cast("int64")
        return int(compute.sum(lengths.take(values.indices)).as_py() or 0)
    if not types.is_nested(values.type):
        return 0
    inner = [values.keys, values.items] if types.is_map(values.type) else values.flatten()
    return sum(map(_text_bytes, inner if isinstance(inner, list) else [inner]))


def column_names(path: str | Path) -> list[str]:
    with readable(path, "Parquet"):
        return list(parquet.read_schema(path).names)


def stored_text(path: str | Path, key: bytes) -> str | None:
    """The text that a Parquet file holds under a key of its metadata; None if there is none."""
    with readable(path, "Parquet"):
        text = (parquet.read_schema(path).metadata or {}).get(key)
    return None if text is None else str(text.decode("utf-8", "replace"))


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
    check_regular(path)
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"{path} is not a readable {kind} file: {first[:300]}", run=run) from None


def check_column(values: pa.ChunkedArray, column: Column, where: str, run: str | None, first: int = 1) -> None:
    """Raise UserError unless the values have the declared type and range; `first`: the number of the first row."""
    if not _has_kind(values.type, column.kind):
        raise UserError(f"{where} contains {values.type}", allowed=WORDS[column.kind], run=run)
    if values.null_count and not column.nulls:
        row = compute.index(compute.is_null(values), True).as_py()
        raise UserError(f"{where}, row {row + first} has no value", run=run)
    if column.kind in ("integer", "number") and len(values) > values.null_count:
        # Arrow imports pandas, for a second, when it compares with a number: so only where something is outside.
        ends = compute.min_max(values).as_py()
        low, high = column.lowest, column.highest
        for outside, limit in (
            (compute.less, low if low is not None and ends["min"] < low else None),
            (compute.greater, high if high is not None and ends["max"] > high else None),
        ):
            if limit is not None:
                row = compute.index(outside(values, limit), True).as_py()
                raise UserError(
                    f"{where}, row {row + first} is {values[row].as_py()}",
                    allowed=f"{column.lowest} to {column.highest}",
                    run=run,
                )


def _has_kind(kind: pa.DataType, wanted: Kind) -> bool:
    if types.is_null(kind):  # a column without any value
        return True
    if wanted == "text" and types.is_dictionary(kind):
        return _has_kind(kind.value_type, wanted)
    if wanted == "list":
        return (types.is_list(kind) or types.is_large_list(kind)) and _has_kind(kind.value_type, "number")
    return any(test(kind) for test in _TESTS[wanted])


_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 4}  # bytes of a value by physical type; of a text, its place
_TEXT, _FIXED = 6, 7  # physical types
_DICTIONARY, _LENGTHS, _PREFIXES = {2, 8}, 6, 7  # encodings: by number, all lengths first, without a common beginning
_DEEPEST = 32


def _sizes_of(path: str | Path) -> tuple[int, frozenset[int]]:
    """The bytes of the values of a Parquet file in memory, texts that occur several times counted once; and the indices
    of the columns whose texts are not repeated, and which pyarrow cannot read as a dictionary.

    ValueError if it is damaged, or does not say how long its texts are.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            end = len(data) - 8
            footer = _Thrift(data, end - int.from_bytes(data[end : end + 4], "little")).struct()
            # Only the leaves of the schema, which have a type, have values.
            lengths = [leaf.get(2, 0) for leaf in footer[2] if 1 in leaf]
            held, encodings = int(footer[3]), [set[int]() for _ in lengths]
            for group in footer.get(4, ()):
                for chunk, length, used in zip(group[1], lengths, encodings, strict=True):
                    held += _chunk_bytes(data, chunk[3], length, used)
        except (IndexError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its metadata is damaged ({error})") from None
    if any(_PREFIXES in used or (_LENGTHS in used and used & _DICTIONARY) for used in encodings):
        raise ValueError("its texts are in DELTA_BYTE_ARRAY or in two encodings; write it again with pyarrow or polars")
    return held, frozenset(index for index, used in enumerate(encodings) if _LENGTHS in used)


def _chunk_bytes(data: mmap.mmap, chunk: dict[int, Any], length: int, encodings: set[int]) -> int:
    """The bytes of one column in one row group: its pages without compression, and its values; adds the encodings of
    its texts."""
    pages = _Thrift(data, chunk[9] if not 0 < chunk.get(11, 0) < chunk[9] else chunk[11])
    end, values, held = pages.position + chunk[7], 0, 0
    while pages.position < end and values < chunk[5]:
        header = pages.struct()
        of_values = header.get(5) or header.get(8) or {}
        values += max(0, of_values.get(1, 0))
        if chunk[1] == _TEXT and of_values:
            encodings.add(of_values[2 if 5 in header else 4])
        held += max(0, header[2])
        pages.position += max(0, header[3])
    return held + values * (length if chunk[1] == _FIXED else _WIDTHS[chunk[1]])


class _Thrift:
    """Reads values in Thrift's compact protocol from a position on."""

    def __init__(self, data: mmap.mmap, position: int) -> None:
        if position < 0:
            raise IndexError("a struct outside the file")
        self.data, self.position = data, position

    def struct(self, depth: int = 0) -> dict[int, Any]:
        fields: dict[int, object] = {}
        number = 0
        while (head := self.byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self.integer()
            # A truth value is its type.
            fields[number] = head & 15 == 1 if head & 15 in (1, 2) else self.value(head & 15, depth)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise IndexError("a value that is too deep")
        if kind in (1, 2, 3):
            return self.byte()
        if kind in (4, 5, 6):
            return self.integer()
        if kind == 7:
            self.position += 7
            return self.byte()
        if kind == 8:
            size = self.varint()
            self.position += size
            return None  # no text is needed
        if kind in (9, 10):
            head = self.byte()
            size = self.varint() if head >> 4 == 15 else head >> 4
            return [self.value(head & 15, depth + 1) for _ in range(size)]
        if kind == 12:
            return self.struct(depth + 1)
        raise IndexError(f"a value of the unknown type {kind}")

    def integer(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise IndexError("a number of more than 64 bits")

    def byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]
