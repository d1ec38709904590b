"""Damaged copies of valid files: bytes that are flipped, cut, repeated or replaced, and JSON with hostile values."""

from __future__ import annotations

import json
import random
from typing import Any

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
