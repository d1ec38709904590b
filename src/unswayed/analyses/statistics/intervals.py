"""The confidence interval of a mean difference: by bootstrap if there is enough data, otherwise by a score interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from unswayed.errors import UserError, unknown

from .paired import FEW_FLIPS, SMALL_N, bootstrap_means, percentiles, resample_weights, score_interval

INTERVALS = ("auto", "bootstrap", "score")


@dataclass(frozen=True)
class Settings:
    """How intervals are made: resamples and their seed, the level, and `auto`, `bootstrap` or `score`."""

    resamples: int = 1000
    level: float = 0.95
    seed: int = 0
    interval: str = "auto"

    def __post_init__(self) -> None:
        if self.interval not in INTERVALS:
            raise unknown("interval", self.interval, INTERVALS)
        if not 0.5 <= self.level < 1:
            raise UserError(f"the level of the intervals is {self.level:g}", allowed="0.5 to below 1, such as 0.95")

    def weights(self, images: tuple[str, ...]) -> np.ndarray:
        return _weights(images, self.resamples, self.seed)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over photographs of differences in [-1, 1], arrays of one shape, for means and score intervals.

    n: photographs; losses, gains: sums of the positive and the negative parts; squares; flips: how many are not zero;
    answers: the largest number of predictions that one difference averages.
    """

    n: np.ndarray
    losses: np.ndarray
    gains: np.ndarray
    squares: np.ndarray
    flips: np.ndarray
    answers: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return (self.losses - self.gains) / self.n


def sums(differences: np.ndarray, answers: np.ndarray) -> Sums:
    """Return the sums of each column: differences (photographs, columns), NaN if missing; answers (columns,)."""
    there = ~np.isnan(differences)
    values = np.where(there, differences, 0.0)
    losses = np.maximum(values, 0).sum(axis=0)
    return Sums(
        n=there.sum(axis=0),
        losses=losses,
        gains=losses - values.sum(axis=0),
        squares=np.einsum("ij,ij->j", values, values),
        flips=(np.abs(values) > 1e-9).sum(axis=0),
        answers=np.asarray(answers),
    )


def intervals(
    found: Sums, settings: Settings, resampled: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return low, high (in [-1, 1]) and the name of the method for each mean; NaN and "" if n is 0.

    resampled: positions of means -> their (resamples, positions) resampled values; called only if it is used.
    """
    low, high = np.full(found.n.shape, np.nan), np.full(found.n.shape, np.nan)
    method = np.full(found.n.shape, "", dtype=object)
    small = (found.n < SMALL_N) | (found.flips < FEW_FLIPS)
    score = {"auto": small, "bootstrap": np.zeros_like(small), "score": np.ones_like(small)}[settings.interval]
    score = score | (found.n == 1)  # every resample of one photograph is that photograph
    for answers in np.unique(found.answers):
        at = np.flatnonzero(score & (found.n > 0) & (found.answers == answers))
        if len(at):
            low[at], high[at] = score_interval(
                found.n[at], found.losses[at], found.gains[at], found.squares[at], int(answers), settings.level
            )
            method[at] = "score"
    at = np.flatnonzero(~score & (found.n > 0))
    if len(at):
        low[at], high[at] = percentiles(resampled(at), settings.level)
        method[at] = "bootstrap"
    return low, high, method


@dataclass(frozen=True, eq=False)
class Estimates:
    """Means of columns of differences with their intervals, on the differences' scale times `unit`, and their sums."""

    sums: Sums
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    method: np.ndarray

    def entries(self, at: int, *names: str) -> dict[str, float]:
        """Return one mean and the ends of its interval under three names, such as drop, low, high."""
        return {name: float(one[at]) for name, one in zip(names, (self.mean, self.low, self.high), strict=True)}


def estimates(
    differences: np.ndarray,
    answers: np.ndarray,
    images: tuple[str, ...],
    settings: Settings,
    *,
    reach: float = 1.0,
    unit: float = 1.0,
) -> Estimates:
    """Return each column's mean and interval: differences (photographs, columns) in [-reach, reach], NaN if missing.

    answers: (columns,) the most predictions that a difference averages; unit: the factor on means and intervals.
    """
    scaled = differences / reach
    found = sums(scaled, answers)
    low, high, method = intervals(found, settings, lambda at: bootstrap_means(settings.weights(images), scaled[:, at]))
    scale = reach * unit
    return Estimates(found, found.mean * scale, low * scale, high * scale, method)


@lru_cache(maxsize=4)
def _weights(images: tuple[str, ...], resamples: int, seed: int) -> np.ndarray:
    return resample_weights(images, resamples, seed)
