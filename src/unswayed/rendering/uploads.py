"""Small arrays on their way to a GPU: they are copied without waiting for what it is doing."""

from __future__ import annotations

import functools
import threading

import torch
from torch import Tensor

_HALF = 32 << 20  # bytes
_ALIGNED = 256


def uploaded(here: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; its own memory may be used again at once."""
    if device.type != "cuda" or here.device.type == "cuda":
        return here.to(device)
    if here.nbytes > _HALF:
        return here.pin_memory().to(device, non_blocking=True)
    return _ring(device).send(here)


@functools.cache
def _ring(device: torch.device) -> _Ring:
    return _Ring(device)


class _Ring:
    """Pinned memory that is taken once, since taking it waits for the GPU. While one half of it is filled, what is in
    the other one arrives."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.memory = device, torch.empty(2 * _HALF, dtype=torch.uint8, pin_memory=True)
        self.half, self.used, self.lock = 0, 0, threading.Lock()
        self.arrived: list[torch.cuda.Event | None] = [None, None]

    def send(self, here: Tensor) -> Tensor:
        with self.lock, torch.cuda.device(self.device):
            if self.used + here.nbytes > _HALF:
                self._turn()
            first = self.half * _HALF + self.used
            self.used += -(-here.nbytes // _ALIGNED) * _ALIGNED
            pinned = self.memory[first : first + here.nbytes]
            pinned.numpy()[:] = here.contiguous().view(-1).view(torch.uint8).numpy()  # in this thread alone
            return pinned.to(self.device, non_blocking=True).view(here.dtype).view(here.shape)

    def _turn(self) -> None:
        event = torch.cuda.Event()
        event.record()
        self.arrived[self.half], self.half, self.used = event, 1 - self.half, 0
        if (before := self.arrived[self.half]) is not None:
            before.synchronize()
