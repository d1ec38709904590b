"""The device that networks run on, chosen in one way for rendering, training and classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unswayed.errors import UserError

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


def choose_devices(names: str | None = None, per_gpu: int = 1) -> list[str]:
    """One device name for each process: those given, separated by commas; by default every visible GPU, else the CPU.

    per_gpu: how many processes share each GPU.

    >>> choose_devices("cpu,cpu")
    ['cpu', 'cpu']
    """
    import torch

    if names in (None, "auto"):
        found = [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]
    else:
        found = [str(choose_device(name.strip())) for name in str(names).split(",")]
    return [name for name in found for _ in range(per_gpu if name.startswith("cuda") else 1)]


def device_at(place: str | None, asked: str | None) -> str | None:
    """The device for a model that is opened at `place`, the device of a worker process, or None in this process.

    asked: what the user asked for. If that is nothing, a GPU is made the current one and None is returned: a model that
    cannot use a GPU would refuse a named one.
    """
    if asked is not None:
        return place or asked.partition(",")[0]
    if place is not None and place.startswith("cuda"):
        import torch

        if ":" in place:  # an actor of a Ray cluster sees only its own GPU, which is the current one
            torch.cuda.set_device(place)
        return None
    return place
