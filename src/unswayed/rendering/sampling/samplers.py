"""Samplers as tables of numbers: one step of every one of them is

    x' = keep · x + toward · (x̂0 + memory · (x̂0 − previous x̂0) + push · ∇) + sigma · eps,   eps ~ N(0, I)

so a sampler is a pure function from the noise levels it visits to those five numbers per step, computed in float64,
and pictures at different levels share one batch. ∇ is the guidance gradient; it is not extrapolated with x̂0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unswayed.errors import UserError, check_known

from . import Schedule


@dataclass(frozen=True, eq=False)
class Steps:
    """The numbers of K−1 steps between K noise levels, each (K−1,) float64.

    low, high: logarithms of the posterior variance and of β, between which a learned variance lies.
    """

    keep: np.ndarray
    toward: np.ndarray
    memory: np.ndarray
    sigma: np.ndarray
    push: np.ndarray
    low: np.ndarray
    high: np.ndarray


def sample_ancestral(alpha_bar: np.ndarray) -> Steps:
    """Ancestral sampling: the exact posterior q(x_{t−1} | x_t, x̂0) (Ho et al. 2020, equations 6 and 7).

    Guidance moves the mean by Σ·∇ (Dhariwal & Nichol 2021, algorithm 1; ImageNet-E, algorithm 1).
    """
    now, then = alpha_bar[:-1], alpha_bar[1:]
    beta = 1 - now / then
    variance = beta * (1 - then) / (1 - now)
    toward = beta * np.sqrt(then) / (1 - now)
    keep = np.sqrt(now / then) * (1 - then) / (1 - now)
    return Steps(
        keep, toward, np.zeros_like(keep), np.sqrt(variance), variance / toward, np.log(variance), np.log(beta)
    )


def sample_ddim(alpha_bar: np.ndarray) -> Steps:
    """Deterministic steps along the probability flow, first order (Song et al. 2021, equation 12 with η = 0)."""
    gap = np.diff(_half_log_snr(alpha_bar))
    signal, sigma = np.sqrt(alpha_bar), np.sqrt(1 - alpha_bar)
    keep, toward, zeros = sigma[1:] / sigma[:-1], signal[1:] * -np.expm1(-gap), np.zeros_like(gap)
    exact = sample_ancestral(alpha_bar)
    return replace(exact, keep=keep, toward=toward, memory=zeros, sigma=zeros, push=_score_push(alpha_bar))


def sample_dpm(alpha_bar: np.ndarray) -> Steps:
    """DPM-Solver++(2M): second order from the last two x̂0 (Lu et al. 2022, algorithm 2)."""
    return replace(sample_ddim(alpha_bar), memory=_multistep(alpha_bar))


def sample_dpm_sde(alpha_bar: np.ndarray) -> Steps:
    """SDE-DPM-Solver++(2M): the same order, with new noise in every step (Lu et al. 2022, equation 18)."""
    return replace(sample_ancestral(alpha_bar), memory=_multistep(alpha_bar), push=_score_push(alpha_bar))


def _half_log_snr(alpha_bar: np.ndarray) -> np.ndarray:
    return 0.5 * np.log(alpha_bar / (1 - alpha_bar))


def _multistep(alpha_bar: np.ndarray) -> np.ndarray:
    """Half the ratio of this step to the last one in log-SNR; 0 at the first step, which has no previous x̂0."""
    gap = np.diff(_half_log_snr(alpha_bar))
    memory = np.zeros_like(gap)
    memory[1:] = gap[1:] / (2 * gap[:-1])
    return memory


def _score_push(alpha_bar: np.ndarray) -> np.ndarray:
    """ε̂ − sqrt(1−ᾱ)·∇ expressed as a change of x̂0, which is (1−ᾱ)/sqrt(ᾱ)·∇ (Dhariwal & Nichol 2021, algorithm 2)."""
    now = alpha_bar[:-1]
    return (1 - now) / np.sqrt(now)


_RHO, _CLEANEST = 7.0, 2


@dataclass(frozen=True)
class Sampler:
    """A step table, the spacing of its levels, whether each step draws new noise (for the object as well), whether its
    push is the step's variance, so that a learned variance scales it, and the steps it takes if no number is given."""

    name: str
    steps: Callable[[np.ndarray], Steps]
    spacing: str
    stochastic: bool
    by_variance: bool
    summary: str
    default: int = 100


