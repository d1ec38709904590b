"""Safe reading of untrusted `.npy` files: numbers only, and never more than the file holds."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import read_file

MOST_BYTES = 2**20
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_array(path: str | Path) -> np.ndarray:
    """The array of numbers or truth values in a `.npy` file."""
    try:
        data = read_file(path, MOST_BYTES)
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
