"""Position: the object moved within the frame; and reinsertion, the control of edits that move it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from .composition import Composition, Pool
from .edit import Control, Edit, Range, blend_start, parameter
from .geometry import SLACK, after, box, kept_inside, moved, outline, relocated, shift

_SHARE = Range(0.0, 1.0, words=("random",), step=0.001)


@dataclass(frozen=True)
class Position(Edit):
    """The object moved at its own size: 0 is the left (upper) edge of the frame, 1 the right (lower) one."""

    name: ClassVar[str] = "position"
    axis: ClassVar[str] = "x"
    axis_label: ClassVar[str] = "position, share of the free width"
    description: ClassVar[str] = "where the object is"
    control: ClassVar[Control | None] = "reinsertion"
    order: ClassVar[int] = 40
    factor: ClassVar[str | None] = "pose"

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
class Reinsertion(Edit):
    """The object removed and put back where it was, to measure what removal and blending alone cost."""

    name: ClassVar[str] = "reinsertion"
    axis: ClassVar[str] = "start"
    axis_label: ClassVar[str] = "share of the noise schedule at which blending starts"
    description: ClassVar[str] = "nothing: the object is removed and put back, the control of edits that move it"
    control: ClassVar[Control | None] = "reinsertion"

    start: float = blend_start(0.25)

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        return relocated(composition, composition.placement, self.start)

    def describe(self) -> str:
        return "control: object removed and put back where it was"

    def words(self, chained: bool = False) -> str:
        return "object put back"
