"""How many photographs detect a drop: the power of the paired tests and of the gate, computed and simulated.

A design says how often predictions change. A prediction on an original is correct with probability `accuracy`. After
the edit a correct one becomes wrong with a probability that varies between photographs (a beta distribution); the same
holds for wrong ones. Runs of one photograph share its probability, so they are worth less than new photographs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy  # `scipy.stats` is slow to import, and loaded when it is used
from scipy import special

from unswayed.errors import UserError

from .paired import mcnemar, score_interval, sign_flips, signed_sum_chances

MOST_PHOTOGRAPHS = 10_000_000
_MANY = 200  # photographs that change, beyond which the sign-flip test's statistic is close to normal


@dataclass(frozen=True)
class Design:
    """A paired experiment, all shares in [0, 1].

    drop: accuracy on the originals minus accuracy on the edited pictures; gains: the share of all answers that turn
    from wrong to right; accuracy: on the originals; runs: edited pictures per photograph; correlation: of the answers
    to two runs of one photograph (1: all runs get the same answer), used only where there are several runs.
    """

    drop: float
    gains: float = 0.03
    accuracy: float = 0.8
    runs: int = 1
    correlation: float = 0.5

    def __post_init__(self) -> None:
        for name in ("gains", "accuracy", "correlation"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} is {getattr(self, name):g}", allowed="a share from 0 to 1")
        if self.runs < 1:
            raise UserError(f"there are {self.runs} runs", allowed="1 or more")
        if self.gains > 1 - self.accuracy + 1e-9:
            raise UserError(
                f"{100 * self.gains:g} % of the predictions turn from wrong to right, but only "
                f"{100 * (1 - self.accuracy):g} % are wrong on the originals",
                allowed=f"gains of at most {100 * (1 - self.accuracy):g} %",
            )
        if not -1e-9 <= self.losses <= self.accuracy + 1e-9:
            raise UserError(
                f"a drop of {100 * self.drop:g} points with gains of {100 * self.gains:g} % is impossible at an "
                f"accuracy of {100 * self.accuracy:g} %",
                allowed=f"a drop from {-100 * self.gains:g} to {100 * (self.accuracy - self.gains):g} points",
            )

    @property
    def losses(self) -> float:
        """Return the share of predictions that turn from right to wrong."""
        return self.drop + self.gains

    @property
    def discordance(self) -> float:
        """Return the share of predictions that change in either direction."""
        return self.losses + self.gains

    @property
    def chances(self) -> tuple[float, float]:
        """Return the probability that a right prediction is lost, and that a wrong one is gained."""
        lost = self.losses / self.accuracy if self.accuracy > 0 else 0.0
        return lost, self.gains / (1 - self.accuracy) if self.accuracy < 1 else 0.0

    @property
    def deviation(self) -> float:
        """Return the standard deviation of one photograph's difference, averaged over its runs."""
        shared = self.correlation + (1 - self.correlation) / self.runs
        lost, gained = (
            part * (chance + (1 - chance) * shared)
            for part, chance in zip((self.losses, self.gains), self.chances, strict=True)
        )
        return math.sqrt(max(lost + gained - self.drop**2, 0.0))


def detection_power(design: Design, n: int, alpha: float = 0.05) -> float:
    """Return the probability that the two-sided paired test detects the drop with n photographs.

    One run: the power of McNemar's exact test, summed over how many predictions change. Several runs: the power of the
    sign-flip test, exact for each way in which the photographs can change and averaged over a fixed sample of these;
    if many photographs change, a normal approximation.

    >>> round(detection_power(Design(drop=0.1, gains=0.05), 200), 3)
    0.875
    """
    if design.correlation >= 1:
        design = replace(design, runs=1)  # runs that always agree are one run
    values, chances = difference_distribution(design)
    nonzero = values != 0
    changing = float(chances[nonzero].sum())
    if changing <= 0:
        return 0.0
    if design.runs > 1 and n * changing <= _MANY:
        return _sampled_flip_power(chances, n, alpha)
    counts = np.arange(n + 1)
    spread = math.sqrt(n * changing * (1 - changing))
    counts = counts[np.abs(counts - n * changing) <= 10 * spread + 10]
    weights = scipy.stats.binom.pmf(counts, n, min(changing, 1.0))
    if design.runs == 1:
        power = _mcnemar_power(counts, design.losses / design.discordance, alpha)
    else:
        power = _normal_flip_power(counts, values[nonzero], chances[nonzero] / changing, design.runs, alpha)
    return float((weights * power).sum())


