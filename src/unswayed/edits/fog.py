"""Fog: light scattered into the view, more of it the further away something is."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from unswayed.files.whole import sha256

from .composition import Composition, Impossible, Pool
from .edit import Range, Text, parameter
from .lighting import Array
from .weather import Air, Weather

_NEAR = 2.5  # how many times nearer the ground is at the lower border than at the horizon, less one
_DENSEST = 5.0  # optical depth of the strongest fog at the horizon


@dataclass(frozen=True)
class Fog(Weather):
    """Fog (Koschmieder 1924): light · t + airlight · (1 − t), t = exp(−density · depth), in linear light.

    Without a depth map the ground is a plane that ends at the horizon, so that everything above it is far; the object
    stands on that ground, so its lowest row says how far it is.
    """

    name: ClassVar[str] = "fog"
    description: ClassVar[str] = "fog that hides what is far away"
    order: ClassVar[int] = 90
    strengths: ClassVar[tuple[float, ...]] = (0.0, 0.166, 0.283, 0.419, 0.605, 1.0)

    horizon: float = parameter(0.35, Range(0.0, 0.9, unit="of the height", step=0.01), "how far down the horizon is")
    depth: str | None = parameter(
        None,
        Text("the path of a gray picture of the framed photograph, black near and white far"),
        "a depth map in place of the ground; {id} in it is the photograph's id",
    )

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        foggy = super().apply(composition, rng, pool)
        if self.depth is None:
            return foggy
        path = self._map_of(composition.scene_id)
        if not Path(path).is_file():
            raise Impossible(f"there is no depth map {path}")
        return replace(foggy, requested={**foggy.requested, "depth_sha256": sha256(path)})

    def _map_of(self, scene_id: str) -> str:
        return str(self.depth).replace("{id}", scene_id)

    def changed(self, light: Array, strength: Array, air: Air[Array]) -> Array:
        patchy = 0.6 + 0.5 * air.noise(1, 2.5 * air.x, 5 * air.y) + 0.3 * air.noise(2, 6 * air.x, 12 * air.y)
        through = air.xp.exp(-_DENSEST * strength * strength * self._depth(air) * patchy)
        return light * through + air.color(0.66, 0.69, 0.72) * (1 - through)

    def _depth(self, air: Air[Array]) -> Array | np.ndarray:
        """Return how far away the pixels of a layer are, 1 at the horizon; an object is at one distance."""
        if self.depth is not None:
            mapped = _depth_map(self._map_of(air.scene_id), *air.weight.shape[-2:])[None, None]
            if not air.is_object:
                return mapped
            return (mapped * air.weight).sum() / max(float(air.weight.sum()), 1e-6)
        row = air.down
        if air.is_object:
            covered = air.xp.any(air.weight > 0.5, -1)[..., None]
            row = air.xp.amax(row * covered, (1, 2, 3)).reshape(-1, 1, 1, 1)
        return 1 / (1 + _NEAR * ((row - self.horizon) / (1 - self.horizon)).clip(0, None))


@functools.lru_cache(maxsize=4)
def _depth_map(path: str, high: int, wide: int) -> np.ndarray:
    """Return a depth map as (high, wide) float32 in [0, 1]."""
    import cv2

    from unswayed.sources.pictures import read_picture

    gray = read_picture(path).astype(np.float32).mean(axis=2) / 255
    return cv2.resize(gray, (wide, high), interpolation=cv2.INTER_AREA)
