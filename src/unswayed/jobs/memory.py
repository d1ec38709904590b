"""Memory: freed blocks kept from one CPU pass to the next, free bytes, and batches halved when memory runs out."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENAS = -1, -3, -8  # glibc's malloc.h
_USUAL_TRIM, _USUAL_MMAP = 64 << 20, 32 << 20  # what glibc itself comes to once large blocks have been freed
_LARGEST_KEPT = 1 << 30
_LOOK_EVERY, _MOST_GROWTH = 0.5, 1.1  # seconds; the growth of the memory after which its free pages are returned

T = TypeVar("T")


@contextlib.contextmanager
def kept_heap(device: str = "cpu") -> Iterator[None]:
    """Within the block, memory freed by passes on a CPU stays with the process; at its end it goes back to the system.

    glibc returns every large block to the system when it is freed, and the system clears its pages when they are
    requested again, four kilobytes at a time: more than half of the time of 32 pictures through an EfficientNet-Lite.
    Kept blocks that small ones have cut into pieces fit no large one any more, so all free pages go back whenever the
    memory has grown by a tenth; otherwise that of a long evaluation would double. On other devices and without glibc
    the block changes nothing.
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
        before = math.inf
        while not ended.wait(_LOOK_EVERY):
            now = _resident_bytes()
            if now > _MOST_GROWTH * before:
                libc.malloc_trim(0)
                before = math.inf  # what the passes need at least is known again at the next look
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


def _resident_bytes() -> int:
    """The memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or in this machine."""
    import torch

    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)
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


def in_parts(run: Callable[[torch.Tensor], torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
    """run(batch); in as many equal parts as needed where memory is too small for the whole batch."""
    import torch

    return shrinking(lambda size: torch.cat([run(part) for part in batch.split(size)]), max(1, len(batch)))[0]
