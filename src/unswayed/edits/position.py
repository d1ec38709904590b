"""Position and direction: the object moved within the frame or turned; and reinsertion, the control of such edits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .composition import Composition, Impossible, Pool
from .edit import Change, Choice, Edit, Range, blend_start, parameter
from .geometry import SLACK, after, box, center, kept_inside, moved, outline, relocated, rotation, scaling, shift
from .size import with_rate

_SHARE = Range(0.0, 1.0, words=("random",), step=0.001)


@dataclass(frozen=True)
class Position(Edit):
    """The object moved at its own size: 0 is the left (upper) edge of the frame, 1 the right (lower) one."""

    name = "position"
    axis = "x"
    axis_label = "position, share of the free width"
    description = "where the object is"
    control = "reinsertion"
    order = 40
    factor = "pose"

    x: float | str = parameter("random", _SHARE, "share of the free room to its left", first=0.5)
    y: float | str = parameter("random", _SHARE, "share of the free room above it", first=0.5)
    start: float = blend_start(0.25)

    @classmethod
    def parse(cls, text: str, **others: Any) -> Self:
        """Return the edit from `random`, `X,Y` or `X/Y`; with X alone, Y is random."""
        x, pair, y = text.replace("/", ",").partition(",")
        given: dict[str, Any] = {"x": x.strip(), **({"y": y.strip()} if pair else {})}
        return cls(**given, **others)

    @classmethod
    def usage(cls) -> str:
        return "X,Y (0,0 is the upper left, 1,1 the lower right), or random"

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        """Move the object; a random upper left corner is uniform in [0, W − w] × [0, H − h], as in ImageNet-E."""
        drawn = rng.random(2)
        share = np.array([float(drawn[i]) if isinstance(v, str) else v for i, v in enumerate((self.x, self.y))])
        points = outline(composition.mask)
        inside = kept_inside(composition.placement, points, "position")
        low, high = box(moved(points, inside))
        # Whole pixels of the canvas, so that the object's mask is not resampled.
        fewest, most = np.ceil((-low - SLACK) * pool.size), np.floor((1 - high + SLACK) * pool.size)
        wanted = (share * (1 - (high - low)) - low) * pool.size
        steps = np.where(fewest > most, 0.0, np.clip(np.round(wanted), fewest, np.maximum(fewest, most)) / pool.size)
        placement = after(shift(*steps), inside)
        return relocated(composition, placement, self.start, position=[round(float(value), 4) for value in share])

    def describe(self) -> str:
        if self.x == self.y == "random":
            return "object at a random position"
        x, y = (f"{value:g}" if isinstance(value, float) else value for value in (self.x, self.y))
        return f"object at {x} of the free width and {y} of the free height"

    def words(self, chained: bool = False) -> str:
        return "moved"


@dataclass(frozen=True)
class Direction(Edit):
    """The object rotated counterclockwise about its own center, and shifted if needed to stay inside the frame."""

    name = "direction"
    axis = "degrees"
    axis_label = "rotation, degrees"
    description = "how the object is turned"
    control = "reinsertion"
    order = 30
    factor = "pose"
    changes = (
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


@dataclass(frozen=True)
class Reinsertion(Edit):
    """The object removed and put back where it was, to measure what removal and blending alone cost."""

    name = "reinsertion"
    axis = "start"
    axis_label = "share of the noise schedule at which blending starts"
    description = "nothing: the object is removed and put back, the control of edits that move it"
    control = "reinsertion"

    start: float = blend_start(0.25)

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        return relocated(composition, composition.placement, self.start)

    def describe(self) -> str:
        return "control: object removed and put back where it was"

    def words(self, chained: bool = False) -> str:
        return "object put back"
