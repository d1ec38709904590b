"""Measures of the complexity of a background, on arrays: gray-level co-occurrence and spectral amplitude."""

from __future__ import annotations

import math

import cv2
import numpy as np

from unswayed.errors import UserError

LEVELS = 32
OFFSETS = ((0, 1), (1, 1), (1, 0), (1, -1))
_LUMA = np.array([0.299, 0.587, 0.114])
# Octave bands of spatial frequency, in cycles per pixel, from the coarsest structure to the grain.
BANDS = ((1 / 64, 1 / 16), (1 / 16, 1 / 8), (1 / 8, 1 / 4), (1 / 4, 1.0))


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


def background_measures(image: np.ndarray, object_mask: np.ndarray) -> dict[str, float]:
    """GLCM contrast and dissimilarity and spectral amplitude of a background; empty where there is none."""
    texture = glcm_measures(image, object_mask)
    measures = {name: texture[name] for name in ("contrast", "dissimilarity")}
    measures["amplitude"] = background_amplitude(image, object_mask)
    return {f"background_{name}": round(value, 5) for name, value in measures.items() if math.isfinite(value)}


def background_amplitude(image: np.ndarray, object_mask: np.ndarray) -> float:
    """The mean |FFT2| over channels and frequencies of the background alone; NaN where there is no background.

    image: (H, W, 3) uint8; object_mask: (H, W) in [0, 1]. The background's mean color is taken away and the object is
    left out; divided by the root of the background's share, so that a large object does not count as a smooth picture.

    >>> round(background_amplitude(np.full((8, 8, 3), 90, np.uint8), np.zeros((8, 8))), 6)
    0.0
    """
    behind = np.asarray(object_mask) <= 0
    share = behind.mean()
    if share == 0:
        return float("nan")
    color = cv2.mean(image, behind.view(np.uint8))[:3]
    pixels = np.stack([np.subtract(*pair, dtype=np.float32) for pair in zip(cv2.split(image), color, strict=True)])
    pixels *= behind
    sizes = np.abs(np.fft.rfft2(pixels)).sum(axis=(0, 1), dtype=np.float64)
    # The spectrum of real numbers has every column twice, except the first and, where there is one, the middle.
    twice = 2 * sizes.sum() - sizes[0] - (sizes[-1] if image.shape[1] % 2 == 0 else 0)
    return float(twice / image.size / 255 / np.sqrt(share))


def band_amplitudes(image: np.ndarray, object_mask: np.ndarray) -> np.ndarray:
    """(4,) float64: the mean |FFT2| of the background's luma in each of `BANDS`; NaN where there is no background.

    image: (H, W, 3) uint8; object_mask: (H, W) in [0, 1]. As in `background_amplitude`, the object is left out.
    """
    behind = np.asarray(object_mask) <= 0
    if not behind.any():
        return np.full(len(BANDS), np.nan)
    luma = (image @ _LUMA / 255).astype(np.float32)
    size = np.abs(np.fft.rfft2(np.where(behind, luma - luma[behind].mean(), 0)))
    frequency = np.hypot(np.fft.fftfreq(image.shape[0])[:, None], np.fft.rfftfreq(image.shape[1])[None])
    return np.array([size[(frequency >= low) & (frequency < high)].mean() for low, high in BANDS], np.float64)
