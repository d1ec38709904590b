"""The spectral amplitude of a background: what ImageNet-E's complexity guidance raises and lowers."""

from __future__ import annotations

import math

import numpy as np

from .glcm import glcm_measures


def background_measures(image: np.ndarray, object_mask: np.ndarray) -> dict[str, float]:
    """GLCM contrast and dissimilarity and spectral amplitude of a background; empty where there is none."""
    texture = glcm_measures(image, object_mask)
    found = {name: texture[name] for name in ("contrast", "dissimilarity")}
    found["amplitude"] = background_amplitude(image, object_mask)
    return {f"background_{name}": round(value, 5) for name, value in found.items() if math.isfinite(value)}


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
    pixels = image.astype(np.float64) / 255
    pixels = np.where(behind[..., None], pixels - pixels[behind].mean(axis=0), 0.0)
    return float(np.abs(np.fft.fft2(pixels, axes=(0, 1))).mean() / np.sqrt(share))
