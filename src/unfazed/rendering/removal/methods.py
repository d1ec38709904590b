"""Object removal: a picture and the mask of its object in, the same picture without the object out."""

from __future__ import annotations

from importlib import import_module

import cv2
import numpy as np

from unfazed.edits.composition import Impossible
from unfazed.edits.geometry import resized
from unfazed.errors import BadPicture, UserError, unknown
from unfazed.rendering.backgrounds import Removal
from unfazed.scene import Scene

from .patches import fill_hole

# From less of the picture than this nothing but one plain colour can be made up, and from none of it black.
LEAST = 0.02
GLANCE = 64  # pixels

# name -> "module:class" that makes it; what follows `name:` in a spec is handed to the class
REMOVALS: dict[str, str] = {
    "opencv": "unfazed.rendering.removal.methods:OpencvRemoval",
    "diffusion": "unfazed.rendering.removal.diffusion:DiffusionRemoval",
    "onnx": "unfazed.rendering.removal.onnx:OnnxRemoval",
}


def open_removal(spec: str = "opencv", device: str | None = None) -> Removal:
    """A callable (image (S, S, 3) uint8, mask (S, S) float, seed, label) -> (S, S, 3) uint8, with a `name`.

    device: where the removal by diffusion runs; the others have no use for it.
    """
    name, _, detail = spec.partition(":")
    if name not in REMOVALS:
        raise unknown("object removal", name, REMOVALS)
    if name == "opencv" and detail:
        raise UserError(f"the object removal is '{spec}'", allowed="opencv, diffusion, diffusion:NETWORK, onnx:FILE")
    module, _, maker = REMOVALS[name].partition(":")
    options = {"device": device} if name == "diffusion" else {}
    removal: Removal = getattr(import_module(module), maker)(*([detail] if detail else []), **options)
    return removal


class OpencvRemoval:
    """Removal without a network: a generous hole, filled from patches of the rest of the picture."""

    name = "opencv-patches-1"

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int = 0, label: int | None = None) -> np.ndarray:
        return fill_hole(image, hole_of(mask), seed)


def hole_of(mask: np.ndarray) -> np.ndarray:
    """The hole that a removal fills, (S, S) bool; raises Impossible where next to nothing is left to fill it from."""
    hole = generous(mask)
    left = 1 - float(hole.mean())
    if left < LEAST:
        raise Impossible(
            f"the object cannot be removed: around it {left:.1%} of the picture is left, at least {LEAST:.0%} is needed"
        )
    return hole


def lendable(framed: Scene, size: int) -> Scene:
    """The scene itself, whose background others may borrow; BadPicture, which a pool passes over, where it has none."""
    # At a glance most objects leave far more than is needed; rims are wider there, never narrower.
    if generous(resized(framed.mask, GLANCE)).mean() < 0.9:
        return framed
    try:
        hole_of(resized(framed.mask, size))
    except Impossible as impossible:
        raise BadPicture(f"{framed.id}: {impossible}") from None
    return framed


def generous(mask: np.ndarray) -> np.ndarray:
    """The object and what betrays it, (S, S) bool: a rim for soft edges, and a longer one below for its shadow."""
    around = max(int(round(mask.shape[0] * 0.024)), 2)
    rows = np.flatnonzero((mask > 0.5).any(axis=1))
    height = rows[-1] + 1 - rows[0] if len(rows) else 0
    # A shadow on the ground reaches about as far below an object as a sixth of its height.
    below = max(around * 2, int(round(min(height / 6, mask.shape[0] * 0.12))))
    kernel = np.zeros((2 * below + 1, 2 * below + 1), np.uint8)
    # OpenCV reads a kernel at (x, y) from the pixel x right and y below; so a reach upwards grows the hole downwards.
    cv2.ellipse(kernel, (below, below - (below - around) // 2), (around, (around + below) // 2), 0, 0, 360, 1, -1)
    hole = cv2.dilate((mask > 0.02).astype(np.uint8), kernel)
    # Necks and islands between an object's parts are mostly pieces that the mask missed.
    neck = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (around + 1, around + 1))
    rest = cv2.morphologyEx(1 - hole, cv2.MORPH_OPEN, neck)
    _, pieces, facts, _ = cv2.connectedComponentsWithStats(rest, connectivity=4)
    small = facts[:, cv2.CC_STAT_AREA] < 0.005 * mask.size
    return (rest == 0) | small[pieces]
