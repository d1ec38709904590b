"""The noise schedule, in float64: ᾱ of every step, respacing as guided-diffusion does it, and one step's posterior.

`Schedule.respaced(100)` is the paper's. ᾱ_t is the share of the picture's variance that remains at step t.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unfazed.errors import UserError, unknown
from unfazed.rendering.networks.network import TIMESTEPS

if TYPE_CHECKING:
    from torch import Tensor


def linear_betas(total: int = TIMESTEPS) -> np.ndarray:
    """β of Ho et al. 2020, equation 4's setting, scaled so that any number of steps spans the same noise."""
    scale = 1000 / total
    return np.linspace(scale * 1e-4, scale * 0.02, total, dtype=np.float64)


def cosine_betas(total: int = TIMESTEPS) -> np.ndarray:
    """β of Nichol & Dhariwal 2021, equation 17: ᾱ follows a squared cosine, each β at most 0.999."""

    def remaining(share: float) -> float:
        return math.cos((share + 0.008) / 1.008 * math.pi / 2) ** 2

    betas = [1 - remaining((step + 1) / total) / remaining(step / total) for step in range(total)]
    return np.minimum(np.array(betas, dtype=np.float64), 0.999)


def scaled_linear_betas(total: int = TIMESTEPS) -> np.ndarray:
    """β whose square root is linear (Rombach et al. 2022), which some diffusers networks were trained with."""
    return np.linspace(0.00085**0.5, 0.012**0.5, total, dtype=np.float64) ** 2


BETAS: dict[str, Callable[[int], np.ndarray]] = {
    "linear": linear_betas,
    "cosine": cosine_betas,
    "scaled_linear": scaled_linear_betas,
}


def spaced_timesteps(steps: int | str, total: int = TIMESTEPS) -> np.ndarray:
    """The steps of the full schedule that are kept, ascending, exactly as guided-diffusion chooses them.

    steps: a number, "10,20,30" (that many in each third), or "ddim25" (one fixed stride).

    >>> spaced_timesteps(5).tolist()
    [0, 250, 500, 749, 999]
    >>> spaced_timesteps("ddim4").tolist()
    [0, 250, 500, 750]
    """
    text = str(steps).strip()
    if text.startswith("ddim"):
        count = _count(text[4:], text)
        for stride in range(1, total):
            if len(range(0, total, stride)) == count:
                return np.arange(0, total, stride, dtype=np.int64)
        raise UserError(
            f"{total} steps cannot be divided into {count} with one integer stride", allowed="e.g. ddim25, ddim50"
        )
    counts = [_count(part, text) for part in text.split(",")]
    kept: list[int] = []
    first = 0
    for position, count in enumerate(counts):
        size = total // len(counts) + (1 if position < total % len(counts) else 0)
        if count > size:
            raise UserError(f"{count} steps were requested out of {size}", allowed=f"1 to {size} steps")
        apart = (size - 1) / (count - 1) if count > 1 else 1.0
        # The running sum, not index × stride, is what guided-diffusion rounds: the two differ at halves.
        where = 0.0
        for _ in range(count):
            kept.append(first + round(where))
            where += apart
        first += size
    return np.array(sorted(set(kept)), dtype=np.int64)


