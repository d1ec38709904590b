"""Masks from COCO's formats (polygons, run lengths, compressed run lengths) as arrays."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from .pictures import LONGEST_SIDE

# Polygons are drawn this many times larger and averaged, which anti-aliases their edges.
# Pictures that are reduced later, because a side is above LONGEST_SIDE, do not need it.
_FINER = 4
MOST_POLYGONS = 1000
MOST_OVERLAP = 16  # pictures that the boxes around the polygons would fill
MOST_LINES, MOST_PAIRS = 5000, 2e10  # lines that meet one row; pairs of them, summed over the rows


def annotated_mask(segmentation: Any, high: int, wide: int) -> np.ndarray:
    """The mask of an annotation's `segmentation`: (high, wide) float32 in [0, 1]; ValueError if it makes no sense."""
    if isinstance(segmentation, list):
        return polygon_mask(segmentation, high, wide)
    if isinstance(segmentation, dict) and {"counts", "size"} <= segmentation.keys():
        if list(segmentation["size"]) != [high, wide]:
            raise ValueError(f"its run lengths are for {segmentation['size']}, the picture is {[high, wide]}")
        return run_length_mask(segmentation["counts"], high, wide)
    raise ValueError("its segmentation is neither polygons nor run lengths")


def polygon_mask(polygons: Sequence[Sequence[float]], high: int, wide: int) -> np.ndarray:
    """The area inside any of the polygons [x0, y0, x1, y1, …]: (high, wide) float32 in [0, 1], edges by coverage."""
    import cv2

    if len(polygons) > MOST_POLYGONS:
        raise ValueError(f"it has {len(polygons)} polygons, more than {MOST_POLYGONS}")
    outlines = [np.asarray(polygon, np.float64).reshape(-1, 2) for polygon in polygons if len(polygon) >= 6]
    if not outlines:
        raise ValueError("it has no polygon of three points or more")
    far = max(high, wide)
    if not all(((outline > -far) & (outline < 2 * far)).all() for outline in outlines):
        raise ValueError("its polygons have coordinates that are not numbers or lie far outside the picture")
    finer = _FINER if high * wide <= LONGEST_SIDE**2 else 1
    fine = np.zeros((high * finer, wide * finer), np.uint8)
    area, pairs = 0, 0.0
    for outline in outlines:
        points = np.rint(outline * finer - 0.5).astype(np.int32)
        left, top = np.clip(points.min(0), 0, fine.shape[::-1])
        right, bottom = np.clip(points.max(0) + 1, 0, fine.shape[::-1])
        box = fine[top:bottom, left:right]
        area += box.size
        # The lines of a row are sorted, so the time grows with the pairs of them.
        lines = _lines_in_rows(points[:, 1])
        pairs += float((lines.astype(np.float64) ** 2).sum())
        if area > MOST_OVERLAP * fine.size or lines.max() > MOST_LINES or pairs > MOST_PAIRS:
            raise ValueError("its polygons overlap each other or cross themselves too often")
        if box.size == 0:
            continue
        # fillPoly counts the outline as inside; on average half of it is. Polygons are drawn separately and joined by
        # the maximum, so that overlapping polygons do not cancel out.
        shifted = [points - np.array([left, top], np.int32)]
        filled = cv2.fillPoly(np.zeros(box.shape, np.uint8), shifted, 255)
        np.maximum(box, cv2.polylines(filled, shifted, True, 128), out=box)
    return cv2.resize(fine, (wide, high), interpolation=cv2.INTER_AREA).astype(np.float32) / 255


def _lines_in_rows(rows: np.ndarray) -> np.ndarray:
    """How many lines of a polygon meet each row from its first to its last; `rows` are those of its points."""
    ends = np.stack([rows, np.roll(rows, -1)]) - rows.min()
    return np.cumsum(np.bincount(ends.min(0), minlength=int(ends.max()) + 1) - np.bincount(ends.max(0)))


def run_length_mask(counts: str | bytes | Sequence[int], high: int, wide: int) -> np.ndarray:
    """The mask of COCO's run lengths, as numbers or as a compressed string: (high, wide) float32 of zeros and ones."""
    from pycocotools import mask as coco

    if isinstance(counts, str | bytes):
        text = counts.encode("ascii") if isinstance(counts, str) else counts
        mask = coco.decode({"counts": text, "size": [high, wide]})
        # Where the run lengths end too early, pycocotools leaves the rest of the mask uninitialized without an error.
        if coco.encode(mask)["counts"] != text:
            raise ValueError(f"its compressed run lengths do not cover exactly the {high * wide} pixels of the picture")
        return mask.astype(np.float32)
    lengths = [operator.index(count) for count in counts]
    if min(lengths, default=0) < 0 or sum(lengths) != high * wide:
        raise ValueError(f"its run lengths cover {sum(lengths)} pixels, the picture has {high * wide}")
    size = [high, wide]
    return coco.decode(coco.frPyObjects({"counts": lengths, "size": size}, high, wide)).astype(np.float32)
