"""How a pipeline is held in memory: its precision, what waits in main memory, and if its decoder works in tiles."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from unswayed.errors import UserError, need
from unswayed.jobs.resources import free_bytes

from ..networks.loading import PRECISIONS, choose_precision

OFFLOADS = ("none", "model", "sequential")
TILE = 512  # pixels of a side from which tiles save memory
USABLE = 0.9  # of the free memory
# The decoder is the largest user of memory beside the weights: so many maps of its first width at the full size.
MAPS = 12
# A layer at a time is on the device: an eighth of the largest part is a generous bound on a layer.
LAYER = 1 / 8


@dataclass(frozen=True)
class Holding:
    """One way to hold a pipeline; needs: the bytes of the device that it takes, an estimate.

    offload: `none`, all parts are on the device; `model`, one part at a time; `sequential`, one layer at a time, which
    is slow. The pictures depend on precision and tiling, and not on offload.
    """

    precision: str
    offload: str
    tiling: bool
    needs: int


def holdings(
    elements: Mapping[str, int],
    side: int,
    width: int,
    device: torch.device,
    precision: str | None = None,
    offload: str | None = None,
    tiling: bool | None = None,
) -> list[Holding]:
    """Every way to hold a pipeline on the device, the fastest and most exact first; what is given is settled.

    elements: how many numbers each part has; side: of its pictures, in pixels; width: channels of the decoder's last
    block.
    """
    chosen = choose_precision(precision, device)
    precisions = [chosen]
    if precision is None and chosen == "fp32":
        precisions.append("bf16" if device.type == "cpu" else "fp16")
    tilings = [tiling] if tiling is not None else [False, True] if side > TILE else [False]
    offloads = [offload] if offload is not None else OFFLOADS if device.type == "cuda" else OFFLOADS[:1]
    ways = []
    for kind, way, tiled in product(precisions, offloads, tilings):
        each = PRECISIONS[kind].itemsize
        largest = max(elements.values(), default=0)
        held = {"none": sum(elements.values()), "model": largest, "sequential": int(largest * LAYER)}[way]
        pixels = min(side, TILE) ** 2 if tiled else side**2
        ways.append(Holding(kind, way, tiled, each * (held + MAPS * width * pixels)))
    return ways


def fitting(ways: Sequence[Holding], name: str, device: torch.device) -> list[Holding]:
    """Those of the ways for which the device has enough free memory; UserError if it has not for any."""
    free = free_bytes(device)
    fits = [way for way in ways if way.needs <= USABLE * free]
    if not fits:
        least = min(ways, key=lambda way: way.needs)
        raise UserError(
            f"{name} does not fit on {device}: it takes about {least.needs / 2**30:.1f} GiB at least "
            f"({least.precision}, offload {least.offload}), and {free / 2**30:.1f} GiB are free",
            allowed="a smaller pipeline, --precision bf16, ?size= with fewer pixels, or another --device",
            run="nvidia-smi" if device.type == "cuda" else "free -h",
        )
    return fits


def hold(pipe: Any, way: Holding, device: torch.device) -> None:
    if way.offload != "none":
        need("editors", "accelerate")
        getattr(pipe, f"enable_{way.offload}_cpu_offload")(device=device)
    else:
        pipe.remove_all_hooks()
        pipe.to(device)
    for name in ("vae", "movq"):
        decoder: Any = getattr(pipe, name, None)
        # One picture of a batch at a time, where the decoder can do so, which some say only when it is asked for.
        for wanted, method in ((way.tiling, "enable_tiling"), (True, "enable_slicing")):
            if wanted and hasattr(decoder, method):
                with contextlib.suppress(NotImplementedError):
                    getattr(decoder, method)()
