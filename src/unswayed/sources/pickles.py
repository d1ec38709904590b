"""Safe reading of untrusted pickles (dicts, lists, tuples, strings, bytes and numbers, no code) and `.npy` files.

A pickle is a list of operations. They are checked before any of them is carried out: Python's unpickler imports what it
is told to, nine bytes can make its memo take gigabytes, and a container that is used in several places can take for
ever to hash.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import read_file

MOST_BYTES = 32 * 2**20
MOST_OPERATIONS = 100_000
MOST_NESTED = 16
MOST_TUPLES = 1000  # the only containers that can be keys, and hashing nested ones takes space on the stack
# What the operations leave on top of the stack: a plain value, of which pickletools decodes most, or a container.
_VALUES = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "NONE", "NEWTRUE"),
    *("NEWFALSE", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "GLOBAL", "STACK_GLOBAL", "REDUCE"),
)
_TUPLES = ("EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "TUPLE")
_CONTAINERS = (*_TUPLES, *("LIST", "DICT", "EMPTY_LIST", "EMPTY_DICT", "APPEND", "APPENDS", "SETITEM", "SETITEMS"))
_PUTS, _GETS = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), ("GET", "BINGET", "LONG_BINGET")


def read_pickle(path: str | Path) -> object:
    """The plain data in a pickle file; a pickle that imports anything is refused, with the name in the message."""
    return parse_pickle(_content(path, MOST_BYTES), str(path))


def _content(path: str | Path, most: int) -> bytes:
    try:
        return read_file(path, most)
    except UserError as error:
        raise BadPicture(f"{path}: cannot be read ({error.given})", allowed=error.allowed) from None


def parse_pickle(data: bytes, where: str) -> object:
    """The plain data in the bytes of a pickle; `where` is the file's name for an error."""
    try:
        value = _PlainUnpickler(io.BytesIO(_checked(data)), encoding="latin1").load()
        _check_value(value)
        return value
    except _Refused as refusal:
        raise BadPicture(
            f"{where}: refused, because the pickle {refusal}", allowed="dict, list, tuple, str, bytes and numbers"
        ) from None
    except Exception as error:  # what a damaged pickle raises depends on where it is damaged
        raise BadPicture(f"{where}: the pickle is damaged ({error or type(error).__name__})") from None


class _Refused(Exception):
    """Why the pickle is not read, as the second half of a sentence."""


def _checked(data: bytes) -> bytes:
    """The pickle, if all its operations are harmless; its memo is numbered from 0, without what is never recalled."""
    top, memo = "", dict[object, str]()  # the operations that left what is on top of the stack, and what is remembered
    tuples = 0
    for count, (operation, argument, _) in enumerate(pickletools.genops(data)):
        name = operation.name
        if count > MOST_OPERATIONS:
            raise _Refused(f"has more than {MOST_OPERATIONS:,} operations")
        if name in _PUTS:
            memo[len(memo) if argument is None else argument] = top
        elif name in _GETS:
            if memo[argument] in (*_CONTAINERS, "MARK"):
                raise _Refused("uses one container in several places")
            top = name
        elif name in _VALUES or name in _CONTAINERS or name == "MARK":
            tuples, top = tuples + (name in _TUPLES), name
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise _Refused(f"contains the operation {name}")
    if tuples > MOST_TUPLES:
        raise _Refused(f"has more than {MOST_TUPLES:,} tuples")
    return pickletools.optimize(data)


class _PlainUnpickler(pickle.Unpickler):
    """Python's unpickler with only those functions that old protocols call to write bytes."""

    written = 0

    def find_class(self, module: str, name: str) -> Callable[..., bytes]:
        if (module, name) in (("_codecs", "encode"), ("codecs", "encode")):
            return self._latin_bytes
        if (module, name) in (("builtins", "bytes"), ("__builtin__", "bytes")):
            return lambda: b""
        raise _Refused(f"would import {module}.{name}")

    def _latin_bytes(self, text: str, encoding: str) -> bytes:
        if not isinstance(text, str) or encoding != "latin1":
            raise ValueError("bytes with an unknown encoding")
        self.written += len(text)
        if self.written > MOST_BYTES:  # one text may be written many times
            raise _Refused(f"writes more than {MOST_BYTES:,} bytes")
        return text.encode("latin1")


def _check_value(value: object) -> None:
    """Refuse containers that are nested too deeply or are keys, and anything that is neither a container nor plain."""
    level = [value]
    for _ in range(MOST_NESTED + 1):
        holders = [item for item in level if isinstance(item, (dict, list, tuple))]
        if any(callable(item) for item in level):
            raise ValueError("a function that is not called")
        keys = [key for holder in holders if isinstance(holder, dict) for key in holder]
        if any(isinstance(key, tuple) or callable(key) for key in keys):
            raise _Refused("has a container as a key")
        level = [item for holder in holders for item in (holder.values() if isinstance(holder, dict) else holder)]
    if level:
        raise _Refused(f"is nested more than {MOST_NESTED} deep")


MOST_ARRAY_BYTES = 2**20
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_array(path: str | Path) -> np.ndarray:
    """The array of numbers or truth values in a `.npy` file."""
    return parse_array(_content(path, MOST_ARRAY_BYTES), str(path))


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
