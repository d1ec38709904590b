"""Lighting: the light on the object, on its background or on both, in photographic stops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from .composition import Adjustment, Composition, Pool
from .parameters import Choice, Range, check, parameter


@dataclass(frozen=True)
class Lighting:
    """More or less light (one stop doubles or halves it, in linear light); a pixel edit, no diffusion."""

    name: ClassVar[str] = "lighting"
    axis: ClassVar[str] = "stops"

    stops: float = parameter(1.0, Range(-5.0, 5.0, unit="stops"), "how much more light; below 0 is less")
    where: str = parameter("object", Choice(("object", "background", "both")), "what is lit")

    def __post_init__(self) -> None:
        check(self)

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        change = Adjustment("lighting", (("stops", self.stops),))
        if self.where != "background":
            composition = replace(composition, object_adjustments=(*composition.object_adjustments, change))
        if self.where != "object":
            composition = replace(composition, adjustments=(*composition.adjustments, change))
        return replace(composition, requested={**composition.requested, "lighting": self.stops})
