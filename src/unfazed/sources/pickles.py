"""Safe reading of untrusted pickles: dicts, lists, strings, bytes and numbers, and no code."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

from unfazed.errors import BadPicture

MOST_BYTES = 256 * 2**20


def read_pickle(path: str | Path) -> Any:
    """The plain data in a pickle file; a pickle that imports anything is refused, with the name in the message."""
    path = Path(path)
    try:
        data = path.read_bytes() if path.stat().st_size <= MOST_BYTES else None
    except OSError as error:
        raise BadPicture(f"{path}: cannot be read ({error.strerror})") from None
    if data is None:
        raise BadPicture(f"{path}: the pickle is too large", allowed=f"at most {MOST_BYTES >> 20} MiB")
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except _Refused as refusal:
        raise BadPicture(
            f"{path}: refused, because the pickle would import {refusal}",
            allowed="dict, list, str, bytes and numbers",
        ) from None
    except Exception as error:
        raise BadPicture(f"{path}: the pickle is damaged ({error or type(error).__name__})") from None


class _Refused(Exception):
    """The name that the pickle would import."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # Old protocols write bytes as a call of one of these two; our replacements do only that.
        if (module, name) in (("_codecs", "encode"), ("codecs", "encode")):
            return _latin_bytes
        if (module, name) in (("builtins", "bytes"), ("__builtin__", "bytes")):
            return _empty_bytes
        raise _Refused(f"{module}.{name}")


def _latin_bytes(text: str, encoding: str) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("bytes with an unknown encoding")
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    return b""
