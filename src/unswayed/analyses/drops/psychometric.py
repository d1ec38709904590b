"""The psychometric curve of a sweep: how accuracy moves from its floor to its ceiling along an attribute.

accuracy(x) = floor + (ceiling - floor) · σ(slope · (x - halfway)), all four of them fitted together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtri, expit, logit

# A weak prior for each end of the curve: as if this many further predictions had been made at either end, half of them
# correct. It keeps an end without much data away from 0 and 1, and is negligible if there is enough data.
_PRIOR = 0.5


@dataclass(frozen=True, eq=False)
class Fit:
    """Fitted curves, arrays of shape (fits,).

    halfway: the x at which accuracy is midway between floor and ceiling; slope: per unit of x, negative if
    accuracy falls; deviance: twice the log-likelihood short of a perfect fit.
    """

    halfway: np.ndarray
    slope: np.ndarray
    floor: np.ndarray
    ceiling: np.ndarray
    deviance: np.ndarray

    def crossing(self, accuracy: float | np.ndarray) -> np.ndarray:
        """Return (fits,) the x at which each curve has this accuracy.

        Infinite on the easy side where the ceiling is not above it, and on the hard side where the floor is not below.
        """
        share = (np.asarray(accuracy, dtype=float) - self.floor) / np.maximum(self.ceiling - self.floor, 1e-12)
        with np.errstate(divide="ignore"):
            return self.halfway + logit(np.clip(share, 0.0, 1.0)) / self.slope


def fit_logistic(
    x: np.ndarray, right: np.ndarray, n: np.ndarray, within: tuple[float, float] = (-np.inf, np.inf)
) -> Fit:
    """Return maximum-likelihood curves for many data sets at once, by damped Fisher scoring.

    x: (levels,), at least four of them; right, n: (fits, levels) counts of right answers and of answers, which may be
    fractional; within: where halfway may lie. Whether curves rise or fall is read from the data, all fits together.
    """
    x = np.asarray(x, dtype=float)
    right, n = np.atleast_2d(right).astype(float), np.atleast_2d(n).astype(float)
    share = right / np.maximum(n, 1e-9)
    middle, width = x.mean(), max(float(np.ptp(x)), 1e-12)
    z = (x - middle) / width
    sign = 1.0 if np.cov(z, right.sum(axis=0) / np.maximum(n.sum(axis=0), 1e-9))[0, 1] >= 0 else -1.0
    first, last = np.clip((np.array(within) - middle) / width, -3.0, 3.0)
    low, high = np.array([first, np.log(0.3), -8.0, -9.0]), np.array([last, np.log(200.0), 8.0, 8.0])
    problem = _Problem(z, right, n, sign)
    (theta, value), (steep_theta, steep_value) = (
        _maximized(problem, np.clip(_initial(z, share, steep), low, high), low, high) for steep in (5.0, 20.0)
    )
    theta = np.where((steep_value < value - 1e-9)[:, None], steep_theta, theta)
    floor, ceiling = problem.ends(theta)
    return Fit(
        halfway=middle + width * theta[:, 0],
        slope=sign * np.exp(theta[:, 1]) / width,
        floor=floor,
        ceiling=ceiling,
        deviance=_deviance(problem.curve(theta), right, n),
    )


def tells_halfway(x: np.ndarray, right: np.ndarray, n: np.ndarray, level: float = 0.95) -> bool:
    """Return whether one data set determines the halfway level: accuracy changes, and the ceiling is reached.

    x, right, n: (levels,). Two likelihood-ratio tests at `level`. First against one accuracy for all levels, which is
    chi-square with levels - 1 degrees of freedom. Then against a curve whose halfway level is the easiest level or
    beyond it: if that fits as well, any ceiling does.
    """
    x, right, n = (np.asarray(values, dtype=float) for values in (x, right, n))
    fit = fit_logistic(x, right, n)
    flat = _deviance(_between(np.full_like(right, right.sum() / n.sum())), right, n)
    if flat - fit.deviance[0] < chdtri(len(x) - 1, 1 - level):
        return False
    easiest = (x.max(), np.inf) if fit.slope[0] > 0 else (-np.inf, x.min())
    beyond = fit_logistic(x, right, n, within=easiest)
    return bool(beyond.deviance[0] - fit.deviance[0] >= chdtri(1, 1 - level))


def isotonic_crossing(
    x: np.ndarray, share: np.ndarray, n: np.ndarray, accuracy: float | np.ndarray, rising: bool
) -> np.ndarray:
    """Return (fits,) the x at which the isotonic regression of each data set crosses `accuracy`.

    x: (levels,); share, n: (fits, levels) accuracies and their weights; accuracy: one for all fits or (fits,); rising:
    whether accuracy rises with x. Between levels the regression is linear. Infinite on the easy side where accuracy
    never reaches the value, on the hard side where it never falls below.
    """
    order = np.argsort(x if rising else -x)
    axis = np.asarray(x, dtype=float)[order]
    easy, hard = (np.inf, -np.inf) if rising else (-np.inf, np.inf)
    share, n = share[:, order], n[:, order]
    crossings = np.full(len(share), easy)
    targets = np.broadcast_to(accuracy, crossings.shape)
    # Levels without answers are left out of a fit, so fits that have the same levels are made together.
    for there in np.unique(n > 0, axis=0):
        if not there.any():
            continue
        rows = np.flatnonzero(((n > 0) == there).all(axis=1))
        fitted, at = _isotonic(share[np.ix_(rows, there)], n[np.ix_(rows, there)]), axis[there]
        met = fitted >= targets[rows, None] - 1e-12
        after = met.argmax(axis=1)
        before = np.maximum(after - 1, 0)
        each = np.arange(len(rows))
        low, high = fitted[each, before], fitted[each, after]
        part = (targets[rows] - low) / np.where(high > low, high - low, 1.0)
        between = at[before] + part * (at[after] - at[before])
        crossings[rows] = np.where(~met.any(axis=1), easy, np.where(after == 0, hard, between))
    return crossings


def _isotonic(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return (fits, levels) the rising regression of each row, by its formula: at every level the largest, over where
    a block may begin, of the smallest mean over where it may end."""
    sums, totals = (np.pad(array.cumsum(axis=1), ((0, 0), (1, 0))) for array in (values * weights, weights))
    levels = values.shape[1]
    fitted = np.full(values.shape, -np.inf)
    for begin in range(levels):
        means = (sums[:, begin + 1 :] - sums[:, [begin]]) / (totals[:, begin + 1 :] - totals[:, [begin]])
        least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
        np.maximum(fitted[:, begin:], least, out=fitted[:, begin:])
    return fitted


