"""Occlusion: a part of the object hidden behind a patch of another scene's background."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from .composition import Composition, Cover, Impossible, Pool, Removed
from .edit import Change, Edit, Need, Range, parameter
from .geometry import placed_mask

PLACES = 6


@dataclass(frozen=True)
class Occlusion(Edit):
    """A share of the object hidden by a patch of another scene's object-free background; pasted without diffusion."""

    name: ClassVar[str] = "occlusion"
    axis: ClassVar[str] = "share"
    axis_label: ClassVar[str] = "share of the object that is hidden"
    description: ClassVar[str] = "how much of the object is hidden"
    order: ClassVar[int] = 50
    changes: ClassVar[tuple[Change, ...]] = (Change("object hidden", "share", 0.0, 0.95),)

    share: float = parameter(
        0.3, Range(0.01, 0.95, unit="of the object", step=0.01), "how much of the object is hidden"
    )

    @property
    def random(self) -> bool:
        return True

    @property
    def borrows(self) -> bool:
        return True

    @property
    def needs(self) -> tuple[Need, ...]:
        return ("removal",)

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        other = pool.other(composition.scene_id, rng)
        if other is None:
            raise Impossible("occlusion needs another scene in the source, but there is none")
        alpha = placed_mask(composition.mask, composition.placement, pool.size)
        for cover in composition.covers:
            alpha = alpha * (1 - cover.alpha)
        patch = hiding(alpha, self.share, rng)
        visible = float((alpha * (1 - patch) > 0.5).mean())
        return replace(
            composition,
            covers=(*composition.covers, Cover(patch, Removed(other))),
            # Less of the object is visible, so the rate that an earlier edit requested is replaced by this one.
            requested={**composition.requested, "occlusion": self.share, "pixel_rate": visible, "from": other},
        )

    def describe(self) -> str:
        return f"{100 * self.share:g} % of the object hidden"


def hiding(alpha: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return a rounded square, (S, S) float32 in [0, 1], that hides `share` of the object's pixels, to one pixel.

    Several squares at random positions and angles are grown until they hide enough; the smallest is used because it
    hides the least of the background.
    """
    rows, columns = np.nonzero(alpha > 0.5)
    wanted = int(round(share * len(rows)))
    if not 0 < wanted < len(rows):
        raise Impossible(f"occlusion {share:g}: the object has only {len(rows)} pixels")
    # A pixel is hidden when alpha·(1 − patch) is at most one half; at the object's edge that is a little earlier.
    earlier = 0.5 / alpha[rows, columns] - 0.5
    squares = []
    for _ in range(PLACES):
        middle = int(rng.integers(len(rows)))
        # Not on the pixel grid, so that no two pixels have the same distance.
        aside = rng.uniform(-0.5, 0.5, 2)
        square = columns[middle] + aside[0], rows[middle] + aside[1], rng.uniform(0, np.pi / 2)
        reached = _distance(columns, rows, *square) - earlier
        squares.append((float(np.partition(reached, wanted - 1)[wanted - 1]) + 1e-3, square))
    radius, square = min(squares)
    places = np.indices(alpha.shape, dtype=np.float32)
    return np.clip(radius - _distance(places[1], places[0], *square) + 0.5, 0.0, 1.0).astype(np.float32)


def _distance(x: np.ndarray, y: np.ndarray, middle_x: float, middle_y: float, tilt: float) -> np.ndarray:
    """Return the distance of points from the middle, in the norm whose circles are rounded, rotated squares."""
    x, y = np.subtract(x, middle_x, dtype=np.float32), np.subtract(y, middle_y, dtype=np.float32)
    along, across = x * np.cos(tilt) + y * np.sin(tilt), y * np.cos(tilt) - x * np.sin(tilt)
    distance: np.ndarray = np.sqrt(np.sqrt(along**4 + across**4))
    return distance
