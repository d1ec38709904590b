"""Direction: the object turned about its own centre."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .composition import Composition, Pool
from .geometry import after, centre, kept_inside, moved, outline, relocated, rotation
from .parameters import Range, check, parameter
from .size import with_rate


@dataclass(frozen=True)
class Direction:
    """The object turned counter-clockwise about its own centre, shifted where that keeps it whole in the frame."""

    name: ClassVar[str] = "direction"
    axis: ClassVar[str] = "degrees"

    degrees: float | str = parameter(
        "random", Range(-180.0, 180.0, unit="degrees", words=("random",)), "angle; random: uniform from -45 to 45"
    )
    start: float = parameter(0.25, Range(0.0, 1.0), "share of the noise schedule at which blending starts")

    def __post_init__(self) -> None:
        check(self)

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        drawn = float(rng.uniform(-45.0, 45.0))
        degrees = drawn if isinstance(self.degrees, str) else self.degrees
        points = outline(composition.mask)
        pivot = centre(moved(points, composition.placement))
        placement = after(rotation(degrees, pivot), composition.placement)
        rate = composition.requested.get("pixel_rate")
        if rate is None:
            placement = kept_inside(placement, points, f"direction {degrees:.1f}")
        else:
            # Turning re-samples the rim; a rate that an earlier edit promised is solved for again.
            placement = with_rate(composition, placement, rate, pool.size)
        return relocated(composition, placement, self.start, direction=round(degrees, 4))
