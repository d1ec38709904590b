"""How many pictures and how many models fit into the free memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unfazed.engine.memory import free_bytes
from unfazed.models.classifier import Classifier

CPU_BATCH, LARGEST_BATCH, PROBE = 32, 256, 8


def batch_size_for(models: Sequence[Classifier]) -> int:
    """Return the largest power of two, up to 256 (32 on a CPU), whose activations fit into half of the free memory."""
    device = torch.device(str(models[0].device))
    if device.type != "cuda":
        return CPU_BATCH if free_bytes(device) > 2 << 30 else PROBE
    most = LARGEST_BATCH
    for model in models:
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        side = model.transform.crop
        try:
            model.logits(torch.zeros(PROBE, 3, side, side, device=device))
        except Exception:
            continue  # the error occurs again, and is recorded, when the model is evaluated
        used = max(1, (torch.cuda.max_memory_allocated(device) - before) // PROBE)
        while most > 1 and most * used > free_bytes(device) // 2:
            most //= 2
    return most


def fits_beside(models: Sequence[Classifier]) -> bool:
    """Return whether one more model like the largest of these would leave half of the memory for the pictures."""
    sizes = [sum(p.numel() * p.element_size() for p in model.module.parameters()) for model in models]
    return 2 * max(sizes, default=0) < free_bytes(torch.device(str(models[-1].device))) // 2
