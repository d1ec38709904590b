"""Occlusion: a part of the object hidden behind a patch of another scene's background."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from .composition import Composition, Cover, Impossible, Pool, Removed
from .geometry import placed_mask
from .parameters import Range, check, parameter


@dataclass(frozen=True)
class Occlusion:
    """A share of the object hidden by a patch of another scene's object-free background; a paste, no diffusion."""

    name: ClassVar[str] = "occlusion"
    axis: ClassVar[str] = "share"

    share: float = parameter(0.3, Range(0.01, 0.95, unit="of the object"), "how much of the object is hidden")

    def __post_init__(self) -> None:
        check(self)

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        other = pool.other(composition.scene_id, rng)
        if other is None:
            raise Impossible("occlusion needs another scene in the source, there is none")
        alpha = placed_mask(composition.mask, composition.placement, pool.size)
        for cover in composition.covers:
            alpha = alpha * (1 - cover.alpha)
        patch = hiding(alpha, self.share, rng)
        visible = float((alpha * (1 - patch) > 0.5).mean())
        return replace(
            composition,
            covers=(*composition.covers, Cover(patch, Removed(other))),
            # Hiding changes what is visible, so the rate that an earlier edit promised becomes this one.
            requested={**composition.requested, "occlusion": self.share, "pixel_rate": visible, "from": other},
        )


def hiding(alpha: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """A rounded square, (S, S) float32 in [0, 1], that hides `share` of the object's pixels to within one of them.

    Its middle is drawn from the object's pixels and its tilt at random; it grows until it hides enough.
    """
    rows, columns = np.nonzero(alpha > 0.5)
    wanted = int(round(share * len(rows)))
    if not 0 < wanted < len(rows):
        raise Impossible(f"occlusion {share:g}: the object has only {len(rows)} pixels")
    middle = int(rng.integers(len(rows)))
    tilt = float(rng.uniform(0, np.pi / 2))
    y, x = np.mgrid[: alpha.shape[0], : alpha.shape[1]].astype(np.float32)
    x, y = x - columns[middle], y - rows[middle]
    along, across = x * np.cos(tilt) + y * np.sin(tilt), y * np.cos(tilt) - x * np.sin(tilt)
    distance = np.sqrt(np.sqrt(along**4 + across**4))
    radius = np.partition(distance[rows, columns], wanted - 1)[wanted - 1]
    return np.clip(radius - distance + 0.5 + 1e-3, 0.0, 1.0).astype(np.float32)
