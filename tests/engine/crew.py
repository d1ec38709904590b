"""Workers for the tests of the engine: top-level, because a spawned process imports them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from unfazed.errors import UserError


def double(number: int) -> int:
    return 2 * number


def whoami(_: int) -> tuple[int, dict[str, int | str]]:
    import cv2
    import torch

    return os.getpid(), {"torch": torch.get_num_threads(), "opencv": cv2.getNumThreads()}


def complain(number: int) -> int:
    raise UserError(f"number {number} will not do", allowed="none")


def misread(number: int) -> int:
    raise EOFError("the file ends early")


@dataclass(frozen=True)
class Fragile:
    """Dies on the tasks in `deadly`: once where `folder` is given (a mark is left there), else every time."""

    deadly: tuple[int, ...]
    folder: str | None = None

    def __call__(self, number: int) -> int:
        if number in self.deadly:
            mark = Path(self.folder or "/nowhere", str(number))
            if self.folder is None or not mark.exists():
                if self.folder is not None:
                    mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return number


class Counting:
    """Counts its own calls, so that a test sees whether a process keeps its worker."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _: int) -> tuple[int, int]:
        self.calls += 1
        return os.getpid(), self.calls


def slow(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()
