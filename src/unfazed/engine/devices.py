"""The device that networks run on, chosen in one way for rendering, training and classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unfazed.errors import UserError

if TYPE_CHECKING:
    import torch

DEVICES = ("cpu", "cuda", "mps")


def choose_device(name: str | None = None) -> torch.device:
    """The named device; by default the first GPU, else the CPU."""
    import torch

    if name in (None, "auto"):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(str(name))
    except RuntimeError:
        device = None
    if device is None or device.type not in DEVICES:
        raise UserError(f"device is '{name}'", allowed="auto, cpu, cuda, cuda:1, mps")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"device is '{name}', but torch {torch.__version__} sees no Apple GPU here", allowed="cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"device is '{name}', but torch {torch.__version__} sees no GPU here", allowed="cpu", run="nvidia-smi"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device is '{name}'", allowed=f"cuda:0 to cuda:{torch.cuda.device_count() - 1}")
    return device
