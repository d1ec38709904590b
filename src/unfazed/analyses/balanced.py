"""Class-balanced means and their bootstrap: every class counts the same, however many pictures it has."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

# A chunk of this many draws at a time keeps 50,000 pictures within some tens of megabytes.
_CHUNK = 128


def class_balanced_mean(values: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The mean over classes of each class's mean: (n, ...) values -> (draws, ...), one draw of weight 1 by default.

    values: nan = missing, left out of its class; labels: (n,) int; weights: (draws, n), how often each row counts.
    A class that has no weight in a draw is left out of that draw; a draw without any class gives nan.

    >>> class_balanced_mean(np.array([1.0, 1.0, 1.0, 0.0]), np.array([7, 7, 7, 2]))
    array([0.5])
    """
    weights = np.ones((1, len(values))) if weights is None else weights
    flat = np.asarray(values, float).reshape(len(values), -1)
    present = np.isfinite(flat)
    filled = np.where(present, flat, 0.0)
    total = np.zeros((len(weights), flat.shape[1]))
    classes = np.zeros_like(total)
    for rows in _rows_of_classes(labels):
        seen = weights[:, rows] @ present[rows]
        defined = seen > 0
        total += np.divide(weights[:, rows] @ filled[rows], seen, out=np.zeros_like(seen), where=defined)
        classes += defined
    mean = np.divide(total, classes, out=np.full_like(total, np.nan), where=classes > 0)
    return mean.reshape(len(weights), *np.shape(values)[1:])


def bootstrap_means(values: np.ndarray, labels: np.ndarray, draws: int = 1000, seed: int = 0) -> np.ndarray:
    """Class-balanced means of `draws` resamples of the rows: (n, ...) -> (draws, ...).

    Rows are drawn from the whole set, not within each class: with one picture a class a draw within classes
    would never vary and its interval would be a lie. Equal n and seed give equal resamples, so two tables over
    the same pictures are compared in pairs.
    """
    return np.concatenate(
        [class_balanced_mean(values, labels, weights) for weights in resamples(len(values), draws, seed)]
    )


def resamples(n: int, draws: int, seed: int) -> Iterator[np.ndarray]:
    """How often each of n rows is drawn, (some draws, n) float64 at a time, `draws` in all."""
    rng = np.random.default_rng(seed)
    for start in range(0, draws, _CHUNK):
        yield rng.multinomial(n, np.full(n, 1 / n), size=min(_CHUNK, draws - start)).astype(float)


def percentile_interval(draws: np.ndarray, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """The percentile interval over the first axis, undefined (nan) draws left out; nan where none is defined."""
    tail = (1 - confidence) / 2
    flat = draws.reshape(len(draws), -1)
    bounds = np.full((2, flat.shape[1]), np.nan)
    for column in range(flat.shape[1]):
        defined = flat[np.isfinite(flat[:, column]), column]
        if len(defined):
            bounds[:, column] = np.quantile(defined, [tail, 1 - tail])
    low, high = bounds.reshape(2, *draws.shape[1:])
    return low, high


def _rows_of_classes(labels: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(np.asarray(labels)[order])) + 1)
