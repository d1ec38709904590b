"""How much memory the values of a Parquet file take, from its footer and the headers of its pages.

pyarrow ends the process where it is asked for these numbers of a damaged file, and a file may lie about them in its
footer; the headers of the pages are what it is read by. Both are structs in Thrift's compact encoding.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 4}  # bytes of a value by physical type; of a text, its place
_TEXT, _FIXED = 6, 7  # physical types
_DICTIONARY, _LENGTHS, _PREFIXES = {2, 8}, 6, 7  # encodings: by number, all lengths first, without a common beginning
_DEEPEST = 32


@dataclass(frozen=True)
class Sizes:
    """held: the bytes of the values in memory, texts that occur several times counted once; plain: the indices of the
    columns whose texts are not repeated, and which pyarrow cannot read as a dictionary."""

    held: int
    plain: frozenset[int]


def sizes_of(path: str | Path) -> Sizes:
    """The sizes of a Parquet file; ValueError if it is damaged, or does not say how long its texts are."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            end = len(data) - 8
            footer, _ = _struct(data, end - int.from_bytes(data[end : end + 4], "little"))
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
    return Sizes(held, frozenset(index for index, used in enumerate(encodings) if _LENGTHS in used))


def _chunk_bytes(data: mmap.mmap, chunk: dict[int, Any], length: int, encodings: set[int]) -> int:
    """The bytes of one column in one row group: its pages without compression, and its values; adds the encodings of
    its texts."""
    start = chunk[9] if not 0 < chunk.get(11, 0) < chunk[9] else chunk[11]
    end, values, held = start + chunk[7], 0, 0
    while start < end and values < chunk[5]:
        header, start = _struct(data, start)
        of_values = header.get(5) or header.get(8) or {}
        values += max(0, of_values.get(1, 0))
        if chunk[1] == _TEXT and of_values:
            encodings.add(of_values[2 if 5 in header else 4])
        held += max(0, header[2])
        start += max(0, header[3])
    return held + values * (length if chunk[1] == _FIXED else _WIDTHS[chunk[1]])


def _struct(data: mmap.mmap, place: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a struct by number, and where it ends."""
    if place < 0 or depth > _DEEPEST:
        raise IndexError("a struct outside the file, or too deep")
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[place]) != 0:
        place += 1
        if head >> 4:
            number += head >> 4
        else:
            number, place = _integer(data, place)
        if head & 15 in (1, 2):  # a truth value is its type
            fields[number] = head & 15 == 1
        else:
            fields[number], place = _value(data, place, head & 15, depth)
    return fields, place + 1


def _value(data: mmap.mmap, place: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2, 3):
        return data[place], place + 1
    if kind in (4, 5, 6):
        return _integer(data, place)
    if kind == 7:
        return data[place + 7], place + 8
    if kind == 8:
        size, place = _varint(data, place)
        return None, place + size  # no text is needed
    if kind in (9, 10):
        size, inner = data[place] >> 4, data[place] & 15
        size, place = _varint(data, place + 1) if size == 15 else (size, place + 1)
        items = []
        for _ in range(size):
            item, place = _value(data, place, inner, depth + 1)
            items.append(item)
        return items, place
    if kind == 12:
        return _struct(data, place, depth + 1)
    raise IndexError(f"a value of the unknown type {kind}")


def _integer(data: mmap.mmap, place: int) -> tuple[int, int]:
    value, place = _varint(data, place)
    return value >> 1 ^ -(value & 1), place


def _varint(data: mmap.mmap, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[place]
        value |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return value, place
        shift += 7
    raise IndexError("a number of more than 64 bits")
