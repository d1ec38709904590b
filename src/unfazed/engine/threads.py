"""How many threads a forward pass on the CPU uses: all of them on a quiet machine, fewer where others compute too.

With another process on the cores, two threads of torch can be ten times slower than one, since each waits for the
other at every layer. So the choice is measured, not guessed, and measured again every minute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch

AGAIN = 60.0  # seconds between two measurements
QUIET = 0.5  # load, as a share of the cores, below which the first measurement is spared


class Threads:
    """Within its blocks torch has the number of threads that was quickest for `run`; outside it has the old one."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.run, self.most = run, torch.get_num_threads()
        self.chosen, self.outside = self.most, self.most
        self.measured = time.monotonic() if _load() < QUIET else -AGAIN

    def __enter__(self) -> Threads:
        self.outside = torch.get_num_threads()
        torch.set_num_threads(self.chosen)
        return self

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self.outside)

    def adjust(self) -> None:
        """Measure if it is time to: the whole number of threads against one, the better of two tries each."""
        if self.most == 1 or time.monotonic() - self.measured < AGAIN:
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
        self.measured = time.monotonic()


def _load() -> float:
    """The machine's load of the last minute, a share of its cores."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 1.0
