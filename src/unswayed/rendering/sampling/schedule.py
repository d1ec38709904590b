"""The noise schedule, in float64: ᾱ of every step, and respacing as guided-diffusion does it.

`Schedule.respaced(100)` is the paper's. ᾱ_t is the share of the picture's variance that remains at step t.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unswayed.errors import UserError, unknown
from unswayed.rendering.networks.network import TIMESTEPS


def linear_betas() -> np.ndarray:
    """β of Ho et al. 2020, equation 4's setting."""
    return np.linspace(1e-4, 0.02, TIMESTEPS, dtype=np.float64)


def cosine_betas() -> np.ndarray:
    """β of Nichol & Dhariwal 2021, equation 17: ᾱ follows a squared cosine, each β at most 0.999."""

    def remaining(share: float) -> float:
        return math.cos((share + 0.008) / 1.008 * math.pi / 2) ** 2

    betas = [1 - remaining((step + 1) / TIMESTEPS) / remaining(step / TIMESTEPS) for step in range(TIMESTEPS)]
    return np.minimum(np.array(betas, dtype=np.float64), 0.999)


def scaled_linear_betas() -> np.ndarray:
    """β whose square root is linear (Rombach et al. 2022), which some diffusers networks were trained with."""
    return np.linspace(0.00085**0.5, 0.012**0.5, TIMESTEPS, dtype=np.float64) ** 2


BETAS: dict[str, Callable[[], np.ndarray]] = {
    "linear": linear_betas,
    "cosine": cosine_betas,
    "scaled_linear": scaled_linear_betas,
}


def spaced_timesteps(steps: int) -> np.ndarray:
    """The steps of the full schedule that are kept, ascending, exactly as guided-diffusion chooses them.

    >>> spaced_timesteps(5).tolist()
    [0, 250, 500, 749, 999]
    """
    if not 1 <= steps <= TIMESTEPS:
        raise UserError(f"steps is {steps}", allowed=f"1 to {TIMESTEPS}")
    apart = (TIMESTEPS - 1) / (steps - 1) if steps > 1 else 1.0
    # The running sum, not index × stride, is what guided-diffusion rounds: the two differ at halves.
    places = itertools.accumulate(itertools.repeat(apart, steps - 1), initial=0.0)
    return np.array([round(place) for place in places], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Schedule:
    """timesteps: (K,) int64, ascending, on the 0…999 scale; alpha_bar: (K,) float64, falling."""

    timesteps: np.ndarray
    alpha_bar: np.ndarray

    @staticmethod
    def respaced(steps: int = TIMESTEPS, beta: str = "linear") -> Schedule:
        """The schedule of 1,000 steps of the named β, cut to `steps`.

        >>> schedule = Schedule.respaced(100)
        >>> schedule.timesteps[:4].tolist(), round(float(schedule.alpha_bar[1]), 9)
        ([0, 10, 20, 30], 0.997806573)
        """
        if beta not in BETAS:
            raise unknown("β schedule", beta, BETAS)
        timesteps = spaced_timesteps(steps)
        return Schedule(timesteps, _full(beta)[timesteps])


@functools.cache
def _full(beta: str) -> np.ndarray:
    return np.cumprod(1.0 - BETAS[beta]())