def simulated_detection_power(
    design: Design, n: int, alpha: float = 0.05, draws: int | None = None, seed: int = 0
) -> float:
    """Return the share of simulated experiments with n photographs in which the paired test detects the drop.

    draws: experiments; None: 20,000 with one run, 2,000 with several.
    """
    rng = np.random.default_rng(seed)
    if design.runs == 1:
        chances = [design.losses, design.gains, max(1 - design.discordance, 0.0)]
        counts = rng.multinomial(n, chances, size=draws or 20_000)
        return float((mcnemar(counts[:, 0], counts[:, 1]) < alpha).mean())
    steps = np.arange(-design.runs, design.runs + 1)
    experiments = (simulated_differences(design, n, rng) for _ in range(draws or 2000))
    changed = (np.rint(differences * design.runs).astype(int) + design.runs for differences in experiments)
    # (draws, 2 runs + 1): how many photographs of each experiment differ by so many runs.
    counts = np.stack([np.bincount(numbers, minlength=len(steps)) for numbers in changed])
    sizes = counts[:, design.runs + 1 :] + counts[:, design.runs - 1 :: -1]
    return float((sign_flips(sizes, counts @ steps) < alpha).mean())


def pass_power(design: Design, n: int, at_most: float, level: float = 0.95) -> float:
    """Return the probability that the interval of n photographs is below the allowed drop `at_most`.

    If few photographs change, over a fixed sample of ways in which they can; otherwise a normal approximation.
    """
    values, chances = difference_distribution(design)
    if 0 < n * float(chances[values != 0].sum()) <= _MANY:
        sums = _sampled_counts(chances, n, 8000) @ _sums_of(values)
        return _share_that_passes(sums, n, design, at_most, level)
    # Tango's constrained estimate: the design that fits the same data best with a drop of `at_most`.
    linear = -design.discordance + (2 - design.drop) * at_most
    root = math.sqrt(max(linear**2 + 8 * design.gains * at_most * (1 - at_most), 0.0))
    gains = min(max((root - linear) / 4, 0.0, -at_most), 1.0)
    accuracy = min(max(design.accuracy, at_most + gains), 1 - gains)
    # The score interval uses the standard error at the limit itself, where more predictions are lost.
    spread = deviation = design.deviation
    if 0 <= at_most + gains <= accuracy:
        spread = max(deviation, replace(design, drop=at_most, gains=gains, accuracy=accuracy).deviation)
    room = math.sqrt(n) * (at_most - design.drop) - special.ndtri(0.5 + level / 2) * spread
    return float(special.ndtr(room / max(deviation, 1e-12)))


