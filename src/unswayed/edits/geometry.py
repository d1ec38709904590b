"""The placement of an object on the canvas, and its pixels there: affine maps of the unit square, anti-aliased warps.

Points are (x, y) in the unit square, y down; a pixel of an H×H picture covers [i/H, (i+1)/H). An object is where its
mask is above one half; the softer edge around it is drawn but does not count for boxes and rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .composition import IDENTITY, Composition, Impossible, Original, WithoutObject

# Boxes are compared with this tolerance (a thousandth of a pixel at 256), so that rounding alone never refuses one.
SLACK = 4e-6


def shift(x: float, y: float) -> np.ndarray:
    return np.array([[1.0, 0.0, x], [0.0, 1.0, y]])


def scaling(factor: float, center: np.ndarray) -> np.ndarray:
    """Return the map that scales by `factor` about `center`."""
    return np.array([[factor, 0.0, center[0] * (1 - factor)], [0.0, factor, center[1] * (1 - factor)]])


def rotation(degrees: float, center: np.ndarray) -> np.ndarray:
    """Return the map that rotates by `degrees` counterclockwise (as seen) about `center`."""
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    turn = np.array([[cosine, sine], [-sine, cosine]])
    return np.hstack([turn, (center - turn @ center)[:, None]])


def after(outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Return the map that applies `inner`, then `outer`."""
    return np.hstack([outer[:, :2] @ inner[:, :2], outer[:, :2] @ inner[:, 2:] + outer[:, 2:]])


def moved(points: np.ndarray, placement: np.ndarray) -> np.ndarray:
    return points @ placement[:, :2].T + placement[:, 2]


def outline(mask: np.ndarray) -> np.ndarray:
    """Return the convex hull of the object, (N, 2) points in the unit square, which determines every bounding box."""
    import cv2

    inside = mask > 0.5
    rows = np.flatnonzero(inside.any(axis=1))
    if not len(rows):
        raise Impossible("the mask is empty")
    first = inside[rows].argmax(axis=1)
    last = inside.shape[1] - inside[rows, ::-1].argmax(axis=1)
    ends = np.concatenate([first, last])
    corners = np.stack([np.tile(ends, 2), np.concatenate([rows, rows, rows + 1, rows + 1])], axis=1)
    hull = cv2.convexHull(corners.astype(np.int32))[:, 0, :]
    return hull / np.array(inside.shape[::-1], dtype=float)


def box(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounding box's upper left and lower right corner."""
    return points.min(axis=0), points.max(axis=0)


def center(points: np.ndarray) -> np.ndarray:
    """Return the middle of the bounding box, the object's own center."""
    return (points.min(axis=0) + points.max(axis=0)) / 2


def kept_inside(placement: np.ndarray, points: np.ndarray, what: str) -> np.ndarray:
    """Return `placement` shifted as little as needed for the placed object to be inside the frame.

    points: the object's outline in the photograph. Raises Impossible, with `what`, if the frame is too small.
    """
    low, high = box(moved(points, placement))
    extent = high - low
    if (extent > 1 + SLACK).any():
        side = "wide" if extent[0] >= extent[1] else "high"
        raise Impossible(f"{what}: the object would be {extent.max():.2f} times as {side} as the frame")
    step = np.where(extent >= 1, (1 - extent) / 2 - low, np.clip(low, 0, np.maximum(1 - extent, 0)) - low)
    return after(shift(*step), placement)


def is_identity(placement: np.ndarray) -> bool:
    return bool(np.array_equal(placement, IDENTITY))


def relocated(composition: Composition, placement: np.ndarray, start: float = 0.25, **requested: object) -> Composition:
    """Return the composition with its object moved, over the photograph without it (ImageNet-E, Algorithm 2)."""
    if composition.cropped:
        # The photograph without its object is made of the whole photograph, of which only a part is left.
        raise Impossible("the photograph is already cropped around its object, which cannot be moved any more")
    background = composition.background
    return replace(
        composition,
        placement=placement,
        background=WithoutObject(composition.scene_id) if isinstance(background, Original) else background,
        start=max(composition.start, start),
        requested={**composition.requested, **requested},
    )


def resized(picture: np.ndarray, side: int, larger: int | None = None) -> np.ndarray:
    """Return a square picture or mask at side×side, anti-aliased; larger: OpenCV's way to enlarge it, else linear."""
    import cv2

    if picture.shape[0] == side:
        return picture
    larger = cv2.INTER_LINEAR if larger is None else larger
    return cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA if picture.shape[0] > side else larger)


