"""Direction: the object turned about its own center."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .composition import Composition, Impossible, Pool
from .edit import Change, Choice, Control, Edit, Range, blend_start, parameter
from .geometry import after, box, center, kept_inside, moved, outline, relocated, rotation, scaling
from .size import with_rate


@dataclass(frozen=True)
class Direction(Edit):
    """The object rotated counterclockwise about its own center, and shifted if needed to stay inside the frame."""

    name: ClassVar[str] = "direction"
    axis: ClassVar[str] = "degrees"
    axis_label: ClassVar[str] = "rotation, degrees"
    description: ClassVar[str] = "how the object is turned"
    control: ClassVar[Control | None] = "reinsertion"
    order: ClassVar[int] = 30
    factor: ClassVar[str | None] = "pose"
    changes: ClassVar[tuple[Change, ...]] = (
        Change("object turned counter-clockwise", "degrees", 0.0, 180.0),
        Change("object turned clockwise", "degrees", 0.0, -180.0),
    )

    degrees: float | str = parameter(
        "random",
        Range(-180.0, 180.0, unit="degrees", words=("random",), step=1.0),
        "angle; random: uniform from -45 to 45",
    )
    start: float = blend_start(0.25)
    size: str | None = parameter(
        None, Choice(("fit",)), "fit: smaller where the turned object would not fit the frame", hidden=True
    )

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        drawn = float(rng.uniform(-45.0, 45.0))
        degrees = drawn if isinstance(self.degrees, str) else self.degrees
        points = outline(composition.mask)
        pivot = center(moved(points, composition.placement))
        placement = after(rotation(degrees, pivot), composition.placement)
        rate = composition.requested.get("pixel_rate")
        if rate is None:
            low, high = box(moved(points, placement))
            if self.size == "fit":
                placement = after(scaling(min(1.0, float(1 / (high - low).max())), pivot), placement)
            try:
                placement = kept_inside(placement, points, f"direction {degrees:.1f}")
            except Impossible as impossible:
                raise Impossible(f"{impossible}; direction-fit turns it at a smaller size") from None
        else:
            # Rotating resamples the object's edge, so the rate that an earlier edit requested is solved for again.
            placement = with_rate(composition, placement, rate, pool.size)
        return relocated(composition, placement, self.start, direction=round(degrees, 4))

    def describe(self) -> str:
        size = ", smaller where it would not fit" if self.size == "fit" else ""
        if isinstance(self.degrees, str):
            return f"object turned by a random angle, −45° to 45°{size}"
        return f"object turned by {self.degrees:g}°{size}".replace("-", "−")

    def words(self, chained: bool = False) -> str:
        turned = "turned" if isinstance(self.degrees, str) else f"turned {self.degrees:+g}°".replace("-", "−")
        return f"{turned} to fit" if self.size == "fit" else turned
