"""Reading weights files that need not be trusted: safetensors, or a `.pt` read without running code in it."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unswayed.errors import UserError

from .whole import check_regular, write_bytes

if TYPE_CHECKING:
    import torch

AGAIN = "copy or fetch the file again"
LONGEST_HEADER = 100_000_000  # bytes of the header of a safetensors file
_OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the first bytes of a `.pt` in the format before zip
_CODE = "GLOBAL|nsupported global|nsupported class"  # in torch's messages about a pickle with code


def read_tensor_file(path: str | Path, run: str = AGAIN) -> Any:
    """The file's content on the CPU: a dict of tensors for safetensors, any content for a `.pt`.

    run: the advice in the error for a damaged file or one that is not a weights file.
    """
    path = Path(path)
    check_regular(path)
    if not os.access(path, os.R_OK):
        raise UserError(f"{path} cannot be read: no permission")
    start = _start(path, 9)
    # A safetensors file of any name begins with the length of its header, then has the header.
    if path.suffix == ".safetensors" or (start[8:] == b"{" and int.from_bytes(start[:8], "little") <= LONGEST_HEADER):
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except Exception as error:
            raise UserError(f"{_sized(path)} is truncated or not a safetensors file: {error}", run=run) from None
    if (problem := damage(path)) is not None:
        raise UserError(f"{path} is damaged: {problem}", run=run)
    return _torch(path, run)


def write_tensor_file(
    path: str | Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str] | None = None
) -> None:
    """The tensors as a safetensors file, on the CPU and contiguous."""
    from safetensors.torch import save

    here = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, save(here, metadata=metadata))


def damage(path: str | Path) -> str | None:
    """What is wrong with a `.pt` (a zip) by its own checksums, which torch does not check; None if nothing is.

    Files of the old format have no checksums; if torch was told not to write them, all are wrong and are ignored.
    """
    try:
        if not zipfile.is_zipfile(path):
            return None
        with zipfile.ZipFile(path) as archive:
            # torch stores its records without compression; a compressed one could be of any size.
            if sum(record.file_size for record in archive.infolist()) > 2 * os.path.getsize(path) + 2**20:
                return "its records are compressed"
            names = [record.filename for record in archive.infolist() if record.file_size]
            wrong = []
            for name in names:
                try:
                    with archive.open(name) as record:
                        while record.read(1 << 22):
                            pass
                except Exception:
                    wrong.append(name)
    except Exception as error:  # a damaged table of records causes many kinds of errors
        return str(error)
    if not wrong or len(wrong) == len(names):
        return None
    return f"{len(wrong)} of its {len(names)} records, e.g. {wrong[0]}, do not match their checksums"


def _torch(path: Path, run: str) -> object:
    import torch

    try:
        with torch.serialization.safe_globals(_harmless()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = next((line.strip()[:160] for line in str(error).splitlines() if re.search(_CODE, line)), None)
        start = _start(path, len(_OLD_TORCH))
        if wanted is None and start.startswith(b"\x80") and start != _OLD_TORCH:
            wanted = "it is a bare pickle"
        if wanted is not None:
            raise UserError(
                f"{path} holds more than tensors (a pickle with code) and was not opened: {wanted}",
                allowed="safetensors, or a torch file of tensors, dicts, lists, numbers and strings",
                run="torch.save(module.state_dict(), 'weights.pt') if you trust the file, then use weights.pt",
            ) from None
        cause = ""
    except Exception as error:  # torch raises many kinds of errors for a damaged file
        cause = (str(error).splitlines() or [""])[0]
    begins = f"it begins with {_start(path, 16)!r}"
    raise UserError(
        f"{_sized(path)} is truncated or not a weights file: {cause if ' ' in cause else begins}",
        allowed=".pt or .safetensors",
        run=run,
    )


def _harmless() -> list[Any]:
    """Plain containers that training scripts save beside the weights: the arguments, and numbers of numpy."""
    import argparse

    import numpy as np

    kinds = {type(np.dtype(kind)) for kind in (np.float64, np.float32, np.float16, np.int64, np.int32, np.bool_)}
    scalar, array = np.float64(0).__reduce__()[0], np.zeros(1).__reduce__()[0]
    # Files of numpy 1 name the functions that rebuild a number or an array in another module.
    older = [(scalar, "numpy.core.multiarray.scalar"), (array, "numpy.core.multiarray._reconstruct")]
    return [argparse.Namespace, np.dtype, np.ndarray, *kinds, scalar, array, *older]


def _sized(path: Path) -> str:
    return f"{path} ({path.stat().st_size:,} bytes)"


def _start(path: Path, count: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(count)
