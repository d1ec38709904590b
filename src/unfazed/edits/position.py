"""Position: the object moved within the frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .composition import Composition, Pool
from .geometry import SLACK, after, box, kept_inside, moved, outline, relocated, shift
from .parameters import Range, check, parameter


@dataclass(frozen=True)
class Position:
    """The object moved at its own size: 0 is the left (upper) edge of the frame, 1 the right (lower) one."""

    name: ClassVar[str] = "position"
    axis: ClassVar[str] = "x"

    x: float | str = parameter("random", Range(0.0, 1.0, words=("random",)), "share of the free room to its left")
    y: float | str = parameter("random", Range(0.0, 1.0, words=("random",)), "share of the free room above it")
    start: float = parameter(0.25, Range(0.0, 1.0), "share of the noise schedule at which blending starts")

    def __post_init__(self) -> None:
        check(self)

    @classmethod
    def parse(cls, text: str, **others: object) -> Position:
        """`random`, `X,Y` or `X/Y`; X alone leaves Y to chance."""
        x, pair, y = text.replace("/", ",").partition(",")
        given = {"x": x.strip(), **({"y": y.strip()} if pair else {})}
        return cls(**given, **others)  # type: ignore[arg-type]

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        """Random: the upper left corner drawn uniformly from [0, W − w] × [0, H − h] (spec: Position)."""
        drawn = rng.random(2)
        share = np.array([float(drawn[i]) if isinstance(v, str) else v for i, v in enumerate((self.x, self.y))])
        points = outline(composition.mask)
        inside = kept_inside(composition.placement, points, "position")
        low, high = box(moved(points, inside))
        # Whole pixels of the canvas, so that moving leaves every pixel of the object's mask as it was.
        fewest, most = np.ceil((-low - SLACK) * pool.size), np.floor((1 - high + SLACK) * pool.size)
        wanted = (share * (1 - (high - low)) - low) * pool.size
        steps = np.clip(np.round(wanted), fewest, np.maximum(fewest, most)) / pool.size
        if (fewest > most).any():
            steps = np.where(fewest > most, 0.0, steps)
        placement = after(shift(*steps), inside)
        return relocated(composition, placement, self.start, position=[round(float(value), 4) for value in share])