def simulated_pass_power(
    design: Design, n: int, at_most: float, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> float:
    """Return the share of simulated experiments whose score interval of the drop is below `at_most`."""
    rng = np.random.default_rng(seed)
    sums = np.stack([_sums_of(simulated_differences(design, n, rng)).sum(axis=0) for _ in range(draws)])
    return _share_that_passes(sums, n, design, at_most, level)


def _sums_of(differences: np.ndarray) -> np.ndarray:
    """Return (n, 3): what each difference adds to the losses, to the gains and to the sum of squares."""
    return np.stack([np.maximum(differences, 0), np.maximum(-differences, 0), differences**2], axis=1)


def _share_that_passes(sums: np.ndarray, n: int, design: Design, at_most: float, level: float) -> float:
    _, high = score_interval(np.full(len(sums), n), sums[:, 0], sums[:, 1], sums[:, 2], design.runs, level)
    return float((high <= at_most).mean())


def simulated_differences(design: Design, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return (n,) float64: for each photograph the result on the original minus the mean result over its runs."""
    right = rng.random(n) < design.accuracy
    lost, gained = (_changes(chance, design, n, rng) for chance in design.chances)
    return np.where(right, lost, -gained) / design.runs


def difference_distribution(design: Design) -> tuple[np.ndarray, np.ndarray]:
    """Return the possible values of one photograph's difference, (2 runs + 1,) in [-1, 1], and their probabilities."""
    lost, gained = (_change_chances(chance, design) for chance in design.chances)
    chances = np.zeros(2 * design.runs + 1)
    chances[design.runs :] += design.accuracy * lost
    chances[design.runs :: -1] += (1 - design.accuracy) * gained
    return np.arange(-design.runs, design.runs + 1) / design.runs, chances


def smallest_drop(design: Design, n: int, power: float = 0.8, alpha: float = 0.05) -> float | None:
    """Return the smallest drop that n photographs detect with this power, gains as in the design, or None.

    >>> round(smallest_drop(Design(drop=0, gains=0.03), 500), 3)
    0.041
    """
    low, high = 0.0, design.accuracy - design.gains
    if detection_power(replace(design, drop=high), n, alpha) < power:
        return None
    for _ in range(18):
        middle = (low + high) / 2
        enough = detection_power(replace(design, drop=middle), n, alpha) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def photographs_to_detect(design: Design, power: float = 0.8, alpha: float = 0.05) -> int | None:
    """Return the fewest photographs that detect the design's drop with this power; None if the drop is zero."""
    return _fewest(lambda n: detection_power(design, n, alpha), power)


def photographs_to_pass(design: Design, at_most: float, power: float = 0.8, level: float = 0.95) -> int | None:
    """Return the fewest photographs with which the gate passes with this power; None if the drop is above the limit."""
    if design.drop >= at_most:
        return None
    return _fewest(lambda n: pass_power(design, n, at_most, level), power)


def photographs_to_tell(
    value: float, low: float, high: float, n: int, at_most: float, level: float = 0.95, power: float = 0.8
) -> int | None:
    """Return how many photographs in all would bring the interval to one side of the limit, if `value` stays the same.

    value, low, high: an estimate from n photographs with its interval, in any unit; None where value is at the limit
    (no number of photographs decides). Intervals shrink with the square root of n.

    >>> photographs_to_tell(value=3, low=1, high=5, n=100, at_most=4)
    818
    """
    distance = abs(at_most - value)
    reach = high - value if value <= at_most else value - low
    if distance <= 1e-9 or reach <= 0:
        return None
    z = special.ndtri(0.5 + level / 2)
    needed = n * ((z + special.ndtri(power)) / z * reach / distance) ** 2
    return math.ceil(needed) if needed <= MOST_PHOTOGRAPHS else None


def _mcnemar_power(counts: np.ndarray, share: float, alpha: float) -> np.ndarray:
    """Return the power of the exact test if `counts` predictions change and each is a loss with probability `share`."""
    # The largest count of the smaller side that still rejects: 2 P(X <= k) < alpha for X ~ Binomial(count, 1/2).
    critical = scipy.stats.binom.ppf(alpha / 2, counts, 0.5)
    critical = np.where(2 * scipy.stats.binom.cdf(critical, counts, 0.5) < alpha, critical, critical - 1)
    reject = scipy.stats.binom.sf(counts - critical - 1, counts, share) + scipy.stats.binom.cdf(critical, counts, share)
    return np.where(critical >= 0, reject, 0.0)


def _sampled_counts(chances: np.ndarray, n: int, draws: int) -> np.ndarray:
    """Return (draws, 2 runs + 1): how many of n photographs have each difference, in a fixed sample of experiments.

    chances: (2 runs + 1,), of each difference. How many photographs change at all takes its quantiles in turn, so only
    the kinds of changes are drawn.
    """
    runs = len(chances) // 2
    changed = np.delete(chances, runs)
    numbers = scipy.stats.binom.ppf((np.arange(draws) + 0.5) / draws, n, min(float(changed.sum()), 1.0)).astype(int)
    counts = np.random.default_rng(0).multinomial(numbers, changed / changed.sum())
    return np.insert(counts, runs, n - numbers, axis=1)


def _sampled_flip_power(chances: np.ndarray, n: int, alpha: float) -> float:
    """Return the power of the sign-flip test, averaged over how many photographs change by how many runs.

    Given these numbers the test and its power are exact; only the signs of the changes are random.
    """
    runs = len(chances) // 2
    down, up = chances[:runs][::-1], chances[runs + 1 :]
    drawn = _sampled_counts(chances, n, 1000)
    sizes = drawn[:, :runs][:, ::-1] + drawn[:, runs + 1 :]
    null, alternative = (signed_sum_chances(sizes, share) for share in (0.5, up / np.maximum(up + down, 1e-300)))
    reach = (null.shape[1] - 1) // 2
    # How likely a sum of at least 1, 2, ... is without an effect: the test rejects where twice that is below alpha.
    tail = null[:, reach:0:-1].cumsum(axis=1)[:, ::-1]
    rejects = 2 * np.maximum(tail, 0.5 ** np.maximum(sizes.sum(axis=1), 1)[:, None]) < alpha
    return float((rejects * (alternative[:, 1 : reach + 1] + alternative[:, : -reach - 1 : -1])).sum(axis=1).mean())


def _normal_flip_power(
    counts: np.ndarray, values: np.ndarray, chances: np.ndarray, runs: int, alpha: float
) -> np.ndarray:
    """Return the power of the sign-flip test with `counts` differences drawn from `values`, none of them zero.

    The statistic is their sum over the root of their sum of squares; both vary together, so its spread is found by the
    delta method.
    """
    mean, square, cube, fourth = (float((values**power * chances).sum()) for power in (1, 2, 3, 4))
    variance = (
        (square - mean**2) - mean / square * (cube - mean * square) + mean**2 / (4 * square**2) * (fourth - square**2)
    ) / square
    deviation = math.sqrt(max(variance, 1e-12))
    critical = special.ndtri(1 - alpha / 2)
    safe = np.maximum(counts, 1)
    # Sums of signed differences are two steps of 1 / runs apart.
    step = 1 / (runs * np.sqrt(safe * square))
    shift = np.sqrt(safe / square) * mean
    power = special.ndtr((shift - step - critical) / deviation) + special.ndtr((-shift - step - critical) / deviation)
    return np.asarray(power)


def _changes(chance: float, design: Design, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return (n,) how many of the runs change: beta-binomial with this mean and the design's correlation."""
    if chance <= 0 or chance >= 1 or design.correlation <= 0:
        return rng.binomial(design.runs, min(max(chance, 0.0), 1.0), n)
    if design.correlation >= 1 or design.runs == 1:
        return design.runs * rng.binomial(1, chance, n)
    size = 1 / design.correlation - 1
    return rng.binomial(design.runs, rng.beta(chance * size, (1 - chance) * size, n))


def _change_chances(chance: float, design: Design) -> np.ndarray:
    """Return (runs + 1,) the probability of each number of changed runs, from which `_changes` draws."""
    numbers = np.arange(design.runs + 1)
    chance = min(max(chance, 0.0), 1.0)
    if chance in (0.0, 1.0) or design.correlation <= 0:
        return scipy.stats.binom.pmf(numbers, design.runs, chance)
    if design.correlation >= 1 or design.runs == 1:
        return np.where(numbers == 0, 1 - chance, np.where(numbers == design.runs, chance, 0.0))
    size = 1 / design.correlation - 1
    return scipy.stats.betabinom.pmf(numbers, design.runs, chance * size, (1 - chance) * size)


def _fewest(power_of: Callable[[int], float], power: float) -> int | None:
    """Return the smallest n from which the power stays reached, up to steps of the discrete test."""
    high = 2
    while power_of(high) < power:
        high *= 2
        if high > MOST_PHOTOGRAPHS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if power_of(middle) < power else (low, middle)
    return high
