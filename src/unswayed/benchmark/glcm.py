"""Complexity of a background: gray-level co-occurrence (Haralick 1973) of pixel pairs within it.

The settings are fixed so that numbers are comparable: luma in 32 gray levels, distance 1, four angles (0, 45, 90, 135
degrees), pairs counted in both directions, each measure the mean of its values at the four angles.
"""

from __future__ import annotations

import numpy as np

from unswayed.errors import UserError

LEVELS = 32
OFFSETS = ((0, 1), (1, 1), (1, 0), (1, -1))
_LUMA = np.array([0.299, 0.587, 0.114])


def cooccurrence(image: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """(4, 32, 32) float64: for each angle the share of neighboring pairs with these two gray levels, symmetric.

    image: (H, W, 3) uint8; inside: (H, W) bool, where both pixels of a pair must lie.
    """
    if inside.shape != image.shape[:2]:
        raise UserError(
            f"the mask is {inside.shape}, its picture {image.shape[:2]}", allowed="a mask of its picture's size"
        )
    gray = np.clip(np.rint(image @ _LUMA), 0, 255).astype(np.int64) * LEVELS // 256
    inside = inside.astype(bool)
    high, wide = gray.shape
    tables = np.zeros((len(OFFSETS), LEVELS, LEVELS))
    for angle, (down, right) in enumerate(OFFSETS):
        here = np.s_[: high - down, max(0, -right) : wide - max(0, right)]
        there = np.s_[down:, max(0, right) : wide + min(0, right)]
        both = inside[here] & inside[there]
        pairs = gray[here][both] * LEVELS + gray[there][both]
        table = np.bincount(pairs, minlength=LEVELS * LEVELS).reshape(LEVELS, LEVELS).astype(np.float64)
        table = table + table.T
        if table.sum() > 0:
            tables[angle] = table / table.sum()
    return tables


def glcm_measures(image: np.ndarray, object_mask: np.ndarray) -> dict[str, float]:
    """Contrast, dissimilarity, homogeneity and energy of the background; NaN if it contains no pair.

    image: (H, W, 3) uint8; object_mask: (H, W) in [0, 1]: every pixel that the object touches is excluded.

    >>> flat = np.full((8, 8, 3), 90, np.uint8)
    >>> glcm_measures(flat, np.zeros((8, 8)))["contrast"]
    0.0
    """
    tables = cooccurrence(image, np.asarray(object_mask) <= 0)
    filled = tables[tables.sum(axis=(1, 2)) > 0]
    if len(filled) == 0:
        return dict.fromkeys(("contrast", "dissimilarity", "homogeneity", "energy"), float("nan"))
    rows, columns = np.indices((LEVELS, LEVELS))
    apart = np.abs(rows - columns)

    def mean(weights: np.ndarray) -> float:
        return float((filled * weights).sum(axis=(1, 2)).mean())

    return {
        "contrast": mean(apart**2),
        "dissimilarity": mean(apart),
        "homogeneity": mean(1 / (1 + apart**2)),
        "energy": float(np.sqrt((filled**2).sum(axis=(1, 2))).mean()),
    }
