"""The hole that the removal of an object fills: its mask, widened by a rim and by room for its shadow."""

from __future__ import annotations

import cv2
import numpy as np

from unswayed.edits.composition import Impossible
from unswayed.edits.geometry import resized
from unswayed.errors import BadPicture
from unswayed.scene import Scene

# From less of the picture than this nothing but one plain color can be made up, and from none of it black.
LEAST = 0.02
GLANCE = 64  # pixels


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
