"""`trained-on.bin` in the folder of a trained model: which photographs it was trained on, eight bytes for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unswayed.errors import UserError
from unswayed.files.whole import read_file, remove_file, write_bytes
from unswayed.sources.source import content_key

FILE = "trained-on.bin"
ORIGIN = "trained_on"  # the entry in the origin of a model that names its file
MUCH = 0.05  # share of photographs of the training from which on a model counts as not measured
_MOST = 2**32  # bytes
_KEY = np.dtype("<u8")


class Overlap(NamedTuple):
    """What is said about a model that is measured on photographs of its training; both None if it is not."""

    suspicion: str | None = None
    remark: str | None = None


def training_overlap(name: str, origin: Mapping[str, object], files: Iterable[str]) -> Overlap:
    """How many of these photographs a model of this origin was trained on: a suspicion if they are many, else a remark.

    files: those of the photographs; they are read only if the origin says what the model was trained on.
    """
    known = trained_on(origin)
    keys = [content_key(file) for file in dict.fromkeys(files) if Path(file).is_file()] if len(known) else []
    count = int(np.isin(np.array(keys, _KEY), known).sum())
    if not count:
        return Overlap()
    warning = f"{name}: {count} of the {len(keys)} photographs were in its training, so its numbers are too good"
    return Overlap(suspicion=warning) if count > MUCH * len(keys) else Overlap(remark=warning)


def keys_of(files: Iterable[str | Path]) -> np.ndarray:
    """(N,) sorted uint64, one number for the content of each of these files; a missing file has none."""
    return np.unique(np.array([content_key(file) for file in files if Path(file).is_file()], _KEY))


def trained_on(origin: Mapping[str, object]) -> np.ndarray:
    """(N,) sorted uint64: the photographs that a model of this origin was trained on, empty where they are unknown."""
    if ORIGIN not in origin:
        return np.zeros(0, _KEY)
    path = str(origin[ORIGIN])
    data = read_file(path, _MOST)
    if len(data) % _KEY.itemsize:
        raise UserError(f"{path} is damaged: it has {len(data)} bytes", allowed="a multiple of 8", run=f"rm {path}")
    return np.frombuffer(data, _KEY)


def write_trained_on(folder: str | Path, keys: np.ndarray | None, base: Mapping[str, object]) -> None:
    """Write which photographs a model was trained on, with those of its base; None if that is not known.

    base: the origin of the model that it was made from.
    """
    if keys is None:
        remove_file(Path(folder) / FILE)  # of a model that was there before
        return
    write_bytes(Path(folder) / FILE, np.union1d(keys, trained_on(base)).astype(_KEY).tobytes())


def origin_of(folder: Path) -> dict[str, str]:
    """The entry for the origin of a model that was opened from a folder; empty if the folder has no such file."""
    return {ORIGIN: str(folder / FILE)} if (folder / FILE).is_file() else {}
