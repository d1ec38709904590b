"""Scores of how familiar a picture is to a classifier: Energy (Liu et al. 2020), GradNorm (Huang et al. 2021)."""

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


def gradnorm(features: np.ndarray, logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """(N,) float64, the L1 norm of the gradient of KL(uniform || softmax) by the last layer's weights.

    features: (N, D), what the last layer reads; logits: (N, classes), what it answers. The gradient is the product of
    the features and (softmax - uniform) / T, so its norm is the product of two norms and needs no backward pass.
    Higher is more familiar. The released code leaves out the factor 1 / classes, which changes no comparison.
    """
    features, logits = (np.asarray(one, dtype=np.float64) for one in (features, logits))
    chances = special.softmax(logits / temperature, axis=1)
    pull = np.abs(chances - 1 / logits.shape[1]).sum(axis=1) / temperature
    return np.abs(features).sum(axis=1) * pull
