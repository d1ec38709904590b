"""Masks for photographs that have none, by the segmenters in the table: `open_segmenter("sam2")`, …

A segmenter is a function of a photograph and a box or None to a mask; what a name of `SEGMENTERS` loads opens one.
`MaskSettings`: how the masks of a folder are made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unswayed import CallableRoom
from unswayed.choices import Option, option
from unswayed.errors import UserError
from unswayed.jobs import EngineSettings
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


def parse_box(text: str) -> Box:
    """A box from `X,Y,W,H`.

    >>> parse_box("10,20,100,80")
    (10, 20, 100, 80)
    """
    try:
        x, y, wide, high = (int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"the box is '{text}'", allowed="X,Y,W,H in integer pixels, such as 10,20,100,80") from None
    if wide < 1 or high < 1:
        raise UserError(f"the box '{text}' has no area", allowed="X,Y,W,H with W and H of at least 1")
    return x, y, wide, high


BOX = Option("A box around the object, from which a mask is made.", metavar="X,Y,W,H", read=parse_box)


@dataclass(frozen=True, kw_only=True)
class MaskSettings(EngineSettings):
    """How the masks of a folder of photographs are made. box: (x, y, width, height) of the object in pixels, for every
    photograph. model: chooses between candidate masks, as the classifier of the class `label`."""

    segmenter: str = option("auto", "The method: {values}.", values=SEGMENTERS.usages)
    box: tuple[int, int, int, int] | None = option(
        None, "A box around the object, in pixels, for every photograph.", metavar="X,Y,W,H", read=parse_box
    )
    model: str | None = option(
        None, "Choose between candidate masks by this classifier (see --label).", flags=("-m", "--model")
    )
    label: str | None = option(None, "The object's class [default: the name of the photograph's folder].")
    workers: int | None = option(
        None, "Worker processes [default: one per core, but not more than one for 16 photographs].", least=1
    )
    sheet: bool = option(True, "Write a contact sheet of the least trusted masks.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model in list(SEGMENTERS):
            raise UserError(f"-m {self.model} is no classifier but makes masks", allowed=f"--segmenter {self.model}")
        if self.model is None and self.label is not None:
            raise UserError("--label needs a classifier", allowed="-m MODEL --label CLASS")
        if self.model is None and self.device is not None:
            raise UserError(f"--device {self.device} needs a classifier: masks are made on CPUs", allowed="-m MODEL")
