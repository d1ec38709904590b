"""Lighting: the light on the object, on its background or on both, in photographic stops."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from .composition import Adjustment, Composition, Layer, Pool
from .edit import Change, Edit, Range, parameter, where

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", np.ndarray, "Tensor")  # what one definition of an operation takes and gives


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
        return composition.adjust(Adjustment(lit, (("stops", self.stops),)), self.where, lighting=self.stops)

    def describe(self) -> str:
        subject = "object and background" if self.where == "both" else self.where
        return f"{subject} lit by {self.stops:+g} stops"

    def words(self, chained: bool = False) -> str:
        return f"{'all' if self.where == 'both' else self.where} light {self.stops:+g}".replace("-", "−")


def lit(image: np.ndarray, weight: np.ndarray, stops: float) -> Layer:
    """Return the pixels with 2**stops times the light: multiplied in linear light, clipped, converted back to sRGB."""
    import cv2

    return cv2.LUT(image, _table(stops)), weight


def lit_batch(pictures: Tensor, stops: Tensor) -> Tensor:
    """Return pictures (n, 3, H, W) in [0, 1] as `lit` changes them, each by its own number of stops (n,)."""
    import torch

    return exposed(pictures.float(), stops.float().exp2().view(-1, 1, 1, 1), torch).to(pictures.dtype)


@functools.lru_cache(maxsize=64)
def _table(stops: float) -> np.ndarray:
    return np.round(exposed(np.arange(256) / 255, 2.0**stops, np) * 255).astype(np.uint8)


def exposed(values: Array, gain: Array | float, xp: ModuleType) -> Array:
    """Return sRGB values in [0, 1] under `gain` times the light; xp: the module of the arrays, numpy or torch."""
    return from_linear((to_linear(values, xp) * gain).clip(None, 1.0), xp)


def to_linear(values: Array, xp: ModuleType) -> Array:
    """Return the light of sRGB values, both in [0, 1]."""
    return xp.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def from_linear(light: Array, xp: ModuleType) -> Array:
    """Return the sRGB values of light, both in [0, 1]."""
    return xp.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
