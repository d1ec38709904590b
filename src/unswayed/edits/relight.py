"""Relight: the object in the light of its new background."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .composition import Adjustment, Composition, Layer, Pool
from .edit import Edit, Range, parameter
from .geometry import resized
from .lighting import exposed, to_linear

_SIDE, _STOPS = 128, 4.0


@dataclass(frozen=True)
class Relight(Edit):
    """The object with as much more or less light, by channel, as what surrounds it now has than what surrounded it in
    the photograph; so it keeps its own color, and a bright dog does not shine in a street at night.

    The background is the one at this point of the chain: edits after it change the object themselves.
    """

    name: ClassVar[str] = "relight"
    axis: ClassVar[str] = "share"
    axis_label: ClassVar[str] = "share of the background's change of light"
    description: ClassVar[str] = "the light on the object, as that of its new background"
    order: ClassVar[int] = 55

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
