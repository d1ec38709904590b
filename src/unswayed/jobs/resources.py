"""Memory, threads and lanes of the passes on one machine, and items that are fetched before they are requested."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import itertools
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    import torch


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENAS = -1, -3, -8  # glibc's malloc.h
_USUAL_TRIM, _USUAL_MMAP = 64 << 20, 32 << 20  # what glibc itself comes to once large blocks have been freed
_LARGEST_KEPT = 1 << 30
_FIRST_LOOK, _LAST_LOOK = 0.5, 64.0  # seconds between two looks at the memory, which double with every return
_MOST_GROWTH = 1.1  # the growth of the memory after which its free pages are returned

T = TypeVar("T")
Item = TypeVar("Item")
Original = TypeVar("Original")
Result = TypeVar("Result")


@contextlib.contextmanager
def kept_heap(device: str = "cpu") -> Iterator[None]:
    """Within the block, memory freed by passes on a CPU stays with the process; at its end it goes back to the system.

    glibc returns every large block to the system when it is freed, and the system clears its pages when they are
    requested again, four kilobytes at a time: more than half of the time of 32 pictures through an EfficientNet-Lite.
    Kept blocks that small ones have cut into pieces fit no large one any more, so all free pages go back whenever the
    memory has grown by a tenth; otherwise that of a long evaluation would double. A pass that takes longer than the
    time between two looks grows by more than that, so this time doubles. On other devices and without glibc the block
    changes nothing.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" and device == "cpu" else None
    if libc is None or not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
    libc.mallopt(_TRIM_THRESHOLD, -1)
    libc.mallopt(_ARENAS, 1)  # an arena of a thread has no blocks above 64 MB, so they would be requested again
    ended = threading.Event()

    def give_back() -> None:
        before, pause = math.inf, _FIRST_LOOK
        while not ended.wait(pause):
            with open("/proc/self/statm", encoding="ascii") as file:
                now = int(file.read().split()[1])  # pages of memory
            if now > _MOST_GROWTH * before:
                libc.malloc_trim(0)
                before = math.inf  # what the passes need at least is known again at the next look
                pause = min(2 * pause, _LAST_LOOK)
            else:
                before = min(before, now)

    giving_back = threading.Thread(target=give_back, daemon=True, name="give back")
    giving_back.start()
    try:
        yield
    finally:
        ended.set()
        giving_back.join()
        libc.mallopt(_MMAP_THRESHOLD, _USUAL_MMAP)
        libc.mallopt(_TRIM_THRESHOLD, _USUAL_TRIM)
        libc.mallopt(_ARENAS, 0)
        libc.malloc_trim(0)


_UNKNOWN_MEMORY = 8 << 30  # of Windows, which has no such table


def free_bytes(device: torch.device) -> int:
    """The free memory of a GPU, or of this machine."""
    import torch

    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else _UNKNOWN_MEMORY
        return pages // 2


_RAN_OUT = ("allocate memory", "out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: in torch's allocator, on the CPU, or in what CUDA and its libraries allocate."""
    import torch

    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in _RAN_OUT)
    )


def shrinking(run: Callable[[int], T], batch: int, refuse: Callable[[], Exception] | None = None) -> tuple[T, int]:
    """(run(batch), the batch size that succeeded); the size is halved and tried again while memory runs out.

    refuse: makes the error for a batch of one that does not fit; by default the original error is raised.
    """
    import torch

    while True:
        try:
            return run(batch), batch
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if batch == 1:
                raise (error if refuse is None else refuse()) from None
        # Outside the handler, so that the failed run's tensors are no longer held by its traceback.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        batch //= 2


