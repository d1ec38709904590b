"""The logistic curve with lapse: how accuracy falls from its top to its floor along an attribute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, expit, logit


@dataclass(frozen=True, eq=False)
class Fit:
    """Fitted curves, arrays of shape (fits,): accuracy = floor + (1 - lapse - floor) · σ(slope · (x - halfway)).

    halfway: the x at which accuracy is half way between its top, 1 - lapse, and its floor; slope: per unit of x,
    negative where accuracy falls; deviance: twice the log-likelihood short of a perfect fit.
    """

    halfway: np.ndarray
    slope: np.ndarray
    lapse: np.ndarray
    deviance: np.ndarray

    def accuracy(self, x: np.ndarray, floor: float = 0.0) -> np.ndarray:
        """(fits, len(x)) the curves' values."""
        rise = expit(self.slope[:, None] * (np.asarray(x) - self.halfway[:, None]))
        return floor + (1 - self.lapse[:, None] - floor) * rise


def fit_logistic(
    x: np.ndarray,
    right: np.ndarray,
    n: np.ndarray,
    floor: float = 0.0,
    within: tuple[float, float] = (-np.inf, np.inf),
    iterations: int = 80,
) -> Fit:
    """Maximum-likelihood curves for many data sets at once, by damped Fisher scoring.

    x: (levels,) at least three of them; right, n: (fits, levels) answers right and answers, counts may be fractional;
    floor: accuracy by chance; within: where halfway may lie. The top is free, from the floor to 1. Whether the curve
    rises or falls is read from the data, all fits together.
    """
    x = np.asarray(x, dtype=float)
    right, n = np.atleast_2d(right).astype(float), np.atleast_2d(n).astype(float)
    share = right / np.maximum(n, 1e-9)
    centre, width = x.mean(), max(float(np.ptp(x)), 1e-12)
    z = (x - centre) / width
    sign = 1.0 if np.cov(z, right.sum(axis=0) / np.maximum(n.sum(axis=0), 1e-9))[0, 1] >= 0 else -1.0

    height = np.clip((share.max(axis=1) - floor) / (1 - floor), 0.01, 0.99)
    middle = floor + (1 - floor) * height / 2
    start = np.array([z[np.abs(one - half).argmin()] for one, half in zip(share, middle, strict=True)])
    first, last = np.clip((np.array(within) - centre) / width, -3.0, 3.0)
    least, most = np.array([first, np.log(0.3), -8.0]), np.array([last, np.log(200.0), 8.0])
    theta = np.clip(np.stack([start, np.full(len(share), np.log(8.0)), logit(height)], axis=1), least, most)

    damping = np.full(len(share), 1e-2)
    value = _deviance(_curve(theta, z, floor, sign)[0], right, n)
    for _ in range(iterations):
        gradient, information = _scores(theta, z, right, n, floor, sign)
        scale = np.maximum(np.einsum("fii->fi", information), 1e-6)
        damped = information + damping[:, None, None] * scale[:, :, None] * np.eye(3)
        step = np.linalg.solve(damped, gradient[:, :, None])[:, :, 0]
        proposed = np.clip(theta + np.clip(step, -2, 2), least, most)
        new = _deviance(_curve(proposed, z, floor, sign)[0], right, n)
        better = new <= value
        theta = np.where(better[:, None], proposed, theta)
        settled = np.abs(value - new) < 1e-10
        value = np.where(better, new, value)
        damping = np.clip(np.where(better, damping / 4, damping * 6), 1e-9, 1e6)
        if (settled & better).all():
            break
    return Fit(
        halfway=centre + width * theta[:, 0],
        slope=sign * np.exp(theta[:, 1]) / width,
        lapse=(1 - floor) * expit(-theta[:, 2]),
        deviance=value,
    )


def tells_halfway(x: np.ndarray, right: np.ndarray, n: np.ndarray, floor: float = 0.0, level: float = 0.95) -> bool:
    """Whether one data set tells where its curve is half way: accuracy falls, and the top that it falls from is seen.

    x, right, n: (levels,). Two likelihood-ratio tests at `level`. Against one accuracy for all levels: chance gives
    the curve no more than it gives to an accuracy of its own for each, which is chi-square with levels - 1 degrees of
    freedom. Against a curve that is half way at the easiest level or beyond it: where that fits as well, any top does.
    """
    x, right, n = (np.asarray(one, dtype=float) for one in (x, right, n))
    fit = fit_logistic(x, right, n, floor)
    flat = _deviance(_between(np.full_like(right, right.sum() / n.sum())), right, n)
    if flat - fit.deviance[0] < chdtri(len(x) - 1, 1 - level):
        return False
    easiest = (x.max(), np.inf) if fit.slope[0] > 0 else (-np.inf, x.min())
    beyond = fit_logistic(x, right, n, floor, within=easiest)
    return bool(beyond.deviance[0] - fit.deviance[0] >= chdtri(1, 1 - level))


def _curve(theta: np.ndarray, z: np.ndarray, floor: float, sign: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(fits, levels) accuracy and how much of the height it is; (fits, 1) the height of the top above the floor."""
    rise = expit(sign * np.exp(theta[:, 1:2]) * (z - theta[:, :1]))
    height = (1 - floor) * expit(theta[:, 2:3])
    return _between(floor + height * rise), rise, height


def _between(p: np.ndarray) -> np.ndarray:
    return np.clip(p, 1e-9, 1 - 1e-9)


def _deviance(p: np.ndarray, right: np.ndarray, n: np.ndarray) -> np.ndarray:
    wrong = n - right
    share = right / np.maximum(n, 1e-9)
    best = right * np.log(np.maximum(share, 1e-300)) + wrong * np.log(np.maximum(1 - share, 1e-300))
    return 2 * (best - right * np.log(p) - wrong * np.log1p(-p)).sum(axis=-1)


def _scores(
    theta: np.ndarray, z: np.ndarray, right: np.ndarray, n: np.ndarray, floor: float, sign: float
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient (fits, 3) and Fisher information (fits, 3, 3) of the log-likelihood."""
    p, rise, height = _curve(theta, z, floor, sign)
    steep = sign * np.exp(theta[:, 1:2])
    bend = height * rise * (1 - rise)
    jacobian = np.stack(
        [-bend * steep, bend * steep * (z - theta[:, :1]), rise * height * (1 - height / (1 - floor))], axis=2
    )
    weight = 1 / (p * (1 - p))
    gradient = np.einsum("fl,fli->fi", (right - n * p) * weight, jacobian)
    information = np.einsum("fl,fli,flj->fij", n * weight, jacobian, jacobian)
    return gradient, information