def in_window(picture: np.ndarray, window: Sequence[int]) -> np.ndarray:
    """Return what a window (left, top, right, bottom) of a square picture or mask shows, stretched to its size."""
    import cv2

    left, top, right, bottom = window
    shown = np.ascontiguousarray(picture[top:bottom, left:right])
    return cv2.resize(shown, picture.shape[1::-1], interpolation=cv2.INTER_LINEAR)


def placed_mask(mask: np.ndarray, placement: np.ndarray, side: int) -> np.ndarray:
    """Return the object's alpha on a side×side canvas, float32, in multiples of 1/255, as in a mask file."""
    return np.rint(_placed(mask, mask, placement, side) * np.float32(255)) * np.float32(1 / 255)


def placed_object(
    image: np.ndarray, mask: np.ndarray, placement: np.ndarray, side: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the object's pixels (S, S, 3) uint8 and alpha (S, S) float32 on a side×side canvas, resampled once."""
    return _placed(image, mask, placement, side), placed_mask(mask, placement, side)


def _placed(picture: np.ndarray, mask: np.ndarray, placement: np.ndarray, side: int) -> np.ndarray:
    """Return the picture, or the mask itself, on a side×side canvas; anti-aliased at any scale.

    Only the part of the photograph that contains the object is shrunk by area averaging and then warped.
    """
    import cv2

    if is_identity(placement):
        return resized(picture, side)
    canvas = np.zeros((side, side, *picture.shape[2:]), picture.dtype)
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return canvas
    high, wide = mask.shape
    margin = 2
    top, bottom = max(rows[0] - margin, 0), min(rows[-1] + 1 + margin, high)
    left, right = max(columns[0] - margin, 0), min(columns[-1] + 1 + margin, wide)
    corners = np.array([[x / wide, y / high] for x in (left, right) for y in (top, bottom)])
    landed = moved(corners, placement) * side
    first = np.maximum(np.floor(landed.min(axis=0)).astype(int) - 1, 0)
    last = np.minimum(np.ceil(landed.max(axis=0)).astype(int) + 1, side)
    if (last <= first).any():
        return canvas
    share = min(float(np.sqrt(abs(np.linalg.det(placement[:, :2])))) * side / high, 1.0)
    shrunk = max(int(round((right - left) * share)), 1), max(int(round((bottom - top) * share)), 1)
    # pixel of the shrunk cut -> unit square of the photograph -> unit square of the canvas -> pixel of the window
    steps = np.array([(right - left) / shrunk[0] / wide, (bottom - top) / shrunk[1] / high])
    to_unit = np.array([[steps[0], 0, left / wide + steps[0] / 2], [0, steps[1], top / high + steps[1] / 2]])
    to_window = np.array([[side, 0, -0.5 - first[0]], [0, side, -0.5 - first[1]]], dtype=float)
    matrix = after(to_window, after(placement, to_unit))
    cut = picture[top:bottom, left:right]
    if shrunk != cut.shape[1::-1]:
        cut = cv2.resize(cut, shrunk, interpolation=cv2.INTER_AREA)
    is_mask = picture.ndim == 2
    flags, border = (cv2.INTER_LINEAR, cv2.BORDER_CONSTANT) if is_mask else (cv2.INTER_CUBIC, cv2.BORDER_REPLICATE)
    extent = tuple((last - first).tolist())
    warped = cv2.warpAffine(cut, matrix, extent, flags=flags, borderMode=border, borderValue=0)
    canvas[first[1] : last[1], first[0] : last[0]] = warped
    return canvas


def border_contact(mask: np.ndarray) -> float:
    """Return the share of the object's outline that the photograph's border cuts off, in [0, 1].

    >>> border_contact(np.ones((8, 8)))
    1.0
    """
    inside = mask > 0.5
    border = sum(int(edge.sum()) for edge in (inside[0], inside[-1], inside[:, 0], inside[:, -1]))
    within = int((inside[1:] != inside[:-1]).sum()) + int((inside[:, 1:] != inside[:, :-1]).sum())
    return border / (border + within) if border + within else 0.0
