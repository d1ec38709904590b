"""Size: the object scaled to a share of the picture or until it fills the frame, or the photograph cropped to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .composition import Composition, Impossible, Pool
from .edit import Change, Control, Edit, Range, blend_start, parameter
from .geometry import (
    after,
    box,
    center,
    in_window,
    is_identity,
    kept_inside,
    moved,
    outline,
    placed_mask,
    relocated,
    scaling,
    shift,
)

TOLERANCE = 0.002
# Shifts in pixels at which a rate is searched. Scaling moves both ends of a side at once, so a square centered on the
# pixel grid has only even (or only odd) side lengths; shifted by half a pixel it has the others.
ASIDE = ((0.0, 0.0), (0.5, 0.5), (0.5, 0.0), (0.0, 0.5))


@dataclass(frozen=True)
class Size(Edit):
    """The object scaled about its center, kept inside the frame, over the photograph without it."""

    name = "size"
    axis = "rate"
    axis_label = "object's share of the picture"
    description = "how much of the picture the object covers"
    control = "reinsertion"
    order = 20
    factor = "smaller"
    changes = (
        Change("object smaller", "rate", None, 0.01, falls=True),
        Change("object larger", "rate", None, 1.0),
    )

    rate: float | str = parameter(
        0.05,
        Range(0.001, 1.0, unit="of the picture", spacing="log", words=("largest", "full"), step=0.001),
        "share of the picture that the object covers; largest: as large as the frame holds; full: the photograph "
        "cropped around its object, as in ImageNet-E",
    )
    start: float = blend_start(0.25)

    @property
    def compared_with(self) -> Control | None:
        return None if self.rate == "full" else self.control

    @property
    def blends_from(self) -> float:
        return 0.0 if self.rate == "full" else self.start

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        if self.rate == "full":
            return cropped(composition)
        if isinstance(self.rate, str):
            points = outline(composition.mask)
            placed = moved(points, composition.placement)
            low, high = box(placed)
            larger = after(scaling(float(1 / (high - low).max()), center(placed)), composition.placement)
            return relocated(composition, kept_inside(larger, points, "size largest"), self.start, size=self.rate)
        placement = with_rate(composition, composition.placement, self.rate, pool.size)
        return relocated(composition, placement, self.start, size=self.rate, pixel_rate=self.rate)

    def describe(self) -> str:
        if self.rate == "full":
            return "photograph cropped around its object"
        if isinstance(self.rate, str):
            return "object as large as fits the picture"
        return f"object at {100 * self.rate:g} % of the picture"

    def words(self, chained: bool = False) -> str:
        if isinstance(self.rate, str):
            return "cropped to the object" if self.rate == "full" else "as large as possible"
        return "small" if chained and self.rate <= 0.1 else f"object size {100 * self.rate:.2g} %"


def cropped(composition: Composition) -> Composition:
    """Return the photograph cropped around its object and stretched to the whole picture, as the released code does.

    The window is the bounding box of the largest part of the object; along its shorter side it is widened where the
    code's own rule reaches further, which is rare and by a few pixels.
    """
    import cv2

    if composition.cropped or not is_identity(composition.placement):
        raise Impossible("size full crops the photograph, so it must come before edits that move the object")
    side = composition.mask.shape[0]
    _, _, parts, _ = cv2.connectedComponentsWithStats((composition.mask > 0.5).astype(np.uint8))
    if len(parts) < 2:
        raise Impossible("the mask is empty")
    left, top, wide, high = (int(value) for value in max(parts[1:], key=lambda part: part[2] * part[3])[:4])
    spans = [(left, wide), (top, high)]
    longer = int(high > wide)
    first, extent = spans[1 - longer]
    middle = first + extent // 2
    reach = extent * spans[longer][1] / side
    begin = middle - reach * middle / side
    low, last = min(first, int(begin)), max(first + extent, int(begin + reach))
    spans[1 - longer] = (low, last - low)
    (left, wide), (top, high) = spans
    window = [left, top, left + wide, top + high]
    image, mask = in_window(composition.image, window), in_window(composition.mask, window)
    requested = {**composition.requested, "size": "full", "window": window}
    return replace(composition, image=image, mask=mask, cropped=True, requested=requested)


def with_rate(composition: Composition, placement: np.ndarray, rate: float, side: int) -> np.ndarray:
    """Return `placement` scaled about the object's center and shifted inside, so that mean(alpha > 0.5) is `rate`.

    Measured on real anti-aliased warps at the output size, since thin parts vanish as they shrink. If no scale comes
    within the tolerance, a shift by half a pixel is tried as well; raises Impossible if that fails too.
    """
    points = outline(composition.mask)
    placed = moved(points, placement)
    low, high = box(placed)
    largest = float(1 / (high - low).max())
    area = float((composition.mask > 0.5).mean()) * abs(float(np.linalg.det(placement[:, :2])))
    tried: list[tuple[float, float]] = []
    for aside in ASIDE:
        smaller, larger = 0.0, largest
        factor = min(float(np.sqrt(rate / area)), largest)
        best, best_error, best_measured = placement, np.inf, 0.0
        for _ in range(14):
            scaled = after(scaling(factor, center(placed)), placement)
            if any(aside):
                scaled = after(shift(aside[0] / side, aside[1] / side), scaled)
            candidate = kept_inside(scaled, points, f"size {rate:g}")
            measured = float(np.count_nonzero(placed_mask(composition.mask, candidate, side) > 0.5)) / side**2
            error = abs(measured - rate)
            if error < best_error:
                best, best_error, best_measured = candidate, error, measured
            if error <= min(3e-4, 0.01 * rate) or (factor >= largest and measured < rate):
                break
            smaller, larger = (factor, larger) if measured < rate else (smaller, factor)
            factor = factor * float(np.sqrt(rate / measured)) if measured else factor * 1.5
            if not smaller < factor < larger:
                factor = larger if larger == largest and measured < rate else (smaller + larger) / 2
        if best_error <= tolerance(rate, side):
            return best
        if best_measured < rate and factor >= largest and not tried:
            raise Impossible(f"size {rate:g}: the largest size that fits the frame is {best_measured:.3f}")
        tried.append((best_error, best_measured))
    _, nearest = min(tried, key=lambda pair: pair[0])
    raise Impossible(f"size {rate:g}: the nearest rate that this mask can have at {side} pixels is {nearest:.4f}")


def tolerance(rate: float, side: int) -> float:
    """Return how far the achieved pixel rate may be from the requested one: 0.002, or more for a tiny object."""
    return min(TOLERANCE, 4 * rate**0.5 / side)
