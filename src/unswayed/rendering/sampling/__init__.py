"""The noise process: the schedule in float64, normals by seed, and the clean picture from a network's raw output.

`Schedule.respaced(100)` is the paper's. ᾱ_t is the share of the picture's variance that remains at step t.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unswayed.errors import UserError, check_known

from ..networks import TIMESTEPS, Network


def cosine_betas() -> np.ndarray:
    """β of Nichol & Dhariwal 2021, equation 17: ᾱ follows a squared cosine, each β at most 0.999."""
    remaining = [math.cos((step / TIMESTEPS + 0.008) / 1.008 * math.pi / 2) ** 2 for step in range(TIMESTEPS + 1)]
    return np.minimum([1 - after / before for before, after in itertools.pairwise(remaining)], 0.999)


BETAS: dict[str, Callable[[], np.ndarray]] = {
    # Ho et al. 2020, equation 4's setting
    "linear": lambda: np.linspace(1e-4, 0.02, TIMESTEPS),
    "cosine": cosine_betas,
    # the square root is linear (Rombach et al. 2022), which some diffusers networks were trained with
    "scaled_linear": lambda: np.linspace(0.00085**0.5, 0.012**0.5, TIMESTEPS) ** 2,
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
    return np.array([round(level) for level in places], dtype=np.int64)


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
        check_known("β schedule", [beta], BETAS)
        timesteps = spaced_timesteps(steps)
        return Schedule(timesteps, _full(beta)[timesteps])


@functools.cache
def _full(beta: str) -> np.ndarray:
    return np.cumprod(1.0 - BETAS[beta]())


_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def as_seeds(seeds: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Integers as (N,) int64, modulo 2^64."""
    return torch.tensor([_signed(seed) for seed in seeds], dtype=torch.int64, device=device)


def normal(seeds: Tensor, draw: Tensor | int, shape: Sequence[int]) -> Tensor:
    """Standard normals (N, *shape) float32: for each of N seeds, its draw number `draw` ((N,) int64 or one for all).

    >>> alone = normal(as_seeds([7]), 3, (4,))
    >>> both = normal(as_seeds([5, 7]), 3, (4,))
    >>> bool((alone[0] == both[1]).all())
    True
    """
    count = math.prod(shape)
    pairs = (count + 1) // 2
    # `full` fills on the device; copying a number would block.
    number = draw if isinstance(draw, Tensor) else torch.full((), draw, dtype=torch.int64, device=seeds.device)
    draws = number.to(seeds.device, torch.int64).expand(seeds.shape)
    key = _mixed(_mixed(seeds) + (draws + 1) * _signed(_GOLDEN))
    lanes = torch.arange(1, pairs + 1, dtype=torch.int64, device=seeds.device) * _signed(_GOLDEN)
    bits = _mixed(key[:, None] + lanes[None])
    # The added 0.5 avoids the logarithm of zero.
    radius = ((bits & 0xFFFFFFFF).to(torch.float32).add_(0.5).mul_(2.0**-32)).log_().mul_(-2.0).sqrt_()
    angle = _shifted(bits, 32).to(torch.float32).mul_(2.0 * math.pi * 2.0**-32)
    flat = torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)
    return flat[:, :count].reshape(len(seeds), *shape)


def _mixed(z: Tensor) -> Tensor:
    """SplitMix64's finalizer, a well-mixing permutation of 2^64 values; products wrap around."""
    z = (z ^ _shifted(z, 30)) * _signed(_FIRST)
    z = (z ^ _shifted(z, 27)) * _signed(_SECOND)
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, places: int) -> Tensor:
    """z >> places with zeros moving in, which int64 does not do by itself."""
    return (z >> places) & ((1 << (64 - places)) - 1)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


PREDICTIONS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "epsilon": lambda eps, x_t, signal, sigma: (x_t - sigma * eps) / signal,
    "v_prediction": lambda v, x_t, signal, sigma: signal * x_t - sigma * v,
    "sample": lambda x0, x_t, signal, sigma: x0,
}


def predicted_x0(output: Tensor, x_t: Tensor, alpha_bar: Tensor, prediction_type: str) -> Tensor:
    """x̂0 (N, 3, H, W), not clipped, from the predicted noise, v (Salimans & Ho 2022) or picture itself.

    alpha_bar: ᾱ, broadcastable to x_t.
    """
    return PREDICTIONS[prediction_type](output, x_t, alpha_bar.sqrt(), (1 - alpha_bar).sqrt())


def step_sigma(
    network: Network, numbers: Mapping[str, Tensor], variance_output: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Standard deviation of an ancestral step's noise; and, for a learned Σ, its ratio to the posterior's variance.

    numbers: `alpha_bar`, and `toward`, `sigma`, `low`, `high` of samplers.Steps; variance_output: of `Network`.
    """
    if variance_output is None:
        return network.noise_scale * numbers["sigma"], None
    if network.variance_type == "error":  # the log of the squared error, as compact predicts it
        noise, alpha_bar = 1 - numbers["alpha_bar"], numbers["alpha_bar"]
        scales = {"epsilon": noise / alpha_bar, "v_prediction": noise, "sample": torch.ones_like(noise)}
        error = scales[network.prediction_type] * variance_output.exp()
        variance = numbers["sigma"].square() + network.doubt * numbers["toward"].square() * error
        return network.noise_scale * variance.sqrt(), None
    more = (variance_output + 1) / 2 * (numbers["high"] - numbers["low"])
    return network.noise_scale * (0.5 * (numbers["low"] + more)).exp(), more.exp()
