"""Long work of a visitor that reports its progress and can be canceled: a rendering, a search, a fragility profile."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with the number of steps done and in total."""


class Canceled(Exception):
    """The visitor pressed Cancel, or left the page."""


@dataclass(frozen=True)
class Step:
    """How far a job is; seconds: since it began."""

    done: int
    total: int
    seconds: float

    @property
    def left(self) -> float | None:
        """Return the estimated seconds that are left; None before the first step is done."""
        return None if not self.done else self.seconds * (self.total - self.done) / self.done

    def words(self, unit: str) -> str:
        """Return the progress in words.

        >>> Step(3, 12, 6.0).words("passes"), Step(0, 12, 6.0).words("passes")
        ('3 of 12 passes done, about 18 s left', '0 of 12 passes done')
        """
        left = "" if self.left is None else f", about {max(round(self.left), 1)} s left"
        return f"{self.done} of {self.total} {unit} done{left if self.done < self.total else ''}"


@dataclass(frozen=True, eq=False)
class Report:
    """What a job calls after each step, with the number of steps done and in total."""

    stop: threading.Event
    tell: Callable[[int, int], None]

    def check(self) -> None:
        """Raise Canceled if the visitor canceled the job."""
        if self.stop.is_set():
            raise Canceled

    def __call__(self, done: int, total: int) -> None:
        self.check()
        self.tell(done, total)


class Jobs:
    """The jobs that are running, at most one for each visitor."""

    def __init__(self) -> None:
        self._stops: dict[str, threading.Event] = {}
        # Torch keeps memory for every thread that ever called it, so all jobs share one.
        self._thread = ThreadPoolExecutor(1, "job")

    def cancel(self, visitor: str) -> None:
        """Stop the visitor's job at its next step."""
        if visitor in self._stops:
            self._stops[visitor].set()

    def followed(
        self, visitor: str, work: Callable[[Report], T], show: Callable[[Step], Any]
    ) -> Generator[Any, None, T]:
        """Run `work` and yield what `show` makes of each step; return its result, or raise Canceled.

        The work calls the report that it is given after each step, and a call after the cancellation ends the work.
        """
        began = time.monotonic()
        steps: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        with self._stoppable(visitor) as stop:

            def tell(done: int, total: int) -> None:
                steps.put(Step(done, total, time.monotonic() - began))

            future = self._thread.submit(contextvars.copy_context().run, work, Report(stop, tell))
            future.add_done_callback(lambda _: steps.put(None))
            try:
                while (step := steps.get()) is not None:
                    yield show(step)
            finally:
                # If the visitor left, this generator is closed here, and nobody needs the result.
                stop.set()
            return future.result()

    @contextmanager
    def _stoppable(self, visitor: str) -> Iterator[threading.Event]:
        self.cancel(visitor)
        stop = self._stops[visitor] = threading.Event()
        try:
            yield stop
        finally:
            if self._stops.get(visitor) is stop:
                del self._stops[visitor]
