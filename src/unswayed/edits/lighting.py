"""Lighting: the light on the object, on its background or on both, in photographic stops; and relight, which gives the
object the light of its new background.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from .composition import Adjustment, Composition, Layer, Pool
from .edit import Change, Edit, Range, parameter, where
from .geometry import resized

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", np.ndarray, "Tensor")  # what one definition of an operation takes and gives


@dataclass(frozen=True)
class Lighting(Edit):
    """More or less light (one stop doubles or halves it, in linear light); a pixel edit without diffusion."""

    name = "lighting"
    axis = "stops"
    axis_label = "change of light, stops"
    description = "the light on the object, the background or both"
    order = 60
    changes = (
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


_SIDE, _STOPS = 128, 4.0


@dataclass(frozen=True)
class Relight(Edit):
    """The object with as much more or less light, by channel, as what surrounds it now has than what surrounded it in
    the photograph; so it keeps its own color, and a bright dog does not shine in a street at night.

    The background is the one at this point of the chain: edits after it change the object themselves.
    """

    name = "relight"
    axis = "share"
    axis_label = "share of the background's change of light"
    description = "the light on the object, as that of its new background"
    order = 55

    share: float = parameter(
        1.0, Range(0.0, 1.0, unit="of the change", step=0.05), "how far the object follows, in stops"
    )

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        before = (("share", self.share), ("photograph", composition.image), ("mask", composition.mask))
        change = Adjustment(relit, before, background_after=len(composition.adjustments))
        return composition.adjust(change, "object", relight=self.share)

    def describe(self) -> str:
        return "object in the light of its background" + ("" if self.share == 1 else f", {100 * self.share:g} % of it")

    def words(self, chained: bool = False) -> str:
        return "relit object"


def relit(
    image: np.ndarray,
    weight: np.ndarray,
    share: float,
    photograph: np.ndarray,
    mask: np.ndarray,
    background: np.ndarray,
) -> Layer:
    """Return the object under the ratio of the mean lights of `background` and of `photograph`, both around it.

    weight, mask: where the object is in each; at most 4 stops more or less, and one more in a channel.
    """
    before, now = _mean_light(photograph, mask), _mean_light(background, weight)
    if before is None or now is None:
        return image, weight
    ratio = np.log2((now + 1e-3) / (before + 1e-3))
    # Half of a change of color is one of the light; the other half is that a meadow is green and a street is not.
    stops = np.clip(ratio.mean(), -_STOPS, _STOPS) + np.clip((ratio - ratio.mean()) / 2, -1, 1)
    gain = 2 ** (share * stops)
    table = np.rint(exposed(np.arange(256)[:, None] / 255, gain, np) * 255).astype(np.uint8)
    return np.ascontiguousarray(table[image, np.arange(3)]), weight


def _mean_light(picture: np.ndarray, mask: np.ndarray) -> np.ndarray | None:
    """Return the mean linear light around an object, (3,); None if nothing is around it."""
    around = 1 - resized(mask, _SIDE)
    if around.sum() < 1:
        return None
    return np.average(to_linear(resized(picture, _SIDE) / 255, np), axis=(0, 1), weights=around)
