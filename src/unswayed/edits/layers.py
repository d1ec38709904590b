"""Layers of a composition: the object's pixels on the canvas, its alpha, and the background."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np

from unswayed.scene import Scene
from unswayed.sources.pictures import read_picture

from .composition import Composition, Drawing, Guidance, Impossible, Original, Picture, PictureReference, Words
from .geometry import in_window, is_identity, placed_object, resized


@dataclass(frozen=True, eq=False)
class Layers:
    """One picture to be rendered, at the output size S.

    object: (S, S, 3) uint8, valid where alpha > 0; alpha: (S, S) float32 in [0, 1], anti-aliased, pasted back exactly;
    background: (S, S, 3) uint8, noised and denoised; start: share of the noise schedule at which blending starts, 0 =
    no diffusion; guidance: or None; label: the true class, for adversarial guidance; seed: of this picture alone;
    needs_network: why it cannot be pasted, or None; visible: (S, S) float32, the object without the parts that
    something covers, or None if nothing covers it; words: what a pipeline that reads words draws, or None; class_name:
    that of the label, if it is known.
    """

    object: np.ndarray
    alpha: np.ndarray
    background: np.ndarray
    start: float
    guidance: Guidance | None
    label: int | None
    seed: int
    needs_network: str | None = None
    visible: np.ndarray | None = None
    words: Words | None = None
    class_name: str | None = None

    @property
    def mask(self) -> np.ndarray:
        """The visible object, (S, S) float32 in [0, 1]: what the benchmark keeps and measures the pixel rate on."""
        return self.alpha if self.visible is None else self.visible

    @property
    def passes_by(self) -> tuple[float, bool]:
        """What the number of passes of a network depends on: the start, and whether its background is its own."""
        return self.start, self.needs_network is not None


class Resolver(Protocol):
    """Turns references to pictures into pictures of one size."""

    size: int

    def resolve(self, reference: PictureReference, composition: Composition) -> np.ndarray:
        """(size, size, 3) uint8, not to be written to."""
        ...


def realize(composition: Composition, backgrounds: Resolver, seed: int) -> Layers:
    """The layers of a composition at the size of `backgrounds`; the only place where an object is resampled.

    Raises Impossible if the background to change does not exist or nothing is left to make one from.
    """
    own, in_place = isinstance(composition.background, Original), is_identity(composition.placement)
    untouched = own and in_place
    pixels, alpha = placed_object(composition.image, composition.mask, composition.placement, backgrounds.size)
    replaced = not own or composition.start > 0
    behind_alone = replaced or bool(composition.adjustments and not composition.object_adjustments)
    if in_place and (alpha > 0.5).all() and behind_alone:
        raise Impossible("the object covers the whole picture: there is no background to change")
    background = pixels if untouched else backgrounds.resolve(composition.background, composition)
    # The photograph still contains the object, whose pixels must not bleed into a changed background.
    weight, behind = 1 - alpha if untouched else np.ones_like(alpha), [background]
    for change in composition.adjustments:
        background, weight = change.operation(background, weight, **dict(change.parameters))
        behind.append(background)
    if not untouched:
        pixels = own_colors(pixels, alpha)
    if composition.object_adjustments:
        solid = alpha
        for change in composition.object_adjustments:
            after = change.background_after
            more = {} if after is None else {"background": behind[after]}
            pixels, alpha = change.operation(pixels, alpha, **dict(change.parameters), **more)
        if untouched and alpha is not solid:
            # The background shows through a softened rim, but the photograph still has the sharp object there.
            background = membrane(background, 1 - solid)
    visible = None
    for cover in composition.covers:
        share = cover.alpha[..., None]
        visible = (alpha if visible is None else visible) * (1 - cover.alpha)
        below = (1 - share) * alpha[..., None]
        total = share + below
        mixed = (cover.pixels * share + pixels * below) / np.maximum(total, 1e-6)
        pixels, alpha = np.clip(np.round(mixed), 0, 255).astype(np.uint8), total[..., 0].astype(np.float32)
    rendering = composition.start, composition.guidance, composition.label, seed, composition.needs_network
    return Layers(pixels, alpha, background, *rendering, visible, composition.words, composition.class_name)


def visible_others(
    scene: Scene | None, composition: Composition, layers: Layers, backgrounds: Resolver
) -> list[tuple[int | None, np.ndarray]]:
    """The other objects in a picture, each with its class and the pixels of it that are visible, (S, S) bool.

    scene: the framed scene that the background shows, with its other objects, or None if it shows none. They stay where
    they are in it: what the object or something else hides, what a removal has filled, and what a crop cuts off is not
    visible. What hides the object is an object too.
    """
    side = backgrounds.size
    covers: list[tuple[int | None, np.ndarray]] = [
        (cover.label, cover.alpha > 0.5) for cover in composition.covers if cover.label is not None
    ]
    if scene is None or not scene.others:
        return covers
    hidden = np.zeros((side, side), bool)
    for cover in composition.covers:
        hidden |= cover.alpha > 0.5
    reference, own = composition.background, scene.id == composition.scene_id
    if not (isinstance(reference, Original) and is_identity(composition.placement)):
        hidden |= layers.alpha > 0.5
    if not isinstance(reference, Original):
        before = resized(composition.image if own else scene.image, side)
        hidden |= (backgrounds.resolve(reference, composition) != before).any(axis=2)
    window = composition.requested.get("window") if composition.cropped and own else None
    masks = ((label, mask if window is None else in_window(mask, window)) for label, mask in scene.others)
    return [*((label, (resized(mask, side) > 0.5) & ~hidden) for label, mask in masks), *covers]


def own_colors(pixels: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """The object's colors, with the old background removed from partly covered rim pixels.

    A rim pixel is c = a·F + (1 − a)·B; F and B near it are estimated from the object's and the background's own
    pixels, and F is corrected by what the estimate leaves unexplained (Forte, "Approximate fast foreground color
    estimation", 2021). Pixels with alpha 1 stay as they are.
    """
    rim = (alpha > 0) & (alpha < 1)
    rows, columns = np.flatnonzero(rim.any(axis=1)), np.flatnonzero(rim.any(axis=0))
    if not len(rows):
        return pixels
    reach = 4
    window = tuple(slice(max(lines[0] - reach, 0), lines[-1] + 1 + reach) for lines in (rows, columns))
    shares, colors, inside = alpha[window][..., None], pixels[window], rim[window]
    solid = np.where(shares > 0.95, np.float32(1), shares * np.float32(0.02))
    front = _means(colors, solid, reach, inside)
    behind = _means(colors, 1 - shares, reach, inside)
    share, mixed = shares[inside], colors[inside]
    clean = front + share * (mixed - share * front - (1 - share) * behind)
    cleaned = pixels.copy()
    cleaned[window][inside] = np.clip(np.round(clean), 0, 255).astype(np.uint8)
    return cleaned


def _means(colors: np.ndarray, weights: np.ndarray, reach: int, where: np.ndarray) -> np.ndarray:
    """The mean color around the pixels of `where`, (N, 3) float32, each neighbor counted by its weight."""
    weighted = np.empty((*colors.shape[:2], 4), np.float32)
    np.multiply(colors, weights, out=weighted[..., :3])
    weighted[..., 3:] = weights
    total = cv2.boxFilter(weighted, -1, (2 * reach + 1, 2 * reach + 1), normalize=False)[where]
    return total[:, :3] / np.maximum(total[:, 3:], 1e-6)


def membrane(picture: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The picture where `weight` is 1, and a smooth blend of what surrounds it where it is 0.

    picture: (H, W, 3) uint8; weight: (H, W) float32 in [0, 1]. Known pixels are averaged down a pyramid until every
    gap is closed, and the gaps filled on the way back up; if nothing is known, the result is black.
    """
    known = weight[..., None].astype(np.float32)
    levels = [np.concatenate([picture.astype(np.float32) * known, known], axis=2)]
    while min(levels[-1].shape[:2]) > 1 and levels[-1][..., 3].min() < 0.99:
        levels.append(cv2.pyrDown(levels[-1]))
    filled = levels[-1][..., :3] / np.maximum(levels[-1][..., 3:], 1e-6)
    for level in reversed(levels[:-1]):
        share = np.minimum(level[..., 3:], 1)
        coarse = cv2.pyrUp(filled, dstsize=level.shape[1::-1])
        filled = level[..., :3] + (1 - share) * coarse
    return np.clip(np.round(filled), 0, 255).astype(np.uint8)


def composite(front: np.ndarray, alpha: np.ndarray, back: np.ndarray) -> np.ndarray:
    """alpha·front + (1 − alpha)·back, (S, S, 3) uint8; exactly `front` where alpha is 1 and `back` where it is 0."""
    share = alpha[..., None]
    mixed = back + share * (front.astype(np.float32) - back)
    return np.clip(np.rint(mixed), 0, 255).astype(np.uint8)


def without_object(image: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """The picture with its object filled smoothly from what surrounds it, from a quarter of the resolution on."""
    hole = cv2.dilate((alpha > 0.05).view(np.uint8), np.ones((9, 9), np.uint8))
    high, wide = alpha.shape
    size = (wide + 3) // 4, (high + 3) // 4
    known = (cv2.resize(hole * 255, size, interpolation=cv2.INTER_AREA) == 0).astype(np.float32)
    filled = membrane(cv2.resize(image, size, interpolation=cv2.INTER_AREA), known)
    smooth = cv2.resize(filled, (wide, high), interpolation=cv2.INTER_LINEAR)
    return over(smooth, cv2.blur(hole.astype(np.float32), (3, 3)), image)


def over(front: np.ndarray, alpha: np.ndarray, back: np.ndarray) -> np.ndarray:
    """alpha·front + (1 − alpha)·back, (H, W, 3) uint8."""
    return cv2.blendLinear(front, back, alpha, 1 - alpha)


def drawn_picture(reference: Picture | Drawing, size: int) -> np.ndarray:
    """The picture of a file, or one drawn by code, at size×size."""
    if isinstance(reference, Picture):
        return square_picture(reference.path, size)
    return reference.draw(size, np.random.default_rng(reference.seed))


def square_picture(path: str, size: int) -> np.ndarray:
    """A picture file's central square at size×size."""
    picture = read_picture(path)
    high, wide = picture.shape[:2]
    side = min(high, wide)
    top, left = (high - side) // 2, (wide - side) // 2
    return resized(np.ascontiguousarray(picture[top : top + side, left : left + side]), size)