def _count(text: str, whole: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise UserError(f"steps is '{whole}'", allowed="an integer from 1, a list such as 10,20,30, or ddimN")
    return count


@dataclass(frozen=True, eq=False)
class Schedule:
    """timesteps: (K,) int64, ascending, on the 0…total−1 scale; alpha_bar: (K,) float64, falling."""

    timesteps: np.ndarray
    alpha_bar: np.ndarray
    total: int = TIMESTEPS

    @staticmethod
    def respaced(steps: int | str = TIMESTEPS, beta: str = "linear", total: int = TIMESTEPS) -> Schedule:
        """The schedule of `total` steps of the named β, cut to `steps`.

        >>> schedule = Schedule.respaced(100)
        >>> schedule.timesteps[:4].tolist(), round(float(schedule.alpha_bar[1]), 9)
        ([0, 10, 20, 30], 0.997806573)
        """
        if beta not in BETAS:
            raise unknown("β schedule", beta, BETAS)
        timesteps = spaced_timesteps(steps, total)
        return Schedule(timesteps, _full(beta, total)[timesteps], total)

    @property
    def alpha_bar_previous(self) -> np.ndarray:
        """ᾱ of the next cleaner kept step; 1 before the first."""
        return np.append(1.0, self.alpha_bar[:-1])

    @property
    def betas(self) -> np.ndarray:
        """β of the respaced steps: 1 − ᾱ_t / ᾱ_{t−1}."""
        return 1.0 - self.alpha_bar / self.alpha_bar_previous

    @property
    def posterior_variance(self) -> np.ndarray:
        """Variance of q(x_{t−1} | x_t, x_0), Ho et al. 2020, equation 7; 0 at the first step."""
        return self.betas * (1 - self.alpha_bar_previous) / (1 - self.alpha_bar)

    @property
    def posterior_log_variance(self) -> np.ndarray:
        """Its logarithm, with the first step's (which would be −∞) replaced by the second's."""
        variance = self.posterior_variance
        return np.log(np.append(variance[1] if len(variance) > 1 else self.betas[0], variance[1:]))

    @property
    def network_times(self) -> np.ndarray:
        """The timesteps as network input, (K,) float64, rescaled to 0…1000 for a schedule of any length."""
        return self.timesteps * (1000.0 / self.total)


@functools.cache
def _full(beta: str, total: int) -> np.ndarray:
    return np.cumprod(1.0 - BETAS[beta](total))


@dataclass(frozen=True, eq=False)
class Posterior:
    """p(x_{t−1} | x_t) as the network predicts it: mean, variance, log-variance, and x̂0; each (N, 3, H, W)."""

    mean: Tensor
    variance: Tensor
    log_variance: Tensor
    x0: Tensor


def posterior(
    schedule: Schedule,
    raw: Tensor,
    x_t: Tensor,
    index: Tensor,
    prediction_type: str = "epsilon",
    variance_type: str = "learned_range",
) -> Posterior:
    """One ancestral step's distribution from the network's raw output; `index` (N,) counts respaced steps.

    variance_type learned_range: the second half of `raw` interpolates log-variance between posterior and β
    (Nichol & Dhariwal 2021, equation 15); fixed: the posterior variance; fixed_large: β (Ho et al. 2020, section 3.2).
    """
    import torch

    from .prediction import predicted_x0

    def column(values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float64)[index.cpu()].to(x_t.device, torch.float32).view(-1, 1, 1, 1)

    alpha_bar, alpha_bar_previous = schedule.alpha_bar, schedule.alpha_bar_previous
    x0 = predicted_x0(raw[:, : x_t.shape[1]], x_t, column(alpha_bar), prediction_type)
    mean = (
        column(schedule.betas * np.sqrt(alpha_bar_previous) / (1 - alpha_bar)) * x0
        + column((1 - alpha_bar_previous) * np.sqrt(1 - schedule.betas) / (1 - alpha_bar)) * x_t
    )
    low = column(schedule.posterior_log_variance)
    if variance_type == "learned_range":
        share = (raw[:, x_t.shape[1] :] + 1) / 2
        log_variance = share * column(np.log(schedule.betas)) + (1 - share) * low
    elif variance_type == "fixed_large":
        # The first step uses the second step's posterior variance instead of its β, as `posterior_log_variance` does.
        log_variance = column(np.append(schedule.posterior_log_variance[0], np.log(schedule.betas[1:]))).expand_as(x_t)
    else:
        log_variance = low.expand_as(x_t)
    return Posterior(mean, log_variance.exp(), log_variance, x0)
