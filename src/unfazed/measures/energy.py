"""The Energy score (Liu et al. 2020): how strongly a classifier answers at all, low for unfamiliar pictures."""

from __future__ import annotations

import numpy as np
from scipy import special


def energy(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """(N,) float64, T · log Σ exp(logit / T) of (N, classes) logits: the negative free energy, higher is more familiar.

    >>> energy(np.zeros((1, 8))).round(4).tolist()
    [2.0794]
    """
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    return temperature * special.logsumexp(scaled, axis=1)
