"""Measures of how well a diffusion network reproduces a photograph: sharpness, noise, grid."""

from __future__ import annotations

import numpy as np


def spectral_amplitude(images: np.ndarray) -> np.ndarray:
    """(N,) mean |FFT2| over channels and frequencies of (N, H, W, 3) pictures in [0, 1]: perceived sharpness."""
    return np.abs(np.fft.fft2(images.astype(np.float64), axes=(1, 2))).mean(axis=(1, 2, 3))


def noise_level(images: np.ndarray) -> np.ndarray:
    """(N,) standard deviation of the noise, estimated from wavelets (scikit-image), mean over channels."""
    from skimage.restoration import estimate_sigma

    return np.array([estimate_sigma(image, channel_axis=-1, average_sigmas=True) for image in images])


def grid(images: np.ndarray, period: int) -> float:
    """How uneven the mean difference of neighboring columns is by column index modulo `period`: max / min − 1.

    images: (N, H, W, 3). A few pictures are uneven by chance, and JPEG photographs by their 8×8 blocks.
    """
    steps = np.abs(np.diff(images.astype(np.float64), axis=2)).mean(axis=(0, 1, 3))
    by_phase = [steps[phase::period].mean() for phase in range(period)]
    return float(max(by_phase) / max(min(by_phase), 1e-12) - 1)
