"""Colour: the object's hue and saturation, at unchanged lightness."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from .composition import Adjustment, Composition, Pool
from .parameters import Range, check, parameter


@dataclass(frozen=True)
class Colour:
    """The object in another colour: hue turned and saturation scaled in CIELAB; a pixel edit, no diffusion."""

    name: ClassVar[str] = "colour"
    axis: ClassVar[str] = "hue"

    hue: float = parameter(0.0, Range(-180.0, 180.0, unit="degrees"), "how far the hue is turned")
    saturation: float = parameter(1.0, Range(0.0, 3.0), "factor on the saturation; 0 is grey")

    def __post_init__(self) -> None:
        check(self)

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        change = Adjustment("colour", (("hue", self.hue), ("saturation", self.saturation)))
        return replace(
            composition,
            object_adjustments=(*composition.object_adjustments, change),
            requested={**composition.requested, "colour": [self.hue, self.saturation]},
        )
