"""The number of threads of a forward pass on the CPU: all on an idle machine, one if other processes compute too.

With another process on the cores, two threads of torch can be ten times slower than one, since each waits for the
other at every layer. So the choice is measured: when other processes begin or stop to compute, and every minute.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

import torch

# What cards say about numbers that are not exactly the same in every run.
FLOATS = (
    "the last digits of probabilities and scores depend on the kind of device and, for models that another runtime "
    "executes (ONNX, OpenVINO, TensorFlow Lite), on the number of threads"
)
AGAIN = 60.0  # seconds between two measurements
SOON = 5.0  # the same after other processes began or stopped to compute
WINDOW = 0.5  # minimum seconds over which the use by others is measured
BUSY = 0.1  # share of the cores used by others from which they count as busy


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """A block in which torch uses one thread, so that a result does not depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Threads:
    """A context in which torch uses the number of threads that was fastest for `run`; outside, the previous one."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.run, self.most = run, torch.get_num_threads()
        self.chosen, self.outside = self.most, self.most
        self.seen, self.busy = _usage(), False
        self.measured = time.monotonic() - SOON

    def __enter__(self) -> Threads:
        self.outside = torch.get_num_threads()
        torch.set_num_threads(self.chosen)
        return self

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self.outside)

    def adjust(self) -> None:
        """Measure again if it is time: all threads against one, the better of two runs each."""
        if self.most == 1:
            return
        busy = self._others_compute()
        if time.monotonic() - self.measured < (AGAIN if busy == self.busy else SOON):
            return
        seconds = {}
        for count in (1, self.most):
            torch.set_num_threads(count)
            self.run()
            tries = []
            for _ in range(2):
                start = time.perf_counter()
                self.run()
                tries.append(time.perf_counter() - start)
            seconds[count] = min(tries)
        self.chosen = min(seconds, key=lambda count: seconds[count])
        torch.set_num_threads(self.chosen)
        self.measured, self.busy = time.monotonic(), busy

    def _others_compute(self) -> bool:
        """Whether other processes have used the cores since the last check; unchanged if that was too recent."""
        now = _usage()
        if now is None or self.seen is None:
            return True  # unknown
        passed = now[0] - self.seen[0]
        if passed < WINDOW:
            return self.busy
        others = (now[1] - self.seen[1]) - (now[2] - self.seen[2])
        self.seen = now
        return others / passed > BUSY * (os.cpu_count() or 1)


def _usage() -> tuple[float, float, float] | None:
    """The time, and the CPU seconds of the whole machine and of this process so far; None if unknown."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, *interrupts = (int(ticks) for ticks in file.readline().split()[1:9])
    except (OSError, ValueError):
        return None
    busy = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    return time.monotonic(), busy, time.process_time()
