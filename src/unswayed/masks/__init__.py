"""Masks for photographs that have none, by the segmenters in the table: `open_segmenter("sam2")`, …

A segmenter is a function of a photograph and a box or None to a mask; what a name of `SEGMENTERS` loads opens one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from unswayed import CallableRoom
from unswayed.errors import UserError
from unswayed.registry import Part, Registry

if TYPE_CHECKING:
    import numpy as np

sys.modules[__name__].__class__ = CallableRoom  # `unswayed.masks` is also a function

Box = tuple[int, int, int, int]
"""x, y, width, height in pixels of the photograph."""

Segmenter = Callable[["np.ndarray", Box | None], "np.ndarray"]
"""(H, W, 3) uint8 and a box or None -> (H, W) float32 in [0, 1]."""

SEGMENTERS: Registry[Callable[[str], Segmenter]] = Registry(
    "segmenter",
    {
        "auto": Part(f"{__name__}.segment:open_auto", "sam2 where its weights are here, else grabcut"),
        "sam2": Part(f"{__name__}.sam2:open_sam2", "SAM 2, prompted by a salient-object network"),
        "silueta": Part(f"{__name__}.sam2:open_silueta", "a salient-object network"),
        "grabcut": Part(f"{__name__}.segment:open_grabcut", "GrabCut, which needs no network"),
        "onnx": Part(f"{__name__}.sam2:open_onnx", "a salient-object network such as U²-Net", "onnx:FILE"),
        "transformers": Part(
            f"{__name__}.segment:open_checkpoint",
            "SAM, SAM 2 or BiRefNet",
            "transformers:CHECKPOINT",
            needs=("transformers",),
            extra="models",
            uses_network=True,
        ),
    },
)


def open_segmenter(text: str) -> Segmenter:
    """The segmenter that a name of SEGMENTERS opens, such as `auto`, `sam2` or `onnx:FILE`."""
    kind, _, argument = text.partition(":")
    takes = SEGMENTERS.part(kind).usage.partition(":")[2] if SEGMENTERS.is_own(kind) else argument
    if bool(argument) != bool(takes):
        given = f"takes no '{argument}'" if argument else f"needs a {takes.lower()}"
        raise UserError(f"the segmenter {kind} {given}", allowed=SEGMENTERS.part(kind).usage or kind)
    return SEGMENTERS.load(kind)(argument)
