"""Safe reading of untrusted pickles (dicts, lists, tuples, strings, bytes and numbers, no code) and `.npy` files.

Python's unpickler is not used: nine bytes can make its memo take gigabytes. Here every operation is checked before it
is carried out, each container is used in one place only, and size, nesting and the number of operations are bounded.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import read_file

MOST_BYTES = 32 * 2**20
MOST_OPERATIONS = 100_000
MOST_NESTED = 16

_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_IGNORED = frozenset({"PROTO", "FRAME"})
# pickletools decodes the value of each of these.
_VALUES = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def read_pickle(path: str | Path) -> Any:
    """The plain data in a pickle file; a pickle that imports anything is refused, with the name in the message."""
    try:
        data = read_file(path, MOST_BYTES)
    except UserError as error:
        raise BadPicture(f"{path}: cannot be read ({error.given})", allowed=error.allowed) from None
    return parse_pickle(data, str(path))


def parse_pickle(data: bytes, where: str) -> Any:
    """The plain data in the bytes of a pickle; `where` is the file's name for an error."""
    try:
        return _interpret(data)
    except _Refused as refusal:
        raise BadPicture(
            f"{where}: refused, because the pickle {refusal}", allowed="dict, list, tuple, str, bytes and numbers"
        ) from None
    except Exception as error:  # what a damaged pickle raises depends on where it is damaged
        raise BadPicture(f"{where}: the pickle is damaged ({error or type(error).__name__})") from None


class _Refused(Exception):
    """Why the pickle is not read, as the second half of a sentence."""


class _Mark:
    """The place on the stack where the items of the next container begin."""


def _interpret(data: bytes) -> Any:
    stack: list[Any] = []
    depths: list[int] = []  # of each value on the stack: 0 for a plain value, 1 for a container of those, …
    memo: dict[int, Any] = {}

    def push(value: Any, depth: int = 0) -> None:
        stack.append(value)
        depths.append(depth)

    def take(count: int) -> tuple[list[Any], int]:
        """The last `count` values, and the nesting of a container that holds them."""
        if count > len(stack):
            raise ValueError("the stack is empty")
        start = len(stack) - count
        items, depth = stack[start:], max(depths[start:], default=0) + 1
        del stack[start:], depths[start:]
        if depth > MOST_NESTED:
            raise _Refused(f"is nested more than {MOST_NESTED} deep")
        if any(isinstance(item, _Mark) or callable(item) for item in items):
            raise ValueError("a container of something that is no value")
        return items, depth

    def since_mark() -> tuple[list[Any], int]:
        place = next((place for place in reversed(range(len(stack))) if isinstance(stack[place], _Mark)), None)
        if place is None:
            raise ValueError("there is no mark")
        taken = take(len(stack) - place - 1)
        stack.pop()
        depths.pop()
        return taken

    def holder(kind: type, depth: int) -> Any:
        """The container on the stack that gets items of this depth."""
        if not isinstance(stack[-1], kind):
            raise ValueError(f"the items do not belong to a {kind.__name__}")
        depths[-1] = max(depths[-1], depth)
        return stack[-1]

    argument: Any
    for count, (operation, argument, _) in enumerate(pickletools.genops(io.BytesIO(data))):
        name = operation.name
        if count > MOST_OPERATIONS:
            raise _Refused(f"has more than {MOST_OPERATIONS:,} operations")
        if name in _VALUES:
            push(argument)
        elif name in _CONSTANTS:
            push(_CONSTANTS[name])
        elif name == "MARK":
            push(_Mark())
        elif name in _TUPLES:
            items, depth = take(_TUPLES[name])
            push(tuple(items), depth)
        elif name in ("TUPLE", "LIST"):
            items, depth = since_mark()
            push(tuple(items) if name == "TUPLE" else items, depth)
        elif name == "DICT":
            items, depth = since_mark()
            push(_pairs(items), depth)
        elif name == "EMPTY_LIST":
            push([], 1)
        elif name == "EMPTY_DICT":
            push({}, 1)
        elif name in ("APPEND", "APPENDS"):
            items, depth = take(1) if name == "APPEND" else since_mark()
            holder(list, depth).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items, depth = take(2) if name == "SETITEM" else since_mark()
            holder(dict, depth).update(_pairs(items))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            if isinstance(memo[argument], (list, dict, tuple, _Mark)):
                raise _Refused("uses one container in several places")
            push(memo[argument])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            module, attribute = argument.split(" ", 1) if name == "GLOBAL" else take(2)[0]
            push(_known(str(module), str(attribute)))
        elif name == "REDUCE":
            [arguments], _ = take(1)
            function = stack.pop()
            depths.pop()
            push(function(*arguments))
        elif name == "STOP":
            return take(1)[0][0]
        elif name not in _IGNORED:
            raise _Refused(f"contains the operation {name}")
    raise ValueError("it ends too early")


def _pairs(items: list[Any]) -> dict[Any, Any]:
    keys = items[::2]
    if len(items) % 2:
        raise ValueError("a key without a value")
    if not all(isinstance(key, (str, bytes, int, float, type(None))) for key in keys):
        raise _Refused("has a container as a key")
    return dict(zip(keys, items[1::2], strict=True))


def _known(module: str, name: str) -> Callable[..., bytes]:
    # Old protocols write bytes as a call of one of these two; our replacements do only that.
    if (module, name) in (("_codecs", "encode"), ("codecs", "encode")):
        return _latin_bytes
    if (module, name) in (("builtins", "bytes"), ("__builtin__", "bytes")):
        return _empty_bytes
    raise _Refused(f"would import {module}.{name}")


def _latin_bytes(text: str, encoding: str) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("bytes with an unknown encoding")
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    return b""


MOST_ARRAY_BYTES = 2**20
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_array(path: str | Path) -> np.ndarray:
    """The array of numbers or truth values in a `.npy` file."""
    try:
        data = read_file(path, MOST_ARRAY_BYTES)
    except UserError as error:
        raise BadPicture(f"{path}: {error.given}", allowed=error.allowed) from None
    return parse_array(data, str(path))


def parse_array(data: bytes, where: str) -> np.ndarray:
    """The array in the bytes of a `.npy` file; `where` is the file's name for an error."""
    file = io.BytesIO(data)
    try:
        shape, by_columns, kind = _HEADERS[np.lib.format.read_magic(file)](file)
        content = data[file.tell() :]
        # The header alone decides how much would be allocated, so it is compared with what is there.
        if kind.kind not in "biuf" or len(content) != math.prod(shape) * kind.itemsize:
            raise ValueError(f"{len(content)} bytes for {shape} of {kind}")
        return np.frombuffer(content, kind).reshape(shape, order="F" if by_columns else "C")
    except Exception as error:  # what a damaged header raises depends on where it is damaged
        raise BadPicture(f"{where}: the file is not an array of numbers ({str(error)[:200]})") from None
