"""Work on a CPU in several threads, each with one thread of torch: no result depends on how many there are.

Torch divides one pass among all its threads, which changes the last digits of the result, and if other processes
compute too, each thread waits for the others at every layer. Passes beside each other avoid both, at the same speed.
"""

from __future__ import annotations

import contextlib
import copy
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from .memory import free_bytes
from .threads import one_thread

Item = TypeVar("Item")
Original = TypeVar("Original")
Result = TypeVar("Result")
LANE_BYTES = 1 << 30  # memory for the activations of one pass


def copies(original: Original, lanes: int, items: int, size: int) -> list[Original]:
    """The original and copies of it, one for each lane, since a network may keep something from one call to the next.

    They are fewer if there are fewer items, or if memory is short; size: bytes of one. What cannot be copied, such as
    the runtime of another library, has one lane, and threads of its own.
    """
    import torch

    fitting = free_bytes(torch.device("cpu")) // 2 // (LANE_BYTES + size)
    made = [original]
    with contextlib.suppress(Exception):
        for _ in range(min(lanes, items, fitting) - 1):
            made.append(copy.deepcopy(original))
    return made


def in_lanes(works: Sequence[Callable[[Item], Result]], items: Iterable[Item]) -> Iterator[Result]:
    """The results for the items, in their order; each of `works` is called by one thread at a time.

    A single one is called by this thread, when its result is requested.
    """
    if len(works) == 1:
        for item in items:
            with one_thread():
                result = works[0](item)
            yield result
        return
    free: queue.SimpleQueue[Callable[[Item], Result]] = queue.SimpleQueue()
    for work in works:
        free.put(work)

    def run(item: Item) -> Result:
        work = free.get()
        try:
            with one_thread():  # the number of threads is a property of each thread
                return work(item)
        finally:
            free.put(work)

    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(len(works), thread_name_prefix="lane") as pool, contextlib.ExitStack() as leaving:
        leaving.callback(lambda: [future.cancel() for future in waiting])
        for item in items:
            waiting.append(pool.submit(run, item))
            if len(waiting) > len(works):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
