"""Full float32 convolutions: by default GPUs round their factors to TF32, which has ten bits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def true_float32(device: torch.device | str) -> Iterator[None]:
    """A block in which convolutions on a GPU use full float32, not TF32; other devices always do."""
    import torch

    if torch.device(device).type != "cuda":
        yield
        return
    convolutions: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]  # made when torch is imported
    before, convolutions.fp32_precision = convolutions.fp32_precision, "ieee"
    try:
        yield
    finally:
        convolutions.fp32_precision = before
