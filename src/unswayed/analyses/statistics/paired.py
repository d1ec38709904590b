"""Confidence intervals and tests for paired predictions of the same photographs.

Everything here works on *differences*: one number per photograph in [-1, 1], the share of correct runs before the
change minus the share after it. With one run a difference is -1, 0 or 1. Photographs are independent of each other;
edits and runs of one photograph are not, so a photograph is always kept or resampled as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypedDict

import numpy as np
from scipy import fft, special

from unswayed.errors import UserError, unknown

# With fewer photographs, or fewer changed predictions, the bootstrap misses the tails: the simulated coverage of
# the percentile bootstrap is below 93 % there, that of the score interval is not.
SMALL_N, FEW_FLIPS = 100, 40
INTERVALS = ("auto", "bootstrap", "score")
_POISSON = special.pdtr(np.arange(16), 1.0)
_SMALLEST_P, _FINEST_LATTICE = 1e-12, 60


def tango_interval(
    losses: np.ndarray, gains: np.ndarray, n: np.ndarray, level: float = 0.95, quantile: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the score interval (low, high) in [-1, 1] for (losses - gains) / n of paired predictions (Tango 1998).

    losses: pairs right before and wrong after; gains: the opposite; n: all pairs. Arrays broadcast, counts may
    be fractional. `quantile` replaces the normal quantile of `level`. With no losses and no gains it is still wide.

    >>> low, high = tango_interval(0, 0, 20)
    >>> round(float(low), 3), round(float(high), 3)
    (-0.161, 0.161)
    """
    z = special.ndtri(0.5 + level / 2) if quantile is None else quantile
    b, c, n, z = (np.array(values, dtype=float) for values in np.broadcast_arrays(losses, gains, n, z))
    estimate = (b - c) / n

    def distance(theta: np.ndarray) -> np.ndarray:
        """Return the distance of the data from `theta` in standard errors, estimated under `theta`."""
        linear = -b - c + (2 * n - b + c) * theta
        root = np.sqrt(np.maximum(linear**2 + 8 * n * c * theta * (1 - theta), 0))
        variance = n * ((root - linear) / (2 * n) + theta * (1 - theta))
        return (b - c - n * theta) / np.sqrt(np.maximum(variance, 1e-300))

    def end(side: int) -> np.ndarray:
        outer, inner = np.full_like(estimate, side), estimate
        for _ in range(45):
            middle = (outer + inner) / 2
            outside = -side * distance(middle) > z
            outer, inner = np.where(outside, middle, outer), np.where(outside, inner, middle)
        return inner

    return end(-1), end(1)