@dataclass(frozen=True, eq=False)
class _Problem:
    """The data of many fits. theta: (fits, 4) halfway, log slope, logit ceiling, logit of the floor's share of it."""

    z: np.ndarray
    right: np.ndarray
    n: np.ndarray
    sign: float

    def ends(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (fits,) floor and ceiling."""
        ceiling = expit(theta[:, 2])
        return ceiling * expit(theta[:, 3]), ceiling

    def curve(self, theta: np.ndarray) -> np.ndarray:
        floor, ceiling = self.ends(theta)
        return _between(floor[:, None] + (ceiling - floor)[:, None] * self._share(theta))

    def loss(self, theta: np.ndarray) -> np.ndarray:
        """Return (fits,) the deviance plus the contribution of the prior."""
        loss = _deviance(self.curve(theta), self.right, self.n)
        for p in self._prior(theta):
            loss -= _PRIOR * (np.log(p) + np.log1p(-p))
        return loss

    def scores(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return gradient (fits, 4) and Fisher information (fits, 4, 4) of minus half the loss."""
        floor, ceiling = self.ends(theta)
        share, height = self._share(theta), (ceiling - floor)[:, None]
        p = self.curve(theta)
        steep = self.sign * np.exp(theta[:, 1:2])
        bend = height * share * (1 - share)
        own = expit(theta[:, 3:4])
        upper = ceiling[:, None] * (1 - ceiling[:, None]) * (own + (1 - own) * share)
        lower = ceiling[:, None] * own * (1 - own) * (1 - share)
        jacobian = np.stack([-bend * steep, bend * steep * (self.z - theta[:, :1]), upper, lower], axis=2)
        weight = 1 / (p * (1 - p))
        gradient = np.einsum("fl,fli->fi", (self.right - self.n * p) * weight, jacobian)
        information = np.einsum("fl,fli,flj->fij", self.n * weight, jacobian, jacobian)
        for column, p_end in zip((2, 3), self._prior(theta), strict=True):
            gradient[:, column] += _PRIOR * (0.5 - p_end)
            information[:, column, column] += _PRIOR * p_end * (1 - p_end)
        return gradient, information

    def _share(self, theta: np.ndarray) -> np.ndarray:
        return expit(self.sign * np.exp(theta[:, 1:2]) * (self.z - theta[:, :1]))

    def _prior(self, theta: np.ndarray) -> list[np.ndarray]:
        return [np.clip(expit(theta[:, column]), 1e-12, 1 - 1e-12) for column in (2, 3)]


def _initial(z: np.ndarray, share: np.ndarray, steep: float) -> np.ndarray:
    ceiling = np.clip(share.max(axis=1), 0.02, 0.98)
    floor = np.clip(share.min(axis=1), 0.005, 0.95 * ceiling)
    half = (floor + ceiling) / 2
    start = z[np.abs(share - half[:, None]).argmin(axis=1)]
    return np.stack([start, np.full(len(share), np.log(steep)), logit(ceiling), logit(floor / ceiling + 1e-9)], axis=1)


def _maximized(
    problem: _Problem, theta: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return theta and the loss at the maximum; a fit that has converged is not computed any further."""
    theta, value = theta.copy(), problem.loss(theta)
    damping = np.full(len(theta), 1e-2)
    active = np.arange(len(theta))
    for _ in range(120):
        part = replace(problem, right=problem.right[active], n=problem.n[active])
        gradient, information = part.scores(theta[active])
        scale = np.maximum(np.einsum("fii->fi", information), 1e-6)
        damped = information + damping[active, None, None] * scale[:, :, None] * np.eye(4)
        step = np.linalg.solve(damped, gradient[:, :, None])[:, :, 0]
        proposed = np.clip(theta[active] + np.clip(step, -2, 2), low, high)
        new = part.loss(proposed)
        better = new <= value[active]
        settled = better & (np.abs(value[active] - new) < 1e-9) | (damping[active] > 1e5)
        theta[active[better]], value[active[better]] = proposed[better], new[better]
        damping[active] = np.clip(np.where(better, damping[active] / 4, damping[active] * 6), 1e-9, 1e6)
        active = active[~settled]
        if not len(active):
            break
    return theta, value


def _between(p: np.ndarray) -> np.ndarray:
    return np.clip(p, 1e-9, 1 - 1e-9)


def _deviance(p: np.ndarray, right: np.ndarray, n: np.ndarray) -> np.ndarray:
    wrong = n - right
    share = right / np.maximum(n, 1e-9)
    best = right * np.log(np.maximum(share, 1e-300)) + wrong * np.log(np.maximum(1 - share, 1e-300))
    return 2 * (best - right * np.log(p) - wrong * np.log1p(-p)).sum(axis=-1)
