"""Class-balanced means and their bootstrap: every class has the same weight, whatever its number of pictures."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from .paired import percentiles, resample_weights


def class_balanced_mean(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the mean over classes of each class's mean: (n, ...) values -> (...).

    values: nan = missing, left out of its class; labels: (n,) int. If all values are missing, the mean is nan.

    >>> class_balanced_mean(np.array([1.0, 1.0, 1.0, 0.0]), np.array([7, 7, 7, 2])).item()
    0.5
    """
    filled, weights = _weighted(values, labels)
    total = weights.sum(0)
    mean = np.divide((weights * filled).sum(0), total, out=np.full(total.shape, np.nan), where=total > 0)
    return mean.reshape(np.shape(values)[1:])


def bootstrap_balanced(
    values: np.ndarray, labels: np.ndarray, ids: Sequence[str], draws: int = 1000, seed: int = 0
) -> np.ndarray:
    """Return class-balanced means of `draws` resamples of the pictures: (n, ...) -> (draws, ...).

    A picture keeps its weight of the class-balanced mean, and the weights of a draw are normalized. Pictures
    are drawn from all classes: with one picture per class, draws within classes would never vary.
    """
    filled, weights = _weighted(values, labels)
    counts = resample_weights(ids, draws, seed).astype(np.float64)
    total = counts @ weights
    means = np.divide(counts @ (weights * filled), total, out=np.full(total.shape, np.nan), where=total > 0)
    return means.reshape(draws, *np.shape(values)[1:])


def interval(draws: np.ndarray, pictures: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95 % percentile interval over the first axis without undefined draws; nan if there is none.

    One picture has no interval, because its resamples are all the same. Nor have pictures whose resamples all give
    the same value: an interval of width zero would claim a certainty that a few equal answers do not give.
    """
    if pictures < 2:
        nothing = np.full(draws.shape[1:], np.nan)
        return nothing, nothing
    with warnings.catch_warnings():
        # A column that is undefined in every draw is a valid result.
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        low, high = percentiles(draws)
        collapsed = np.nanmax(draws, axis=0) - np.nanmin(draws, axis=0) < 1e-12
    return np.where(collapsed, np.nan, low), np.where(collapsed, np.nan, high)


def _weighted(values: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values (n, k) with 0 for nan, and weights (n, k): 1 / number of defined values of the class."""
    flat = np.asarray(values, float).reshape(len(values), -1)
    present = np.isfinite(flat)
    _, classes = np.unique(labels, return_inverse=True)
    pictures = np.zeros((classes.max(initial=-1) + 1, flat.shape[1]))
    np.add.at(pictures, classes, present)
    weights = np.divide(present, pictures[classes], out=np.zeros(flat.shape), where=present)
    return np.where(present, flat, 0.0), weights
