"""Files that belong together: written one by one, brought to the disk and into their places at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from unfazed.files import PART, explained, open_beside


@dataclass(frozen=True)
class Waiting:
    """A file that is written beside its place and waits to be settled."""

    part: Path
    path: Path


def write_beside(path: Path, data: bytes) -> Waiting:
    """`data` in a file beside `path`; nothing is forced to the disk yet, so this is quick and may run in any thread."""
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
    """Every file on the disk, then every file in its place.

    Synced at the same time, because the file system then brings them to the disk together: a source's pictures cost
    a tenth of what they cost one after another. What names these files is written (and synced) after this returns.
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


def forget(files: Iterable[Waiting]) -> None:
    """The files that will not be settled, removed."""
    for one in files:
        with contextlib.suppress(OSError):
            one.part.unlink()


def sweep(root: Path) -> None:
    """What a killed run left beside the places of its files, removed."""
    for part in root.rglob(f".*{PART}"):
        with contextlib.suppress(OSError):
            part.unlink()
