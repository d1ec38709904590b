"""How many pictures a batch has, and how many models fit into memory side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unswayed.jobs.resources import free_bytes
from unswayed.models.classifier import Classifier

# Fixed, because the last digits of a prediction depend on it. A batch that does not fit into memory is divided.
CPU_BATCH, GPU_BATCH = 32, 256


def batch_size_for(device: str) -> int:
    """Return the usual number of pictures in a batch on this kind of device."""
    return CPU_BATCH if torch.device(device).type == "cpu" else GPU_BATCH


def fits_beside(models: Sequence[Classifier]) -> bool:
    """Return whether one more model like the largest of these would leave half of the memory for the pictures."""
    sizes = [model.nbytes for model in models]
    return 2 * max(sizes, default=0) < free_bytes(torch.device(str(models[-1].device))) // 2
