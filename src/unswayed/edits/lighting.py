"""Lighting: the light on the object, on its background or on both, in photographic stops."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from .composition import Adjustment, Composition, Layer, Pool
from .edit import Change, Edit, Range, parameter, where


@dataclass(frozen=True)
class Lighting(Edit):
    """More or less light (one stop doubles or halves it, in linear light); a pixel edit without diffusion."""

    name: ClassVar[str] = "lighting"
    axis: ClassVar[str] = "stops"
    axis_label: ClassVar[str] = "change of light, stops"
    description: ClassVar[str] = "the light on the object, the background or both"
    order: ClassVar[int] = 60
    changes: ClassVar[tuple[Change, ...]] = (
        Change("object darker", "stops", 0.0, -5.0),
        Change("object brighter", "stops", 0.0, 5.0),
        Change("background darker", "stops", 0.0, -5.0, (("where", "background"),)),
    )

    stops: float = parameter(1.0, Range(-5.0, 5.0, unit="stops", step=0.1), "how much more light; below 0 is less")
    where: str = where("object", "what is lit")

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        changed = composition.adjust(Adjustment(lit, (("stops", self.stops),)), self.where)
        return replace(changed, requested={**composition.requested, "lighting": self.stops})

    def describe(self) -> str:
        subject = "object and background" if self.where == "both" else self.where
        return f"{subject} lit by {self.stops:+g} stops"


def lit(image: np.ndarray, weight: np.ndarray, stops: float) -> Layer:
    """Return the pixels with 2**stops times the light: multiplied in linear light, clipped, converted back to sRGB."""
    import cv2

    return cv2.LUT(image, _exposure(stops)), weight


@functools.lru_cache(maxsize=64)
def _exposure(stops: float) -> np.ndarray:
    values = np.arange(256) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    exposed = np.minimum(linear * 2.0**stops, 1.0)
    encoded = np.where(exposed <= 0.0031308, exposed * 12.92, 1.055 * exposed ** (1 / 2.4) - 0.055)
    return np.round(encoded * 255).astype(np.uint8)
