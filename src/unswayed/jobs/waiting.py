"""How long the network of this process waits for pictures that others decode or prepare, and what this process does."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from .scheduling import Watch, WorkerState

Item = TypeVar("Item")
_seconds = 0.0


def counting_waits(items: Iterable[Item]) -> Iterator[Item]:
    """The same items; the time until each is there is added to `seconds_waited`."""
    global _seconds
    iterator = iter(items)
    while True:
        begun = time.perf_counter()
        try:
            item = next(iterator)
        except StopIteration:
            return
        finally:
            _seconds += time.perf_counter() - begun
        yield item


def seconds_waited() -> float:
    """How many seconds this process has waited in `counting_waits` so far."""
    return _seconds


class Here:
    """Tells `watch` what this process does, where no other process does the work."""

    def __init__(self, name: str, device: str | None, watch: Watch | None) -> None:
        self.name, self.device, self.watch, self.finished = name, device, watch, 0
        self.started, self.before = time.monotonic(), seconds_waited()

    def tell(self, finished: int = 0) -> None:
        """Say that so many more tasks are finished."""
        self.finished += finished
        if self.watch is not None:
            waited = (seconds_waited() - self.before) / max(1e-9, time.monotonic() - self.started)
            self.watch([WorkerState(self.name, self.device, "working", 1, self.finished, "", min(1.0, waited))])
