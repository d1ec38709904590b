"""A reader of files from outside, and a loop that gives it hostile inputs."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import random
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mutations import damaged

from unswayed.errors import UserError

MEMORY = Path("/dev/shm")  # a file system in memory, on Linux


@dataclass(frozen=True)
class Reader:
    """files: valid inputs; read: raises UserError or returns; mutate: makes a hostile input from one of `files` or of
    `hostile`, inputs that are refused."""

    files: list[bytes]
    read: Callable[[bytes], object]
    mutate: Callable[[bytes, random.Random], bytes] = damaged
    hostile: tuple[bytes, ...] = ()


class TooSlowError(BaseException):
    """A reader took too long. It is no Exception, so that no reader takes it for an error of the file."""


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """A folder in memory for the files of this process; it is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="unswayed-fuzz-", dir=MEMORY if MEMORY.is_dir() else None) as made:
        _PLACES["root"] = made
        yield Path(made)


_PLACES: dict[str, str] = {}


def placed(name: str, data: bytes) -> Path:
    """The path of a file with this content in the process's own folder."""
    path = _path(_PLACES["root"], name)
    with open(path, "wb", buffering=0) as file:
        file.write(data)
    return path


@functools.cache
def _path(root: str, name: str) -> Path:
    path = Path(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def small_png(high: int = 6, wide: int = 8) -> bytes:
    """A white gray-scale picture."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.full((high, wide), 255, np.uint8)).save(file, "PNG")
    return file.getvalue()


def fuzz(
    reader: Reader, draw: random.Random, inputs: int, slowest: float = 0.0, record: Path | None = None
) -> list[tuple[bytes, str]]:
    """The inputs, of so many, for which the reader raised something else than UserError, each with what; at most ten.

    slowest: seconds of CPU time after which an input counts as one that was not read, 0 for never; record: a file that
    always holds the current input, for readers that end the process.
    """
    warnings.simplefilter("ignore")
    pool = [*reader.files, *reader.hostile]
    escapes: list[tuple[bytes, str]] = []
    signal.signal(signal.SIGPROF, _too_slow)
    now = os.open(record, os.O_RDWR | os.O_CREAT) if record is not None else None
    for data in reader.files:
        reader.read(data)
    for _ in range(inputs):
        data = reader.mutate(draw.choice(pool), draw)
        if now is not None:
            os.ftruncate(now, os.pwrite(now, data, 0))
        signal.setitimer(signal.ITIMER_PROF, slowest)
        try:
            reader.read(data)
        except UserError:
            pass
        except (Exception, TooSlowError) as error:
            escapes.append((data, f"{type(error).__name__}: {error}"[:300]))
            if len(escapes) == 10:
                break
    signal.setitimer(signal.ITIMER_PROF, 0)
    if now is not None:
        os.close(now)
    return escapes


def _too_slow(*_: Any) -> None:
    raise TooSlowError("it took more CPU time than an input may take")