AGAIN = 60.0  # seconds between two measurements
SOON = 5.0  # the same after other processes began or stopped to compute
WINDOW = 0.5  # minimum seconds over which the use by others is measured
BUSY = 0.1  # share of the cores used by others from which they count as busy


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """A block in which torch uses one thread, so that a result does not depend on the number of threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Threads:
    """A context in which torch uses the number of threads that was fastest for `run`; outside, the previous one."""

    def __init__(self, run: Callable[[], object]) -> None:
        import torch

        self.torch = torch
        self.run, self.most = run, torch.get_num_threads()
        self.chosen, self.outside = self.most, self.most
        self.seen, self.busy = _usage(), False
        self.measured = time.monotonic() - SOON

    def __enter__(self) -> Threads:
        self.outside = self.torch.get_num_threads()
        self.torch.set_num_threads(self.chosen)
        return self

    def __exit__(self, *_: object) -> None:
        self.torch.set_num_threads(self.outside)

    def adjust(self) -> None:
        """Measure again if it is time: all threads against one, the better of two runs each."""
        if self.most == 1:
            return
        now, busy = _usage(), self.busy
        if now is None or self.seen is None:
            busy = True  # unknown
        elif (passed := now[0] - self.seen[0]) >= WINDOW:
            others = (now[1] - self.seen[1]) - (now[2] - self.seen[2])
            busy, self.seen = others / passed > BUSY * (os.cpu_count() or 1), now
        if time.monotonic() - self.measured < (AGAIN if busy == self.busy else SOON):
            return
        seconds = {}
        for count in (1, self.most):
            self.torch.set_num_threads(count)
            self.run()
            times = [time.perf_counter()]
            for _ in range(2):
                self.run()
                times.append(time.perf_counter())
            seconds[count] = min(times[1] - times[0], times[2] - times[1])
        self.chosen = min(seconds, key=lambda count: seconds[count])
        self.torch.set_num_threads(self.chosen)
        self.measured, self.busy = time.monotonic(), busy


def _usage() -> tuple[float, float, float] | None:
    """The time, and the CPU seconds of the whole machine and of this process so far; None if unknown."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, *interrupts = (int(ticks) for ticks in file.readline().split()[1:9])
    except (OSError, ValueError):
        return None
    busy = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    return time.monotonic(), busy, time.process_time()


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
        made.extend(copy.deepcopy(original) for _ in range(min(lanes, items, fitting) - 1))
    return made


def in_lanes(
    work: Callable[[Original, Item], Result], lanes: Sequence[Original], items: Iterable[Item]
) -> Iterator[Result]:
    """The results of `work(lane, item)` for the items, in their order; a lane is used by one thread at a time.

    A single one is used by this thread, when its result is requested.
    """
    free = deque(lanes)

    def run(item: Item) -> Result:
        lane = free.popleft()  # there is one, since there are as many as threads
        try:
            with one_thread():  # the number of threads is a property of each thread
                return work(lane, item)
        finally:
            free.append(lane)

    if len(lanes) == 1:
        with one_thread():
            yield from map(work, itertools.repeat(lanes[0]), items)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(len(lanes), thread_name_prefix="lane") as pool, contextlib.ExitStack() as leaving:
        leaving.callback(lambda: [future.cancel() for future in waiting])
        for item in items:
            waiting.append(pool.submit(run, item))
            if len(waiting) > len(lanes):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def prefetch(items: Iterable[Item], count: int) -> Generator[Item, None, None]:
    """The same items in the same order; a thread fetches up to `count` of them before they are requested.

    An exception of `items` is raised where it would have been. Leaving early stops the thread at its next item.

    >>> list(prefetch([1, 2, 3], count=2))
    [1, 2, 3]
    """
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as pool:
        waiting = deque(pool.submit(next, iterator, end) for _ in range(count + 1))
        try:
            while (item := waiting.popleft().result()) is not end:
                waiting.append(pool.submit(next, iterator, end))
                yield cast(Item, item)
        finally:
            for future in waiting:
                future.cancel()
            if isinstance(iterator, Generator):  # by the thread that has run it
                pool.submit(iterator.close).result()