SAMPLERS: dict[str, Sampler] = {
    sampler.name: sampler
    for sampler in (
        Sampler("ancestral", sample_ancestral, "respaced", True, True, "the paper's; best from 50 steps up"),
        Sampler("ddim", sample_ddim, "respaced", False, False, "deterministic, first order"),
        # The fewest that are equivalent to 100 ancestral steps for classifiers (benchmarks/few_steps.py).
        Sampler("dpm", sample_dpm, "karras", False, False, "DPM-Solver++(2M): deterministic, few steps", default=32),
        Sampler("dpm-sde", sample_dpm_sde, "karras", True, False, "SDE-DPM-Solver++(2M): few steps, new noise in each"),
    )
}


def find_sampler(name: str, steps: int | None = None) -> Sampler:
    """The named sampler; `auto` is the paper's if 50 or more steps of the schedule are asked for, else the fast one."""
    if name == "auto":
        name = "ancestral" if steps is not None and steps >= 50 else "dpm"
    check_known("sampler", [name], ["auto", *SAMPLERS])
    return SAMPLERS[name]


@functools.lru_cache(maxsize=256)
def visited(start: float, steps: int, spacing: str = "respaced", beta: str = "linear") -> np.ndarray:
    """The timesteps of one picture, (K,) int64, from the noisiest to the cleanest; the last pass's x̂0 is the result.

    start: the share of the noise schedule at which blending starts; steps: of the whole schedule, so K = round(start ·
    steps), at least 1. respaced: guided-diffusion's grid from its K-th step down. karras: from the level where the
    paper's grid of 100 begins, so that few steps start at the same noise as many, down to step 2, evenly in (σ/α)^(1/7)
    (Karras et al. 2022, equation 5): of the spacings tried, the one that keeps most of a natural spectrum in few steps.

    >>> visited(0.25, 20).tolist()
    [210, 158, 105, 53, 0]
    >>> visited(0.25, 20, "karras").tolist()
    [242, 122, 49, 15, 2]
    """
    if not 0 < start <= 1:
        raise UserError(f"start is {start}", allowed="above 0, at most 1")
    count = max(1, round(start * steps))
    if spacing == "respaced":
        return Schedule.respaced(steps, beta).timesteps[:count][::-1].copy()
    alpha_bar = Schedule.respaced(1000, beta).alpha_bar
    top = int(Schedule.respaced(100, beta).timesteps[max(1, round(start * 100)) - 1])
    if count >= top - _CLEANEST:
        return np.arange(top, -1, -1, dtype=np.int64)
    roots = np.sqrt((1 - alpha_bar) / alpha_bar) ** (1 / _RHO)
    wanted = np.linspace(roots[top], roots[_CLEANEST], count)
    nearest = np.abs(roots[None] - wanted[:, None]).argmin(axis=1).astype(np.int64)
    # Near the clean end two wanted levels can round to one timestep: the noisier then takes the next timestep.
    for step in range(count - 2, -1, -1):
        nearest[step] = max(nearest[step], nearest[step + 1] + 1)
    return np.minimum(nearest, top - np.arange(count))


def total_push(alpha_bar: np.ndarray, steps: Steps) -> float:
    """The distance that a constant gradient of one has moved a photograph when the last x̂0 is reached.

    Later steps keep only part of what a step adds: the denoiser keeps frequencies that are strong in photographs (the
    low ones), removes weak ones as noise, and stochastic steps forget more than the flow does. So the push is followed,
    frequency by frequency, through the exact denoiser of Gaussian pictures with a natural spectrum, and averaged with
    the amplitudes of a photograph as weights. The ratio of two such numbers makes one λ mean one strength.
    """
    variance = _natural_variance()
    moved = previous = np.zeros_like(variance)
    for step, level in enumerate(alpha_bar[:-1]):
        x0 = _gain(level, variance) * moved
        target = x0 + steps.memory[step] * (x0 - previous) + steps.push[step]
        moved, previous = steps.keep[step] * moved + steps.toward[step] * target, x0
    return float(np.average(_gain(alpha_bar[-1], variance) * moved, weights=np.sqrt(variance)))


def _gain(alpha_bar: float, variance: np.ndarray) -> np.ndarray:
    """d x̂0 / d x_t of the best denoiser for a frequency of that variance."""
    return np.sqrt(alpha_bar) * variance / (alpha_bar * variance + 1 - alpha_bar)


@functools.cache
def _natural_variance() -> np.ndarray:
    """Variance of each frequency of a 256×256 photograph in [−1, 1]: 6.4e-4 / f^2.6, fitted to the sample's scenes."""
    places = (np.arange(64) + 0.5) / 128
    frequency = np.hypot(places[:, None], places[None]).ravel()
    return 6.4e-4 * frequency**-2.6
