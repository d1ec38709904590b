"""Color: the object's hue and saturation, at unchanged lightness."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from .composition import Adjustment, Composition, Layer, Pool
from .edit import Change, Edit, Range, parameter


@dataclass(frozen=True)
class Color(Edit):
    """The object in another color: hue rotated and saturation scaled in CIELAB; a pixel edit without diffusion."""

    name: ClassVar[str] = "color"
    axis: ClassVar[str] = "hue"
    axis_label: ClassVar[str] = "rotation of the hue, degrees"
    description: ClassVar[str] = "the object's hue and saturation"
    order: ClassVar[int] = 80
    changes: ClassVar[tuple[Change, ...]] = (
        Change("object's hue turned", "hue", 0.0, 180.0),
        Change("object losing its color", "saturation", 1.0, 0.0),
    )

    hue: float = parameter(0.0, Range(-180.0, 180.0, unit="degrees", step=1.0), "how far the hue is turned")
    saturation: float = parameter(
        1.0, Range(0.0, 3.0, unit="times its saturation", step=0.05), "factor on the saturation; 0 is gray"
    )

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        change = Adjustment(recolored, (("hue", self.hue), ("saturation", self.saturation)))
        changed = composition.adjust(change, "object")
        return replace(changed, requested={**composition.requested, "color": [self.hue, self.saturation]})

    def describe(self) -> str:
        if self.saturation == 0:
            return "object without color"
        scaled = "" if self.saturation == 1 else f", saturation times {self.saturation:g}"
        return f"object's hue turned by {self.hue:g}°{scaled}".replace("-", "−")


def recolored(image: np.ndarray, weight: np.ndarray, hue: float, saturation: float) -> Layer:
    """Return the pixels with the hue rotated by `hue` degrees and the saturation scaled, at unchanged lightness."""
    import cv2

    lab = cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2Lab)
    cosine, sine = saturation * np.cos(np.radians(hue)), saturation * np.sin(np.radians(hue))
    a, b = lab[..., 1].copy(), lab[..., 2].copy()
    lab[..., 1], lab[..., 2] = cosine * a - sine * b, sine * a + cosine * b
    turned = cv2.cvtColor(lab, cv2.COLOR_Lab2RGB)
    return np.clip(np.round(turned * 255), 0, 255).astype(np.uint8), weight
