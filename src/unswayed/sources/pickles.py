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


def read_pickle(path: str | Path) -> object:
    """The plain data in a pickle file; a pickle that imports anything is refused, with the name in the message."""
    try:
        data = read_file(path, MOST_BYTES)
    except UserError as error:
        raise BadPicture(f"{path}: cannot be read ({error.given})", allowed=error.allowed) from None
    return parse_pickle(data, str(path))


def parse_pickle(data: bytes, where: str) -> object:
    """The plain data in the bytes of a pickle; `where` is the file's name for an error."""
    stack = _Stack()
    try:
        for count, (operation, argument, _) in enumerate(pickletools.genops(io.BytesIO(data))):
            if count > MOST_OPERATIONS:
                raise _Refused(f"has more than {MOST_OPERATIONS:,} operations")
            if operation.name == "STOP":
                return stack.take(1)[0][0]
            if operation.name not in _OPERATIONS:
                raise _Refused(f"contains the operation {operation.name}")
            _OPERATIONS[operation.name](stack, argument)
        raise ValueError("it ends too early")
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


class _Stack:
    """The values that operations leave for later ones, and those that they remember by number.

    depths: of each value 0 for a plain one, 1 for a container of plain values, …
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.depths: list[int] = []
        self.memo: dict[int, object] = {}

    def push(self, value: object, depth: int = 0) -> None:
        self.values.append(value)
        self.depths.append(depth)

    def pop(self) -> Any:
        self.depths.pop()
        return self.values.pop()

    def take(self, count: int | None) -> tuple[list[Any], int]:
        """The last `count` values, or those since the mark, and the nesting of a container that holds them."""
        marked = count is None
        if count is None:
            count = next(count for count, value in enumerate(reversed(self.values)) if isinstance(value, _Mark))
        start = len(self.values) - count
        if start < 0:
            raise ValueError("the stack is empty")
        items, depth = self.values[start:], max(self.depths[start:], default=0) + 1
        del self.values[start:], self.depths[start:]
        if depth > MOST_NESTED:
            raise _Refused(f"is nested more than {MOST_NESTED} deep")
        if any(isinstance(item, _Mark) or callable(item) for item in items):
            raise ValueError("a container of something that is no value")
        if marked:
            self.pop()
        return items, depth

    def build(self, kind: Callable[[list[Any]], Any], count: int | None) -> None:
        items, depth = self.take(count)
        self.push(kind(items), depth)

    def extend(self, kind: type, count: int | None) -> None:
        """Add items to the list, or pairs to the dict, on top of the stack."""
        items, depth = self.take(count)
        if not isinstance(self.values[-1], kind):
            raise ValueError(f"the items do not belong to a {kind.__name__}")
        self.depths[-1] = max(self.depths[-1], depth)
        holder: Any = self.values[-1]
        holder.extend(items) if kind is list else holder.update(_pairs(items))

    def remember(self, number: int | None) -> None:
        self.memo[len(self.memo) if number is None else number] = self.values[-1]

    def recall(self, number: int) -> None:
        if isinstance(self.memo[number], (list, dict, tuple, _Mark)):
            raise _Refused("uses one container in several places")
        self.push(self.memo[number])

    def find(self, names: str | None) -> None:
        """Push a function that does only what old protocols call it for, which is to write bytes."""
        module, name = map(str, self.take(2)[0]) if names is None else names.split(" ", 1)
        if (module, name) not in _FUNCTIONS:
            raise _Refused(f"would import {module}.{name}")
        self.push(_FUNCTIONS[module, name])

    def call(self) -> None:
        [arguments], _ = self.take(1)
        self.push(self.pop()(*arguments))


def _pairs(items: list[object]) -> dict[object, object]:
    keys = items[::2]
    if len(items) % 2:
        raise ValueError("a key without a value")
    if not all(isinstance(key, (str, bytes, int, float, type(None))) for key in keys):
        raise _Refused("has a container as a key")
    return dict(zip(keys, items[1::2], strict=True))


def _latin_bytes(text: str, encoding: str) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("bytes with an unknown encoding")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


_FUNCTIONS: dict[tuple[str, str], Callable[..., bytes]] = {
    **dict.fromkeys((("_codecs", "encode"), ("codecs", "encode")), _latin_bytes),
    **dict.fromkeys((("builtins", "bytes"), ("__builtin__", "bytes")), _no_bytes),
}
# pickletools decodes the value of each of these.
_VALUES = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)
_OPERATIONS: dict[str, Callable[[_Stack, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda stack, _: None),
    **dict.fromkeys(_VALUES, lambda stack, value: stack.push(value)),
    "NONE": lambda stack, _: stack.push(None),
    "NEWTRUE": lambda stack, _: stack.push(True),
    "NEWFALSE": lambda stack, _: stack.push(False),
    "MARK": lambda stack, _: stack.push(_Mark()),
    "EMPTY_TUPLE": lambda stack, _: stack.push((), 1),
    "TUPLE1": lambda stack, _: stack.build(tuple, 1),
    "TUPLE2": lambda stack, _: stack.build(tuple, 2),
    "TUPLE3": lambda stack, _: stack.build(tuple, 3),
    "TUPLE": lambda stack, _: stack.build(tuple, None),
    "LIST": lambda stack, _: stack.build(list, None),
    "DICT": lambda stack, _: stack.build(_pairs, None),
    "EMPTY_LIST": lambda stack, _: stack.push([], 1),
    "EMPTY_DICT": lambda stack, _: stack.push({}, 1),
    "APPEND": lambda stack, _: stack.extend(list, 1),
    "APPENDS": lambda stack, _: stack.extend(list, None),
    "SETITEM": lambda stack, _: stack.extend(dict, 2),
    "SETITEMS": lambda stack, _: stack.extend(dict, None),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Stack.remember),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Stack.recall),
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL"), _Stack.find),
    "REDUCE": lambda stack, _: stack.call(),
}


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
