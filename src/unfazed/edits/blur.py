"""Blur: the background out of focus, or the object."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from .composition import Adjustment, Composition, Pool
from .parameters import Choice, Range, check, parameter


@dataclass(frozen=True)
class Blur:
    """The background defocused, the object blurred, or both; a pixel edit, no diffusion."""

    name: ClassVar[str] = "blur"
    axis: ClassVar[str] = "pixels"

    pixels: float = parameter(
        4.0, Range(0.0, 32.0, unit="pixels of a 256-pixel picture"), "radius of the disc that a point becomes"
    )
    where: str = parameter("background", Choice(("object", "background", "both")), "what is blurred")

    def __post_init__(self) -> None:
        check(self)

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        change = Adjustment("blur", (("pixels", self.pixels * pool.size / 256),))
        if self.where != "background":
            composition = replace(composition, object_adjustments=(*composition.object_adjustments, change))
        if self.where != "object":
            composition = replace(composition, adjustments=(*composition.adjustments, change))
        return replace(composition, requested={**composition.requested, "blur": self.pixels})
