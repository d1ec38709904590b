"""How far a classifier's confidence is from its accuracy."""

from __future__ import annotations

import numpy as np

BINS = 15


def expected_calibration_error(correct: np.ndarray, probability: np.ndarray, bins: int = BINS) -> float:
    """Σ share of the bin x |accuracy in it - mean confidence in it| over equal bins, in [0, 1]; NaN without images.

    A probability on an edge belongs to the bin below it.

    >>> round(expected_calibration_error(np.array([True, False]), np.array([0.9, 0.9])), 6)
    0.4
    """
    if len(correct) == 0:
        return float("nan")
    # share x |accuracy - confidence| = |right - Σ confidence| / n, so empty bins need no care
    return float(np.abs(bin_gaps(correct, probability, bins).sum(axis=0)).sum() / len(correct))


def bin_gaps(correct: np.ndarray, probability: np.ndarray, bins: int = BINS) -> np.ndarray:
    """(images, bins): correct minus probability of each image in the column of its bin, 0 in the others."""
    gaps = np.zeros((len(correct), bins))
    bin_of_image = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], probability)
    gaps[np.arange(len(correct)), bin_of_image] = correct - probability
    return gaps
