"""A composition made into layers: the object's pixels on the canvas, its alpha, and what lies behind it."""

from __future__ import annotations

import cv2
import numpy as np

from unfazed.edits.composition import Composition, Impossible, Original, adjusted
from unfazed.edits.geometry import is_identity, placed_object

from .backgrounds import Backgrounds
from .layers import Layers
from .membrane import membrane


def realise(composition: Composition, backgrounds: Backgrounds, seed: int) -> Layers:
    """The layers of a composition at the size of `backgrounds`; the only place where an object is resampled.

    Raises Impossible where a background is to be changed that is not there, or to be made up from nothing.
    """
    size = backgrounds.size
    untouched = isinstance(composition.background, Original) and is_identity(composition.placement)
    pixels, alpha = placed_object(composition.image, composition.mask, composition.placement, size)
    if is_identity(composition.placement) and (alpha > 0.5).all() and _behind_alone(composition):
        raise Impossible("the object covers the whole picture: there is no background to change")
    background = pixels if untouched else backgrounds.resolve(composition.background, composition)
    if composition.adjustments:
        # The photograph still holds the object: its pixels must not bleed into a background that is changed.
        weight = 1 - alpha if untouched else np.ones_like(alpha)
        background, _ = adjusted(background, weight, composition.adjustments)
    if not untouched:
        pixels = own_colours(pixels, alpha)
    if composition.object_adjustments:
        solid = alpha
        pixels, alpha = adjusted(pixels, alpha, composition.object_adjustments)
        if untouched and alpha is not solid:
            # A softened rim lets through what is behind, where the photograph still has the sharp object.
            background = membrane(background, 1 - solid)
    visible = None
    for cover in composition.covers:
        fill = backgrounds.resolve(cover.fill, composition)
        visible = (alpha if visible is None else visible) * (1 - cover.alpha)
        pixels, alpha = _over(fill, cover.alpha, pixels, alpha)
    return Layers(
        object=pixels,
        alpha=alpha,
        background=background,
        start=composition.start,
        guidance=composition.guidance,
        label=composition.label,
        seed=seed,
        needs_network=composition.needs_network,
        visible=visible,
    )


def _behind_alone(composition: Composition) -> bool:
    """Whether all that is asked for is another background."""
    replaced = not isinstance(composition.background, Original) or composition.start > 0
    return replaced or bool(composition.adjustments and not composition.object_adjustments)


def own_colours(pixels: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """The object's colours without the old background that a partly covered rim pixel still holds.

    A rim pixel is c = a·F + (1 − a)·B; F and B near it are estimated from the object's and the background's own
    pixels, and F is corrected by what the estimate leaves unexplained (Forte, "Approximate fast foreground colour
    estimation", 2021). Pixels with alpha 1 stay as they are.
    """
    rim = (alpha > 0) & (alpha < 1)
    rows, columns = np.flatnonzero(rim.any(axis=1)), np.flatnonzero(rim.any(axis=0))
    if not len(rows):
        return pixels
    reach = 4
    window = (
        slice(max(rows[0] - reach, 0), rows[-1] + 1 + reach),
        slice(max(columns[0] - reach, 0), columns[-1] + 1 + reach),
    )
    shares = alpha[window][..., None]
    colours = pixels[window]
    inside = rim[window]
    solid = np.where(shares > 0.95, np.float32(1), shares * np.float32(0.02))
    front = _means(colours, solid, reach, inside)
    behind = _means(colours, 1 - shares, reach, inside)
    share, mixed = shares[inside], colours[inside]
    clean = front + share * (mixed - share * front - (1 - share) * behind)
    cleaned = pixels.copy()
    cleaned[window][inside] = np.clip(np.round(clean), 0, 255).astype(np.uint8)
    return cleaned


def _means(colours: np.ndarray, weights: np.ndarray, reach: int, where: np.ndarray) -> np.ndarray:
    """The mean colour around the pixels of `where`, (N, 3) float32, each neighbour counted by its weight."""
    weighted = np.empty((*colours.shape[:2], 4), np.float32)
    np.multiply(colours, weights, out=weighted[..., :3])
    weighted[..., 3:] = weights
    total = cv2.boxFilter(weighted, -1, (2 * reach + 1, 2 * reach + 1), normalize=False)[where]
    return total[:, :3] / np.maximum(total[:, 3:], 1e-6)


def _over(
    front: np.ndarray, front_alpha: np.ndarray, back: np.ndarray, back_alpha: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Two layers as one: `front` laid over `back`."""
    share = front_alpha[..., None]
    below = (1 - share) * back_alpha[..., None]
    total = share + below
    mixed = (front * share + back * below) / np.maximum(total, 1e-6)
    return np.clip(np.round(mixed), 0, 255).astype(np.uint8), total[..., 0].astype(np.float32)
