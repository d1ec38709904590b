"""Reading weights files that need not be trusted: safetensors, or a `.pt` read without running code in it."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unswayed.errors import UserError

from .whole import check_regular, write_bytes

AGAIN = "copy or fetch the file again"
_PICKLE = b"\x80"
_OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the first bytes of a `.pt` in the format before zip


def read_tensor_file(path: str | Path, run: str = AGAIN) -> Any:
    """The file's content on the CPU: a dict of tensors for safetensors, any content for a `.pt`.

    run: the advice in the error for a damaged file or one that is not a weights file.
    """
    path = Path(path)
    check_regular(path)
    if not os.access(path, os.R_OK):
        raise UserError(f"{path} cannot be read: no permission")
    if path.suffix == ".safetensors" or _begins_as_safetensors(path):
        return _safetensors(path, run)
    found = damage(path)
    if found is not None:
        raise UserError(f"{path} is damaged: {found}", run=run)
    return _torch(path, run)


def write_tensor_file(path: str | Path, tensors: Mapping[str, Any], metadata: dict[str, str] | None = None) -> None:
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
            wrong = [name for name in names if not _as_written(archive, name)]
    except Exception as error:  # a damaged table of records causes many kinds of errors
        return str(error)
    if not wrong or len(wrong) == len(names):
        return None
    return f"{len(wrong)} of its {len(names)} records, e.g. {wrong[0]}, do not match their checksums"


def _as_written(archive: zipfile.ZipFile, name: str) -> bool:
    try:
        with archive.open(name) as record:
            while record.read(1 << 22):
                pass
    except Exception:
        return False
    return True


def _begins_as_safetensors(path: Path) -> bool:
    """Whether a file of any name is safetensors: the length of a header (at most 100 MB), then the header."""
    start = _start(path, 9)
    return start[8:] == b"{" and int.from_bytes(start[:8], "little") <= 100_000_000


def _safetensors(path: Path, run: str) -> Any:
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except Exception as error:
        raise UserError(f"{_sized(path)} is truncated or not a safetensors file: {error}", run=run) from None


def _torch(path: Path, run: str) -> Any:
    import torch

    try:
        with torch.serialization.safe_globals(_harmless()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = _wanted(error) or _bare_pickle(path)
        if wanted is not None:
            raise UserError(
                f"{path} holds more than tensors (a pickle with code) and was not opened: {wanted}",
                allowed="safetensors, or a torch file of tensors, dicts, lists, numbers and strings",
                run="torch.save(module.state_dict(), 'weights.pt') if you trust the file, then use weights.pt",
            ) from None
        cause = ""
    except Exception as error:  # torch raises many kinds of errors for a damaged file
        cause = (str(error).splitlines() or [""])[0]
    raise UserError(
        f"{_sized(path)} is truncated or not a weights file: {cause if ' ' in cause else _begins(path)}",
        allowed=".pt or .safetensors",
        run=run,
    )


def _harmless() -> list[Any]:
    """Plain containers that training scripts save beside the weights: the arguments, and numbers of numpy."""
    import argparse

    import numpy as np

    kinds = {type(np.dtype(kind)) for kind in (np.float64, np.float32, np.float16, np.int64, np.int32, np.bool_)}
    return [argparse.Namespace, np.dtype, np.ndarray, *kinds, *_numpy_readers()]


def _numpy_readers() -> list[Any]:
    """numpy's functions that rebuild a number or an array; files of numpy 1 name them in another module."""
    import numpy as np

    rebuilt = (np.float64(0).__reduce__()[0], np.zeros(1).__reduce__()[0])
    names = ("scalar", "_reconstruct")
    return [*rebuilt, *((one, f"numpy.core.multiarray.{name}") for one, name in zip(rebuilt, names, strict=True))]


def _wanted(error: Exception) -> str | None:
    """The part of torch's long message that names what the pickle would run; None if there is none."""
    for line in str(error).splitlines():
        if "GLOBAL" in line or "nsupported global" in line or "nsupported class" in line:
            return line.strip()[:160]
    return None


def _bare_pickle(path: Path) -> str | None:
    """The description of a pickle that torch did not write; None for anything else, such as a truncated torch file."""
    start = _start(path, len(_OLD_TORCH))
    return "it is a bare pickle" if start.startswith(_PICKLE) and start != _OLD_TORCH else None


def _sized(path: Path) -> str:
    return f"{path} ({path.stat().st_size:,} bytes)"


def _begins(path: Path) -> str:
    return f"it begins with {_start(path, 16)!r}"


def _start(path: Path, count: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(count)
