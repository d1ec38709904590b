"""How many pictures and how many models fit: batch sizes from free memory, halved where the guess was too high."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import torch

from unfazed.models.classifier import Classifier

CPU_BATCH, LARGEST_BATCH, PROBE = 32, 256, 8


def batch_size_for(models: Sequence[Classifier]) -> int:
    """The largest power of two, up to 256 (32 on a CPU), whose activations fit into half of the free memory."""
    device = torch.device(str(models[0].device))
    if device.type != "cuda":
        return CPU_BATCH if _free_bytes(device) > 2 << 30 else PROBE
    most = LARGEST_BATCH
    for model in models:
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        side = model.transform.crop
        try:
            model.logits(torch.zeros(PROBE, 3, side, side, device=device))
        except Exception:
            continue  # its own error is found, and recorded, when it is scored
        used = max(1, (torch.cuda.max_memory_allocated(device) - before) // PROBE)
        while most > 1 and most * used > _free_bytes(device) // 2:
            most //= 2
    return most


def fits_beside(models: Sequence[Classifier]) -> bool:
    """Whether one more model like the largest of these would leave half of the memory to the pictures."""
    sizes = [sum(p.numel() * p.element_size() for p in model.module.parameters()) for model in models]
    return 2 * max(sizes, default=0) < _free_bytes(torch.device(str(models[-1].device))) // 2


def in_halves(run: Callable[[torch.Tensor], torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
    """`run(batch)`; in two halves, each again in two, where the device's memory is too small for it."""
    try:
        return run(batch)
    except torch.cuda.OutOfMemoryError:
        if len(batch) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(batch) // 2
    return torch.cat([in_halves(run, batch[:half]), in_halves(run, batch[half:])])


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
