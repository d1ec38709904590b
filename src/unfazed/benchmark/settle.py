"""Files that belong together: written one by one, brought to the disk and into their places at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
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

    By the time the first is synced most of the others have been written by the system, so a source's pictures cost
    little more than one of them. What names these files is written (and synced) after this returns.
    """
    waiting = list(files)
    for one in waiting:
        with explained(one.path):
            handle = os.open(one.part, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    for one in waiting:
        with explained(one.path):
            os.replace(one.part, one.path)


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
