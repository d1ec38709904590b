"""Damaged copies of valid files: bytes that are flipped, cut or replaced; JSON and tables with hostile values."""

from __future__ import annotations

import functools
import io
import json
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

_INTERESTING = (
    b"\x00",
    b"\xff" * 4,
    b"\xff" * 8,
    b"\x00" * 8,
    b"\x7f\xff\xff\xff",
    b"-1",
    b"NaN",
    b"9" * 30,
    b"\n",
    b'"',
    b"[" * 50,
)
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 2**31, 2**63, 2**64, -(2**63), 10**400, float("nan"), float("inf")),
    *("", "..", "../../etc/passwd", "/dev/zero", "a" * 5000, "x\0y", "\ud800", "=cmd|' /C calc'!A0", "9" * 5000),
    *("python:os:system", [], {}, [[]], [None], {"": None}, [1, "a"], [[[[[[[[[[]]]]]]]]]], "<script>", "−1"),
)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """One to four random changes of the bytes."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(changed) + 1)
        kind = draw.randrange(6)
        if kind == 0 and changed:
            changed[place % len(changed)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del changed[place:]
        elif kind == 2:
            changed[place:place] = draw.choice(_INTERESTING)
        elif kind == 3:
            end = min(len(changed), place + draw.randint(1, 32))
            changed[place:end] = draw.randbytes(end - place)
        elif kind == 4:
            length = draw.randint(1, 64)
            changed[place:place] = changed[place : place + length]
        else:
            word = draw.choice(_INTERESTING)
            changed[place : place + len(word)] = word
    return bytes(changed)


def damaged_json(data: bytes, draw: random.Random) -> bytes:
    """JSON in which one or two values are hostile, gone, renamed or in the wrong place; sometimes damaged bytes."""
    if draw.random() < 0.25:
        return damaged(data, draw)
    value = json.loads(data)
    for _ in range(draw.randint(1, 2)):
        value = _changed(value, draw)
    if draw.random() < 0.02:
        return b"[" * 100_000
    return json.dumps(value).encode()


def _changed(value: Any, draw: random.Random) -> Any:
    if not isinstance(value, (dict, list)) or not value or draw.random() < 0.15:
        return draw.choice(HOSTILE)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key, kind = draw.choice(keys), draw.random()
    copy = dict(value) if isinstance(value, dict) else list(value)
    if kind < 0.1:
        del copy[key]
    elif kind < 0.15 and isinstance(copy, dict):
        copy[str(draw.choice(HOSTILE))] = copy.pop(key)
    elif kind < 0.2:
        copy[key] = value[draw.choice(keys)]
    elif kind < 0.25:
        copy[key] = [value[key]] * draw.choice((2, 100))
    else:
        copy[key] = _changed(value[key], draw)
    return copy


def damaged_csv(data: bytes, draw: random.Random) -> bytes:
    """A CSV file in which a cell is hostile, gone or twice, or damaged bytes."""
    if draw.random() < 0.4:
        return damaged(data, draw)
    rows = [line.split(b",") for line in data.split(b"\n")]
    for _ in range(draw.randint(1, 2)):
        row = draw.choice(rows)
        place, kind = draw.randrange(len(row)), draw.random()
        if kind < 0.1:
            row.insert(place, row[place])
        elif kind < 0.2 and len(row) > 1:
            del row[place]
        else:
            row[place] = str(draw.choice(HOSTILE)).encode("utf-8", "replace")
    return b"\n".join(b",".join(row) for row in rows)


def damaged_lines(data: bytes, draw: random.Random) -> bytes:
    """Lines of JSON of which one is hostile, or damaged bytes."""
    lines = data.splitlines()
    place = draw.randrange(len(lines))
    lines[place] = damaged_json(lines[place], draw)
    return b"\n".join(lines)


def as_parquet(columns: dict[str, Any], **options: Any) -> bytes:
    """A Parquet file of these columns."""
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def other_columns(data: bytes, draw: random.Random) -> bytes:
    """The table with a column gone, renamed, of another type or with hostile values; or damaged bytes."""
    if draw.random() < 0.5:
        return damaged(data, draw)
    table = _table(data)
    place = draw.randrange(table.num_columns)
    name, kind = table.column_names[place], draw.random()
    if kind < 0.2:
        table = table.drop_columns(name)
    elif kind < 0.3:
        hostile = str(draw.choice(HOSTILE)).encode("utf-8", "replace").decode()
        table = table.rename_columns([hostile if one == name else one for one in table.column_names])
    else:
        hostile = draw.choice(_HOSTILE_CELLS)
        cells = [hostile if draw.random() < 0.7 else None for _ in range(table.num_rows)]
        table = table.set_column(place, name, pa.array(cells))
    file = io.BytesIO()
    parquet.write_table(table, file, compression="none", use_dictionary=draw.random() < 0.2, write_statistics=False)
    return file.getvalue()


@functools.cache
def _table(data: bytes) -> pa.Table:
    return parquet.read_table(io.BytesIO(data), use_threads=False)


def _is_cell(value: Any) -> bool:
    """Whether pyarrow can store the value."""
    if isinstance(value, (list, dict)) or value == "\ud800":
        return False
    return not isinstance(value, int) or -(2**63) <= value < 2**63


_HOSTILE_CELLS = (*filter(_is_cell, HOSTILE), b"\xff\xfe", [1], [[1]], {"a": 1})
