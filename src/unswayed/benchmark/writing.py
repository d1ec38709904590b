"""Writing pictures, masks and rows: to temporary files first, then all of a source are synced and renamed at once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from unswayed.files.storage import upload
from unswayed.files.whole import PART, explained, open_beside
from unswayed.rendering.layers import Refused, Rendered, mask_levels, png, written_rate

from .measures import background_measures
from .prepare import PreparedPicture
from .quality import judged
from .rows import Row, mask_path, picture_path


@dataclass(frozen=True)
class Waiting:
    """A temporary file `part` next to `path`, waiting to be renamed."""

    part: Path
    path: Path


def write_beside(path: Path, data: bytes) -> Waiting:
    """Write `data` to a temporary file next to `path`, without a sync, so this is quick and may run in any thread."""
    with explained(path):
        part, file = open_beside(path)
        try:
            with file:
                file.write(data)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
    return Waiting(part, path)


def settle(files: Iterable[Waiting]) -> None:
    """Sync every file to the disk, upload it if its path lies in a working copy, then rename every file to its path.

    The files are synced in parallel because the file system then writes them together, in a tenth of the time. Files
    that refer to these are written (and synced) after this returns.
    """
    waiting = list(files)
    if not waiting:
        return
    with ThreadPoolExecutor(min(8, len(waiting)), thread_name_prefix="settle") as pool:
        list(pool.map(_sync, waiting))
    for file in waiting:
        with explained(file.path):
            os.replace(file.part, file.path)


def _sync(file: Waiting) -> None:
    with explained(file.path):
        handle = os.open(file.part, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        upload(file.part, file.path)


def sweep(root: Path, ids: Collection[str] | None = None) -> None:
    """Remove the temporary files that a killed run left; ids: only those of these sources."""
    for part in root.rglob(f".*{PART}"):
        if ids is None or any(owner in ids for owner in _owners(part.name)):
            with contextlib.suppress(OSError):
                part.unlink()


def _owners(name: str) -> Iterator[str]:
    """The ids of the sources that a temporary file can belong to: its name begins with one, followed by a dot.

    >>> list(_owners(".dog.run1.png.part"))
    ['dog', 'dog.run1', 'dog.run1.png']
    """
    dots = [place for place, letter in enumerate(name) if letter == "."][1:]
    return (name[1:dot] for dot in dots)


@dataclass(frozen=True)
class Written:
    """A row with its hashes, its temporary files, and the seconds spent on encoding, writing and measuring."""

    row: Row
    files: tuple[Waiting, ...] = ()
    encode: float = 0.0
    write: float = 0.0
    judge: float = 0.0


def write_picture(root: Path, picture: PreparedPicture, answer: Rendered | Refused) -> Written:
    """Write the picture and its mask to temporary files, or put the renderer's refusal into the row.

    Its validity is measured unless the row already has it, or there is no evidence to measure it with.
    """
    row, layers, evidence = picture.row, picture.layers, picture.evidence
    assert layers is not None
    if isinstance(answer, Refused):
        return Written(replace(row, status=answer.status, reason=answer.reason))
    began = time.perf_counter()
    if evidence is not None and row.validity is None:
        row = judged(row, layers, answer, evidence)
    started = time.perf_counter()
    levels = mask_levels(layers.mask)
    image, mask = png(answer.image), png(levels)
    encoded = time.perf_counter()
    path, beside = picture_path(row.edit, row.source_id, row.run), mask_path(row.edit, row.source_id, row.run)
    files = write_beside(root / path, image), write_beside(root / beside, mask)
    done = replace(
        row,
        path=path,
        sha256=_hash(image),
        mask_path=beside,
        mask_sha256=_hash(mask),
        pixel_rate=written_rate(levels),
        measures={**answer.measures, **({} if evidence is None else background_measures(answer.image, layers.mask))},
    )
    return Written(done, files, encoded - started, time.perf_counter() - encoded, started - began)


def write_file(root: Path, row: Row, data: bytes) -> Written:
    """Write unchanged bytes to a temporary file."""
    assert row.path is not None
    started = time.perf_counter()
    waiting = write_beside(root / row.path, data)
    return Written(replace(row, sha256=_hash(data)), (waiting,), write=time.perf_counter() - started)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
