"""What pushes the background while it is denoised: pure functions of x̂0 that share one signature.

`complexity(λ)`, `adversarial(guide, labels, scale)` and `none()` each give a function from x̂0 (N, 3, S, S) in [−1, 1]
to its push, strength × ∇L(x̂0), of the same shape: L grows along it. How far a push moves the picture is the
sampler's business (`push` and `calibration`), so that in the median over scenes one λ means one strength whatever the
sampler and its steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unfazed.engine.float32 import true_float32
from unfazed.errors import UserError

from .samplers import SAMPLERS, total_push, visited
from .schedule import Schedule

Push = Callable[[Tensor], Tensor]
Guide = Callable[[Tensor], Tensor]
BANDS = ("all", "high")

# What λ is multiplied by at the paper's 100 ancestral steps, by kind of guidance. Found on the embedded network:
# complexity 2.2 changes a background clearly both ways with the picture intact, 5 etches it, 10 destroys it;
# adversarial 8 takes a guide's answer away in a background that still looks photographed, 30 scrawls over it.
STRENGTH = {"complexity": 2.2, "adversarial": 8.0}
REFERENCE_STEPS = 100
# How much further than in theory (`samplers.total_push`) a push carries with a trained network, against the reference,
# at 20 and at 100 steps; between them it is interpolated. Measured by benchmarks/guidance_strength.py, on amplitudes;
# of `dpm` at 20 steps (1.06 there) GLCM contrast asks for more push, and 0.97 brings both within 15 % of the reference.
RESPONSE: dict[str, tuple[float, float]] = {
    "ancestral": (0.78, 1.0),
    "ddim": (1.24, 1.23),
    "dpm": (0.97, 1.17),
    "dpm-sde": (0.74, 1.05),
}
RANGE_WEIGHT = 50.0
# The length of the complexity gradient of any picture, √3/6: an adversarial one is not let be longer.
LIMIT = 0.2887
# Where the high band begins, in cycles a pixel: half of the finest that a picture can hold.
HIGH_BAND = 0.25


def none() -> Push:
    """No push."""
    return torch.zeros_like


def complexity(strength: float | Tensor, band: str = "all") -> Push:
    """λ·∇ of the mean amplitude of each picture's own Fourier spectrum (ImageNet-E, equation 4), in closed form.

    strength: λ, one for all or (N,); band: `all`, or `high` for the paper's comparison, which yields noise.
    For F = FFT2((x̂0+1)/2) and L = mean |F|: ∇L = ½·real(IFFT2(F/|F|))/3, and 0 where F = 0.
    """
    _known_band(band)

    def push(start: Tensor) -> Tensor:
        # In float64, since smooth pictures have frequencies that float32 would lose; Apple's GPUs have no float64.
        half = (start.float() if start.device.type == "mps" else start.double()).add(1).div(2)
        spectrum = torch.fft.rfft2(half)
        size = spectrum.abs()
        # Below what rounding leaves of an exact zero the phase is chance, and a flat picture must stay unpushed.
        floor = torch.finfo(size.dtype).eps * half.abs().sum(dim=(-2, -1), keepdim=True)
        phase = torch.where(size > floor, spectrum / size.clamp_min(1e-30), torch.zeros_like(spectrum))
        if band == "high":
            phase = phase * _high(start)
        gradient = torch.fft.irfft2(phase, s=start.shape[-2:]).float() * (0.5 / start.shape[1])
        return _column(strength, start) * gradient

    return push


def adversarial(guide: Guide, labels: int | Tensor, scale: float | Tensor, limit: float | None = LIMIT) -> Push:
    """scale·∇ of the guide's cross-entropy for the true labels, one for all or (N,): away from what the picture shows.

    guide: pictures (N, 3, S, S) in [0, 1] -> logits, differentiable; never through the diffusion network.
    limit: the longest gradient of one picture; a longer one is shortened to it. Once a guide is fooled its gradient
    grows without bound, and what it would draw then is no background any more.
    """

    def push(start: Tensor) -> Tensor:
        with torch.enable_grad(), true_float32(start.device):
            leaf = start.detach().float().requires_grad_(True)
            true = torch.as_tensor(labels, device=start.device).expand(len(start))
            loss = F.cross_entropy(guide((leaf + 1) / 2).float(), true, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, leaf)
        if limit is not None:
            length = gradient.flatten(1).norm(dim=1).clamp_min(1e-12)
            gradient = gradient * (limit / length).clamp_max(1).view(-1, 1, 1, 1)
        return _column(scale, start) * gradient

    return push


def amplitude(start: Tensor, band: str | Sequence[str] = "all") -> Tensor:
    """L of `complexity`, (N,): mean |FFT2((x̂0+1)/2)| over channels and frequencies of each picture alone.

    band: one for all, or one a picture.
    """
    bands = [band] * len(start) if isinstance(band, str) else band
    for one in bands:
        _known_band(one)
    size = torch.fft.fft2((start.float() + 1) / 2).abs()
    if "high" in bands:
        whole = torch.tensor([one == "all" for one in bands], device=start.device).view(-1, 1, 1, 1)
        size = size * torch.where(whole, 1.0, _high(start, half=False))
    return size.mean(dim=(1, 2, 3))


def through_network(
    denoise: Callable[[Tensor], Tensor], x: Tensor, strength: Tensor, band: str | Sequence[str] = "all"
) -> Tensor:
    """The released code's push, (N, 3, S, S): ∇ with respect to x_t, back through the network, range loss included.

    denoise: x_t -> x̂0, differentiable. L = λ·mean |FFT2| − 50·mean((x̂0 − clip(x̂0, −1, 1))²), per picture; band: as
    for `amplitude`.
    """
    with torch.enable_grad(), true_float32(x.device):
        leaf = x.detach().requires_grad_(True)
        start = denoise(leaf)
        outside = (start - start.clamp(-1, 1)).square().mean(dim=(1, 2, 3))
        objective = (strength.flatten() * amplitude(start, band) - RANGE_WEIGHT * outside).sum()
        (gradient,) = torch.autograd.grad(objective, leaf)
    return gradient


def calibration(kind: str, start: float, steps: int, sampler: str, beta: str = "linear") -> float:
    """What λ is multiplied by, so that it moves a picture as far as the reference does (ancestral, 100 steps).

    >>> round(calibration("complexity", 0.5, 100, "ancestral") / STRENGTH["complexity"], 6)
    1.0
    """
    if len(visited(start, steps, SAMPLERS[sampler].spacing, beta)) < 2:
        raise UserError(too_few(start, steps, sampler, beta))
    reference = _carried(start, REFERENCE_STEPS, "ancestral", beta)
    return STRENGTH[kind] * reference / _carried(start, steps, sampler, beta)


def too_few(start: float, steps: int, sampler: str, beta: str = "linear") -> str:
    """Why a picture that visits a single noise level cannot be guided: a push acts on the way to the next one."""
    spacing = SAMPLERS[sampler].spacing
    enough = next((more for more in range(steps, 1001) if len(visited(start, more, spacing, beta)) > 1), None)
    needed = "a larger start" if enough is None else f"at least {enough} steps"
    return f"guidance needs {needed}: with {steps} from start {start:g} no step is left that it could push"


@functools.cache
def _carried(start: float, steps: int, sampler: str, beta: str) -> float:
    """How far a unit push carries: theory times the measured response."""
    chosen = SAMPLERS[sampler]
    levels = Schedule.respaced(1000, beta).alphas_cumprod[visited(start, steps, chosen.spacing, beta)]
    share = float(np.clip(np.log(steps / 20) / np.log(100 / 20), 0, 1))
    few, many = RESPONSE[sampler]
    return total_push(levels, chosen.steps(levels)) * few ** (1 - share) * many**share


def _high(start: Tensor, half: bool = True) -> Tensor:
    """1 where a frequency is in the high band; half: for the half plane that `rfft2` gives."""
    high, wide = start.shape[-2:]
    rows = torch.fft.fftfreq(high, device=start.device)[:, None]
    columns = (torch.fft.rfftfreq if half else torch.fft.fftfreq)(wide, device=start.device)[None]
    return ((rows.square() + columns.square()).sqrt() >= HIGH_BAND).float()


def _column(strength: float | Tensor, start: Tensor) -> Tensor:
    values = torch.as_tensor(strength, dtype=torch.float32, device=start.device)
    return values.view(-1, 1, 1, 1) if values.ndim else values


def _known_band(band: str) -> None:
    if band not in BANDS:
        raise UserError(f"band is '{band}'", allowed=", ".join(BANDS))
