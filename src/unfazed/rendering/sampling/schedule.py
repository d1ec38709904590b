"""The noise schedule, in float64: ᾱ of every step, respacing as guided-diffusion does it, and one step's posterior.

`Schedule.respaced(100)` is the paper's. ᾱ_t is the share of the picture's variance that is left at step t.
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
            f"{total} steps cannot be cut into {count} with one whole stride", allowed="e.g. ddim25, ddim50"
        )
    counts = [_count(part, text) for part in text.split(",")]
    kept: list[int] = []
    first = 0
    for position, count in enumerate(counts):
        size = total // len(counts) + (1 if position < total % len(counts) else 0)
        if count > size:
            raise UserError(f"{count} steps were asked of {size}", allowed=f"1 to {size} steps")
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
        raise UserError(f"steps is '{whole}'", allowed="a whole number from 1, a list as 10,20,30, or ddimN")
    return count


@dataclass(frozen=True, eq=False)
class Schedule:
    """timesteps: (K,) int64, ascending, on the 0…total−1 scale; alphas_cumprod: (K,) float64, falling."""

    timesteps: np.ndarray
    alphas_cumprod: np.ndarray
    total: int = TIMESTEPS

    @staticmethod
    def respaced(steps: int | str = TIMESTEPS, beta: str = "linear", total: int = TIMESTEPS) -> Schedule:
        """The schedule of `total` steps of the named β, cut to `steps`.

        >>> schedule = Schedule.respaced(100)
        >>> schedule.timesteps[:4].tolist(), round(float(schedule.alphas_cumprod[1]), 9)
        ([0, 10, 20, 30], 0.997806573)
        """
        if beta not in BETAS:
            raise unknown("β schedule", beta, BETAS)
        timesteps = spaced_timesteps(steps, total)
        return Schedule(timesteps, _full(beta, total)[timesteps], total)

    @property
    def alphas_cumprod_previous(self) -> np.ndarray:
        """ᾱ of the next cleaner kept step; 1 before the first."""
        return np.append(1.0, self.alphas_cumprod[:-1])

    @property
    def betas(self) -> np.ndarray:
        """β of the respaced steps: 1 − ᾱ_t / ᾱ_{t−1}."""
        return 1.0 - self.alphas_cumprod / self.alphas_cumprod_previous

    @property
    def posterior_variance(self) -> np.ndarray:
        """Variance of q(x_{t−1} | x_t, x_0), Ho et al. 2020, equation 7; 0 at the first step."""
        return self.betas * (1 - self.alphas_cumprod_previous) / (1 - self.alphas_cumprod)

    @property
    def posterior_log_variance(self) -> np.ndarray:
        """Its logarithm, with the first step's (which would be −∞) replaced by the second's."""
        variance = self.posterior_variance
        return np.log(np.append(variance[1] if len(variance) > 1 else self.betas[0], variance[1:]))

    @property
    def network_times(self) -> np.ndarray:
        """What the network is told, (K,) float64: timesteps rescaled to 0…1000 whatever the length of the schedule."""
        return self.timesteps * (1000.0 / self.total)


@functools.cache
def _full(beta: str, total: int) -> np.ndarray:
    return np.cumprod(1.0 - BETAS[beta](total))


@dataclass(frozen=True, eq=False)
class Posterior:
    """p(x_{t−1} | x_t) as the network sees it: mean, variance, log-variance, and x̂0; each (N, 3, H, W)."""

    mean: Tensor
    variance: Tensor
    log_variance: Tensor
    start: Tensor


def posterior(
    schedule: Schedule,
    raw: Tensor,
    x: Tensor,
    index: Tensor,
    prediction_type: str = "epsilon",
    variance_type: str = "learned_range",
) -> Posterior:
    """One ancestral step's distribution from the network's raw output; `index` (N,) counts respaced steps.

    variance_type learned_range: the second half of `raw` interpolates log-variance between posterior and β
    (Nichol & Dhariwal 2021, equation 15); fixed: the posterior variance; fixed_large: β (Ho et al. 2020, section 3.2).
    """
    import torch

    from .prediction import predicted_start

    def column(values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float64)[index.cpu()].to(x.device, torch.float32).view(-1, 1, 1, 1)

    left, left_before = schedule.alphas_cumprod, schedule.alphas_cumprod_previous
    start = predicted_start(raw[:, : x.shape[1]], x, column(left), prediction_type)
    mean = (
        column(schedule.betas * np.sqrt(left_before) / (1 - left)) * start
        + column((1 - left_before) * np.sqrt(1 - schedule.betas) / (1 - left)) * x
    )
    low = column(schedule.posterior_log_variance)
    if variance_type == "learned_range":
        share = (raw[:, x.shape[1] :] + 1) / 2
        log_variance = share * column(np.log(schedule.betas)) + (1 - share) * low
    elif variance_type == "fixed_large":
        # The first step's would be its β; there it is the second's posterior variance, as for the posterior's own.
        log_variance = column(np.append(schedule.posterior_log_variance[0], np.log(schedule.betas[1:]))).expand_as(x)
    else:
        log_variance = low.expand_as(x)
    return Posterior(mean, log_variance.exp(), log_variance, start)