def score_interval(
    n: np.ndarray, losses: np.ndarray, gains: np.ndarray, squares: np.ndarray, answers: int = 1, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Return Tango's interval for the mean of differences, extended to several runs, in [-1, 1].

    Given sums over photographs: n of them, `losses` of the positive parts, `gains` of the negative parts, `squares`.
    `answers`: how many answers are averaged in one difference. One answer: Tango's interval as it stands. Several:
    averaging shrinks the variance, so the counts are scaled up to the number of single-answer pairs that would be as
    exact (a design effect below one), never beyond n x answers, with Student's quantile because it is estimated.
    """
    n, losses, gains, squares = (np.asarray(values, dtype=float) for values in (n, losses, gains, squares))
    if answers == 1:
        return tango_interval(losses, gains, n, level)
    mean = (losses - gains) / n
    single = (losses + gains) / n - mean**2
    seen = (squares - n * mean**2) / np.maximum(n - 1, 1)
    # No flips: only one prediction per photograph is certain. All differences equal: every prediction counts.
    flat = np.where(single > 1e-12, float(answers), 1.0)
    scale = np.clip(np.divide(single, seen, out=flat, where=seen > 1e-12), 1.0, answers)
    # Without flips no spread was estimated, so the average over edits is as sure as each of them.
    student, normal = special.stdtrit(np.maximum(n - 1, 1), 0.5 + level / 2), special.ndtri(0.5 + level / 2)
    quantile = np.where(single > 1e-12, student, normal)
    return tango_interval(losses * scale, gains * scale, n * scale, level, quantile)


def wilson_interval(right: np.ndarray, n: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return Wilson's interval (low, high) in [0, 1] for a share right / n; counts may be fractional."""
    right, n = np.asarray(right, dtype=float), np.asarray(n, dtype=float)
    z = special.ndtri(0.5 + level / 2)
    center = (right + z**2 / 2) / (n + z**2)
    half = z / (n + z**2) * np.sqrt(np.maximum(right * (n - right) / n, 0) + z**2 / 4)
    return np.clip(center - half, 0, 1), np.clip(center + half, 0, 1)


def resample_weights(ids: Sequence[str], resamples: int = 1000, seed: int = 0) -> np.ndarray:
    """Return how often each photograph occurs in each resample: (resamples, ids) float32, Poisson with mean 1.

    A photograph's column depends only on its id and the seed. So every model, edit and folder of predictions is
    resampled in the same way, and differences between them are paired.
    """
    digests = (hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest() for name in ids)
    keys = np.array([int.from_bytes(digest, "little") for digest in digests], dtype=np.uint64)
    weights = np.empty((resamples, len(ids)), dtype=np.float32)
    for start in range(0, resamples, 64):
        stop = min(start + 64, resamples)
        steps = np.arange(start + 1, stop + 1, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
        # SplitMix64's finalizer: 64 well-mixed bits of each 64-bit state.
        state = keys[None, :] + steps
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        uniform = ((state ^ (state >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
        weights[start:stop] = np.searchsorted(_POISSON, uniform, side="right")
    return weights


_weights = lru_cache(maxsize=4)(resample_weights)


def bootstrap_means(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the mean of each column in each resample: (resamples, columns) float64; NaN values are left out.

    weights: (resamples, photographs) of `resample_weights`; values: (photographs, columns).
    """
    missing = np.isnan(values)
    if missing.any():
        known, there = np.where(missing, 0, values), ~missing
    else:
        known, there = values, np.ones((len(values), 1))
    totals = (weights @ np.concatenate([known, there], axis=1, dtype=np.float32)).astype(np.float64)
    columns = values.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        return totals[:, :columns] / totals[:, columns:]


def percentiles(draws: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return the percentile interval (low, high) of each column of resampled values; NaN for columns of NaN."""
    tail = (1 - level) / 2
    quantile = np.nanquantile if np.isnan(draws).any() else np.quantile
    low, high = quantile(draws, [tail, 1 - tail], axis=0)
    return low, high


def mcnemar(losses: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """Return McNemar's exact two-sided p-value: right-to-wrong is as frequent as wrong-to-right.

    >>> float(mcnemar(8, 1))
    0.0390625
    """
    losses, gains = np.asarray(losses), np.asarray(gains)
    smaller = np.minimum(losses, gains).astype(float)
    return np.minimum(1.0, 2 * special.bdtr(smaller, (losses + gains).astype(np.int64), 0.5))


def sign_flip(differences: np.ndarray, lattice: int = 1, draws: int = 9_999, seed: int = 0) -> float:
    """Return the two-sided p-value of a zero mean difference, by random sign flips of the photographs' differences.

    differences: (photographs,), multiples of 1 / lattice (the least common multiple of the numbers of runs). All 2^n
    flips are counted, through the characteristic function of their sum, so p-values are exact down to 1e-12 and allow a
    correction for thousands of tests; with one run this is McNemar's exact test. Only if the lattice is finer than
    1/60 are `draws` random flips used instead.
    """
    values = np.abs(differences[(differences != 0) & ~np.isnan(differences)])
    if not len(values):
        return 1.0
    observed = abs(float(np.nansum(differences)))
    if lattice <= _FINEST_LATTICE:
        counts = np.bincount(np.rint(values * lattice).astype(int), minlength=2)[1:]
        return float(sign_flips(counts[None], np.array([round(observed * lattice)]))[0])
    rng = np.random.default_rng(seed)
    reached = 0
    for start in range(0, draws, 1000):
        signs = rng.integers(0, 2, (min(1000, draws - start), len(values)), dtype=np.int8) * 2.0 - 1
        reached += int((np.abs(signs @ values) >= observed - 1e-9).sum())
    return (1 + reached) / (1 + draws)


def sign_flips(counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return (draws,) the p-values of `sign_flip` for many experiments at once.

    counts: (draws, steps), how many differences there are of 1, 2, ... steps in size; totals: (draws,), their sums.
    """
    steps = np.arange(1, counts.shape[1] + 1)
    p = np.empty(len(counts))
    block = max(1, 1_000_000 // int((counts * steps).sum(axis=1).max(initial=1)))
    for first in range(0, len(counts), block):
        some = slice(first, first + block)
        chances = signed_sum_chances(counts[some])
        sums = np.arange(chances.shape[1])
        beyond = (sums >= np.abs(totals[some, None])) & (sums <= len(sums) // 2)
        p[some] = 2 * (chances * beyond).sum(axis=1)
    least = np.maximum(_SMALLEST_P, 2.0 ** (1 - counts.sum(axis=1)))
    return np.where(totals == 0, 1.0, np.clip(p, np.minimum(least, 1.0), 1.0))


def signed_sum_chances(counts: np.ndarray, positive: np.ndarray | float = 0.5) -> np.ndarray:
    """Return (draws, size): the probability of each sum of randomly signed differences; negative sums are at the end.

    counts: (draws, steps), how many differences there are of 1, 2, ... steps; positive: (steps,), the probability that
    one of them is positive. All arrangements of signs are counted, through the characteristic function of their sum.
    """
    steps = np.arange(1, counts.shape[1] + 1)
    reach = int((counts * steps).sum(axis=1).max())
    size = fft.next_fast_len(2 * reach + 2, real=True)
    # Reduce the angle first, because the cosine of a large angle loses precision.
    angles = 2 * np.pi * (steps[:, None] * np.arange(size // 2 + 1) % size) / size
    drift = (2 * np.broadcast_to(positive, steps.shape) - 1)[:, None]
    terms = np.cos(angles) - 1j * drift * np.sin(angles)
    # A term of exactly zero has no logarithm; none of its powers is distinguishable from zero.
    spectrum = np.exp(counts @ np.log(np.where(terms == 0, 1e-300, terms)))
    return np.maximum(fft.irfft(spectrum, size, axis=1), 0)


def holm(p_values: np.ndarray) -> np.ndarray:
    """Return Holm's adjusted p-values, which control the family-wise error rate; NaN stays."""
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full_like(p, np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * factors))
    return adjusted


def shrink(means: np.ndarray, n: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return group means shrunk toward their common mean (empirical Bayes).

    means, n, squares: (groups,) of each group: mean difference, number of photographs, sum of squared differences.
    A class of three photographs that all flip is shrunk strongly, a class of fifty hardly.
    """
    means, n, squares = (np.asarray(values, dtype=float) for values in (means, n, squares))
    total = n.sum()
    center = (n * means).sum() / total
    freedom = total - len(n)
    # One pooled variance within groups, because that of three equal differences alone would be zero.
    within = (squares - n * means**2).sum() / freedom if freedom > 0 else squares.sum() / total - center**2
    spread = total - (n**2).sum() / total
    between = ((n * (means - center) ** 2).sum() - (len(n) - 1) * within) / spread if spread > 0 else 0.0
    if between <= 0:
        return np.full_like(means, center)
    return center + (means - center) * between / (between + within / n)


class Resampling(TypedDict, total=False):
    """Keywords of functions whose intervals resample photographs; the defaults are those of `IntervalSettings`."""

    resamples: int
    level: float
    seed: int


@dataclass(frozen=True)
class IntervalSettings:
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


@dataclass(frozen=True, eq=False)
class Estimates:
    """Means of columns of differences with their sums, their intervals and the methods (`score`, `bootstrap`) and level
    of these, and their p-values if they were `tested`."""

    sums: Sums
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    method: np.ndarray
    level: float
    p_value: np.ndarray = field(default_factory=lambda: np.empty(0))

    def tested(self, p_value: np.ndarray) -> Estimates:
        """Return them with exact tests, and intervals that contain zero wherever its test does not reject zero."""
        reach = np.where(p_value >= 1 - self.level, 0.0, np.nan)  # fmin and fmax leave NaN out
        return replace(self, p_value=p_value, low=np.fmin(self.low, reach), high=np.fmax(self.high, reach))

    def entries(self, at: int, *names: str) -> dict[str, float]:
        """Return one mean, the ends of its interval and its p-value under these names, such as drop, low, high."""
        numbers = self.mean, self.low, self.high, self.p_value
        return {name: float(number[at]) for name, number in zip(names, numbers, strict=False)}


def estimates_of(
    sums: Sums, settings: IntervalSettings, resampled: Callable[[np.ndarray], np.ndarray], scale: float
) -> Estimates:
    """Return the means and intervals that follow from the sums, times `scale`; NaN and no method where n is 0.

    resampled: positions of means -> their (resamples, positions) resampled values; called only if it is used.
    """
    low, high = np.full(sums.n.shape, np.nan), np.full(sums.n.shape, np.nan)
    method = np.full(sums.n.shape, "", dtype=object)
    small = (sums.n < SMALL_N) | (sums.flips < FEW_FLIPS)
    score = {"auto": small, "bootstrap": np.zeros_like(small), "score": np.ones_like(small)}[settings.interval]
    score = score | (sums.n == 1)  # every resample of one photograph is that photograph
    for answers in np.unique(sums.answers):
        at = np.flatnonzero(score & (sums.n > 0) & (sums.answers == answers))
        if len(at):
            n, losses, gains, squares = (values[at] for values in (sums.n, sums.losses, sums.gains, sums.squares))
            low[at], high[at] = score_interval(n, losses, gains, squares, int(answers), settings.level)
            method[at] = "score"
    at = np.flatnonzero(~score & (sums.n > 0))
    if len(at):
        low[at], high[at] = percentiles(resampled(at), settings.level)
        method[at] = "bootstrap"
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (sums.losses - sums.gains) / sums.n
    return Estimates(sums, mean * scale, low * scale, high * scale, method, settings.level)


def estimates(
    differences: np.ndarray,
    answers: np.ndarray,
    images: tuple[str, ...],
    settings: IntervalSettings,
    *,
    reach: float = 1.0,
    unit: float = 1.0,
) -> Estimates:
    """Return each column's mean and interval: differences (photographs, columns) in [-reach, reach], NaN if missing.

    answers: (columns,) the most predictions that a difference averages; unit: the factor on means and intervals.
    """
    parts = differences / reach
    there = ~np.isnan(parts)
    values = np.where(there, parts, 0.0)
    losses = np.maximum(values, 0).sum(axis=0)
    sums = Sums(
        n=there.sum(axis=0),
        losses=losses,
        gains=losses - values.sum(axis=0),
        squares=np.einsum("ij,ij->j", values, values),
        flips=(np.abs(values) > 1e-9).sum(axis=0),
        answers=np.asarray(answers),
    )
    return estimates_of(
        sums, settings, lambda at: bootstrap_means(settings.weights(images), parts[:, at]), reach * unit
    )


BINS = 15


def with_average(differences: np.ndarray, averaged: list[int]) -> np.ndarray:
    """Return the columns and one more: each photograph's part in the mean of the averaged columns' means, or NaN.

    Without gaps that is the mean over columns; a column with gaps has the same weight as the others.
    """
    chosen = differences[:, averaged]
    there = ~np.isnan(chosen)
    part = np.where(there, chosen, 0.0) / np.maximum(there.sum(axis=0), 1)
    present = there.any(axis=1)
    mean = part.sum(axis=1) * present.sum() / max(len(averaged), 1)
    return np.column_stack([differences, np.where(present, mean, np.nan)])


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
