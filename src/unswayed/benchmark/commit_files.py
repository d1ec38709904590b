"""Writing files that belong together: to temporary files first, then all are synced and renamed at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from unswayed.files.storage import upload
from unswayed.files.whole import PART, explained, open_beside


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
    for one in waiting:
        with explained(one.path):
            os.replace(one.part, one.path)


def _sync(one: Waiting) -> None:
    with explained(one.path):
        handle = os.open(one.part, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        upload(one.part, one.path)


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
