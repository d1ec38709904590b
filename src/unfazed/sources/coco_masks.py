"""COCO's ways to write a mask (polygons, run lengths, compressed run lengths) as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# Polygons are drawn this many times larger and averaged, which gives their edges their share of a pixel.
_FINER = 4


def annotated_mask(segmentation: Any, high: int, wide: int) -> np.ndarray:
    """The mask of an annotation's `segmentation`: (high, wide) float32 in [0, 1]; ValueError if it makes no sense."""
    if isinstance(segmentation, list):
        return polygon_mask(segmentation, high, wide)
    if isinstance(segmentation, dict) and {"counts", "size"} <= segmentation.keys():
        if list(segmentation["size"]) != [high, wide]:
            raise ValueError(f"its run lengths are for {segmentation['size']}, the picture is {[high, wide]}")
        counts = segmentation["counts"]
        return run_length_mask(expand_counts(counts) if isinstance(counts, str | bytes) else counts, high, wide)
    raise ValueError("its segmentation is neither polygons nor run lengths")


def polygon_mask(polygons: Sequence[Sequence[float]], high: int, wide: int) -> np.ndarray:
    """The area inside any of the polygons [x0, y0, x1, y1, …]: (high, wide) float32 in [0, 1], edges by coverage."""
    import cv2

    outlines = [np.asarray(polygon, np.float64).reshape(-1, 2) for polygon in polygons if len(polygon) >= 6]
    if not outlines:
        raise ValueError("it has no polygon of three points or more")
    fine = np.zeros((high * _FINER, wide * _FINER), np.uint8)
    for outline in outlines:
        points = [np.rint(outline * _FINER - 0.5).astype(np.int32)]
        # fillPoly counts the outline as inside; on average half of it is. Polygons are drawn apart and joined by the
        # maximum, so that where they overlap none takes from the other.
        filled = cv2.fillPoly(np.zeros_like(fine), points, 255)
        fine = np.maximum(fine, cv2.polylines(filled, points, True, 128))
    return cv2.resize(fine, (wide, high), interpolation=cv2.INTER_AREA).astype(np.float32) / 255


def run_length_mask(counts: Sequence[int], high: int, wide: int) -> np.ndarray:
    """The mask of run lengths down the columns, background first: (high, wide) float32 of zeros and ones."""
    lengths = np.asarray(counts, np.int64)
    if (lengths < 0).any() or lengths.sum() != high * wide:
        raise ValueError(f"its run lengths cover {lengths.sum()} pixels, the picture has {high * wide}")
    values = (np.arange(len(lengths)) % 2).astype(np.float32)
    return np.ascontiguousarray(np.repeat(values, lengths).reshape(wide, high).T)


def expand_counts(text: str | bytes) -> list[int]:
    """The run lengths that COCO's compressed string stands for.

    Five bits a character from `0` on, lowest first, bit six says that more follow, the last one carries the sign;
    from the fourth on, a number is the difference from the one two before it.
    """
    counts: list[int] = []
    value = shift = 0
    for character in text.encode("ascii") if isinstance(text, str) else text:
        bits = character - 48
        if not 0 <= bits < 64:
            raise ValueError("its compressed run lengths hold a character that cannot be there")
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = shift = 0
    if shift:
        raise ValueError("its compressed run lengths are cut off")
    return counts
