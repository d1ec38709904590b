"""The logistic curve with lapse: how accuracy falls from its top to its floor along an attribute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

_MOST_LAPSE = 0.6


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


def fit_logistic(x: np.ndarray, right: np.ndarray, n: np.ndarray, floor: float = 0.0, iterations: int = 80) -> Fit:
    """Maximum-likelihood curves for many data sets at once, by damped Fisher scoring.

    x: (levels,) at least three of them; right, n: (fits, levels) answers right and answers, counts may be fractional;
    floor: accuracy by chance. Whether the curve rises or falls is read from the data, all fits together.
    """
    x = np.asarray(x, dtype=float)
    right, n = np.atleast_2d(right).astype(float), np.atleast_2d(n).astype(float)
    share = right / np.maximum(n, 1e-9)
    centre, width = x.mean(), max(float(np.ptp(x)), 1e-12)
    z = (x - centre) / width
    sign = 1.0 if np.cov(z, share.mean(axis=0))[0, 1] >= 0 else -1.0

    top = np.clip(share.max(axis=1), floor + 0.05, 0.99)
    middle = (top + floor) / 2
    start = np.array([z[np.abs(one - half).argmin()] for one, half in zip(share, middle, strict=True)])
    theta = np.stack(
        [start, np.full(len(share), np.log(8.0)), logit(np.clip((1 - top) / _MOST_LAPSE, 0.01, 0.9))], axis=1
    )

    damping = np.full(len(share), 1e-2)
    value = _deviance(theta, z, right, n, floor, sign)
    for _ in range(iterations):
        gradient, information = _scores(theta, z, right, n, floor, sign)
        scale = np.maximum(np.einsum("fii->fi", information), 1e-6)
        damped = information + damping[:, None, None] * scale[:, :, None] * np.eye(3)
        step = np.linalg.solve(damped, gradient[:, :, None])[:, :, 0]
        proposed = theta + np.clip(step, -2, 2)
        proposed = np.clip(proposed, [-3.0, np.log(0.3), -8.0], [3.0, np.log(200.0), 4.0])
        new = _deviance(proposed, z, right, n, floor, sign)
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
        lapse=_MOST_LAPSE * expit(theta[:, 2]),
        deviance=value,
    )


def _curve(theta: np.ndarray, z: np.ndarray, floor: float, sign: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rise = expit(sign * np.exp(theta[:, 1:2]) * (z - theta[:, :1]))
    lapse = _MOST_LAPSE * expit(theta[:, 2:3])
    return np.clip(floor + (1 - lapse - floor) * rise, 1e-9, 1 - 1e-9), rise, lapse


def _deviance(
    theta: np.ndarray, z: np.ndarray, right: np.ndarray, n: np.ndarray, floor: float, sign: float
) -> np.ndarray:
    p, _, _ = _curve(theta, z, floor, sign)
    wrong = n - right
    share = right / np.maximum(n, 1e-9)
    best = right * np.log(np.maximum(share, 1e-300)) + wrong * np.log(np.maximum(1 - share, 1e-300))
    return 2 * (best - right * np.log(p) - wrong * np.log1p(-p)).sum(axis=1)


def _scores(
    theta: np.ndarray, z: np.ndarray, right: np.ndarray, n: np.ndarray, floor: float, sign: float
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient (fits, 3) and Fisher information (fits, 3, 3) of the log-likelihood."""
    p, rise, lapse = _curve(theta, z, floor, sign)
    steep = sign * np.exp(theta[:, 1:2])
    height = 1 - lapse - floor
    bend = height * rise * (1 - rise)
    jacobian = np.stack(
        [-bend * steep, bend * steep * (z - theta[:, :1]), -rise * lapse * (1 - lapse / _MOST_LAPSE)], axis=2
    )
    weight = 1 / (p * (1 - p))
    gradient = np.einsum("fl,fli->fi", (right - n * p) * weight, jacobian)
    information = np.einsum("fl,fli,flj->fij", n * weight, jacobian, jacobian)
    return gradient, information
