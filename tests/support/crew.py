"""Workers for the tests of the engine: top-level, because a spawned process imports them."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unswayed.errors import UserError
from unswayed.jobs import Outcome
from unswayed.jobs.scheduling import counting_waits


def double(number: int) -> int:
    return 2 * number


def whoami(_: int) -> tuple[int, dict[str, int | str]]:
    import cv2
    import torch

    return os.getpid(), {"torch": torch.get_num_threads(), "opencv": cv2.getNumThreads()}


def complain(number: int) -> int:
    raise UserError(f"number {number} will not do", allowed="none")


@dataclass(frozen=True)
class Misreading:
    """Fails on the first of the two numbers always, and on the second only once: a mark is left in the folder."""

    numbers: tuple[int, int]
    folder: str

    def __call__(self, number: int) -> int:
        mark = Path(self.folder, "mark")
        if number == self.numbers[0] or (number == self.numbers[1] and not mark.exists()):
            if number == self.numbers[1]:
                mark.touch()
            raise EOFError("too short")
        return number


@dataclass(frozen=True)
class Placed:
    """Says on which device it was called, and in which process, when another device has been called as well."""

    folder: str

    def __call__(self, _: int, device: str) -> tuple[str, int]:
        Path(self.folder, device).touch()
        deadline = time.monotonic() + 100
        while len(list(Path(self.folder).iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        return device, os.getpid()


@dataclass(frozen=True)
class OnRay:
    """Says on which device and GPU of which node of a Ray cluster it was called, when as many others were called."""

    folder: str
    others: int

    def __call__(self, number: int, device: str) -> tuple[str, str, list[int]]:
        import ray

        Path(self.folder, str(number)).touch()
        deadline = time.monotonic() + 100
        while len(list(Path(self.folder).iterdir())) < self.others and time.monotonic() < deadline:
            time.sleep(0.01)
        return device, ray.get_runtime_context().get_node_id(), ray.get_gpu_ids()


class Stillborn:
    """Ends the process that receives it."""

    def __setstate__(self, _: object) -> None:
        os._exit(7)

    def __getstate__(self) -> dict[str, int]:
        return {"a": 1}

    def __call__(self, number: int) -> int:
        return number


@dataclass(frozen=True)
class Pairs:
    """Doubles numbers in groups of three, the last first; dies with a group that holds the deadly number."""

    deadly: int | None = None

    def stream(self, tasks: Iterator[int], device: str) -> Iterator[Outcome[int, int]]:
        assert device == "cpu"
        while group := list(itertools.islice(tasks, 3)):
            if self.deadly in group:
                os.kill(os.getpid(), signal.SIGKILL)
            yield from (Outcome(number, 2 * number) for number in reversed(group))


@dataclass(frozen=True)
class Cautious:
    """Dies with the deadly number; takes four tasks at once in its first two lives (marks in the folder), then one."""

    deadly: int
    folder: str

    def stream(self, tasks: Iterator[int], device: str) -> Iterator[Outcome[int, int]]:
        lives = len(list(Path(self.folder).iterdir()))
        while group := list(itertools.islice(tasks, 4 if lives < 2 else 1)):
            if self.deadly in group:
                Path(self.folder, str(lives)).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield from (Outcome(number, 2 * number) for number in group)


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


def waits(seconds: float) -> int:
    """Waits for the pictures of a decoder that needs so long for each of two."""
    pictures = (time.sleep(seconds) or number for number in range(2))
    return sum(counting_waits(pictures))


class Counted:
    """Counts ten steps per task; dies in the middle of some tasks, once each."""

    counted = None

    def __init__(self, deadly, folder):
        self.deadly, self.folder = deadly, folder

    def __call__(self, task):
        for step in range(10):
            time.sleep(0.06)
            self.counted(1)
            mark = os.path.join(self.folder, str(task))
            if step == 9 and task in self.deadly and not os.path.exists(mark):
                open(mark, "w").close()
                time.sleep(0.6)
                self.counted(1)  # one message more, which is sent at once
                os.kill(os.getpid(), signal.SIGKILL)
        return task
