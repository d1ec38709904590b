"""Guidance of the background while it is denoised: pure functions of x̂0 that share one signature.

`complexity(λ)` and `adversarial(guide, labels, scale)` each return a function from x̂0 (N, 3, S, S) in [−1, 1]
to its push, strength × ∇L(x̂0), of the same shape: L grows along it. The sampler (`push` and `calibration`) decides how
far a push moves the picture, so that in the median over scenes one λ means one strength for every sampler and number
of steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unswayed.errors import UserError, check_known
from unswayed.jobs.resources import one_thread
from unswayed.models.runtime import CudaGraphs, true_float32
from unswayed.specs import split_specs

from . import Schedule
from .samplers import SAMPLERS, total_push, visited

Push = Callable[[Tensor], Tensor]
Guide = Callable[[Tensor], Tensor]
BANDS = ("all", "high")

# The factor of λ at the paper's 100 ancestral steps, by kind of guidance; for λ above 0, `BUSIER` multiplies it once
# more. Measured on the embedded network: complexity 6.6 makes a background clearly simpler and keeps what it shows;
# adversarial 24, with one guide and its gradient as it is, costs the guide 16 points with a spectral amplitude of 1.02
# times that of λ = 0, 64 costs it 31 points with 1.16 times the amplitude, which is visible noise.
STRENGTH = {"complexity": 6.6, "adversarial": 24.0}
# By the sign of λ, how calibrated guidance shapes the push over frequencies: in proportion to f^−slope, where 0 changes
# mostly grain, 1 mostly contrast, and between them is structure; and its factor. What is added has no color of its own,
# because added color is noise.
SIMPLER, BUSIER = (0.5, 1.0), (1.0, 2.0)
REFERENCE_STEPS = 100
# By kind of guidance, sampler and number of steps: how much further than in theory (`samplers.total_push`) a push moves
# a trained network's picture, relative to the reference; between two numbers of steps it is interpolated. Measured by
# benchmarks/guidance_strength.py: complexity on amplitudes (for `dpm` at 20 steps, 1.06 there, GLCM contrast needs more
# push; with 0.97 both are within 15 % of the reference), adversarial on the guide's drop. `ancestral` at 20
# steps is kept at a factor of 32 (a drop of 6 points), since more push only adds noise there; `dpm-sde` was not
# measured and has the values of `ancestral`, which also draws new noise in every step.
RESPONSE: dict[str, dict[str, dict[int, float]]] = {
    "complexity": {
        "ancestral": {20: 0.78, 100: 1.0},
        "ddim": {20: 1.24, 100: 1.23},
        "dpm": {20: 0.97, 100: 1.17},
        "dpm-sde": {20: 0.74, 100: 1.05},
    },
    "adversarial": {
        "ancestral": {20: 1.17, 50: 0.638, 100: 1.0},
        "ddim": {20: 7.25, 50: 5.66, 100: 4.39},
        "dpm": {20: 4.49, 50: 3.9, 100: 4.45},
        "dpm-sde": {20: 1.17, 50: 0.638, 100: 1.0},
    },
}
RANGE_WEIGHT = 50.0
# The length of the complexity gradient of any picture, √3/6, and of a calibrated adversarial one.
LENGTH = 0.2887
# How a calibrated adversarial push is shaped over frequencies, as `SIMPLER`: other classifiers see its structure too,
# and less of it is grain.
TRANSFERRED = (0.5, 1.0)
# Where the high band begins, in cycles per pixel: half of the Nyquist frequency.
HIGH_BAND = 0.25


def complexity(strength: float | Tensor, band: str = "all", shaped: bool = False) -> Push:
    """λ·∇ of the mean amplitude of each picture's own Fourier spectrum (ImageNet-E, equation 4), in closed form.

    strength: λ, one for all or (N,); band: `all`, or `high` for the paper's comparison, which yields noise; shaped:
    over frequencies and colors, by the sign of λ, as calibrated guidance does.
    For F = FFT2((x̂0+1)/2) and L = mean |F|: ∇L = ½·real(IFFT2(F/|F|))/3, and 0 where F = 0.
    """
    check_known("band", [band], BANDS)

    def push(x0: Tensor) -> Tensor:
        # In float64, since smooth pictures have frequencies that float32 would lose; on a GPU it takes too long.
        half = (x0.double() if x0.device.type == "cpu" else x0.float()).add(1).div(2)
        spectrum = torch.fft.rfft2(half)
        size = spectrum.abs()
        # Below the rounding error of an exact zero the phase is random, and a flat picture must not be pushed.
        floor = torch.finfo(size.dtype).eps * half.abs().sum(dim=(-2, -1), keepdim=True)
        phase = torch.where(size > floor, spectrum / size.clamp_min(1e-30), torch.zeros_like(spectrum))
        by = _column(strength, x0)
        if band == "high":
            phase = phase * _high(*x0.shape[-2:], x0.device)
        elif shaped:
            simpler, busier = (_octaves(*x0.shape[-2:], *shape, x0.device) for shape in (SIMPLER, BUSIER))
            phase = torch.where(by > 0, phase.mean(dim=1, keepdim=True) * busier, phase * simpler)
        return by * torch.fft.irfft2(phase, s=x0.shape[-2:]).float() * (0.5 / x0.shape[1])

    return push


def adversarial(guide: Guide, labels: int | Tensor, scale: float | Tensor, length: float | None = LENGTH) -> Push:
    """scale·∇ of the guide's cross-entropy for the true labels, one for all or (N,): away from what the picture shows.

    guide: pictures (N, 3, S, S) in [0, 1] -> logits, differentiable; never through the diffusion network.
    length: of every picture's gradient, whose frequencies are then shaped as well; None: the gradient as it is. A
    guide that is certain has hardly a gradient, and that of a fooled one grows without bound and draws no background.
    On a CPU each picture is pushed alone and in one thread: a gradient depends, in its last bits, on the batch and on
    the number of threads, and small differences grow from step to step.
    """

    slope = _slope_of(guide)

    def direction(x0: Tensor, true: Tensor) -> Tensor:
        gradient = slope(x0, true)
        if length is None:
            return gradient
        spectrum = torch.fft.rfft2(gradient) * _octaves(*x0.shape[-2:], *TRANSFERRED, x0.device)
        shaped = torch.fft.irfft2(spectrum, s=x0.shape[-2:])
        return shaped * (length / shaped.flatten(1).norm(dim=1).clamp_min(1e-12)).view(-1, 1, 1, 1)

    def push(x0: Tensor) -> Tensor:
        true = torch.as_tensor(labels, device=x0.device).expand(len(x0))
        with torch.enable_grad(), true_float32(x0.device):
            if x0.device.type == "cpu":
                with one_thread():
                    gradient = torch.cat([direction(*pair) for pair in zip(x0.split(1), true.split(1), strict=True)])
            else:
                gradient = direction(x0, true)
        return _column(scale, x0) * gradient

    return push


@functools.lru_cache(maxsize=1)
def _slope_of(guide: Guide) -> Callable[[Tensor, Tensor], Tensor]:
    """∇ of the guide's cross-entropy as a function of x̂0 and the labels, which a GPU records once."""

    def slope(x0: Tensor, true: Tensor) -> Tensor:
        leaf = x0.detach().float().requires_grad_(True)
        loss = F.cross_entropy(guide((leaf + 1) / 2).float(), true, reduction="sum")
        return torch.autograd.grad(loss, leaf)[0]

    return CudaGraphs(slope)


def amplitude(x0: Tensor, band: str | Sequence[str] = "all") -> Tensor:
    """L of `complexity`, (N,): mean |FFT2((x̂0+1)/2)| over channels and frequencies of each picture alone.

    band: one for all, or one per picture.
    """
    bands = [band] * len(x0) if isinstance(band, str) else band
    check_known("band", bands, BANDS)
    size = torch.fft.fft2((x0.float() + 1) / 2).abs()
    if "high" in bands:
        whole = torch.tensor([name == "all" for name in bands], device=x0.device).view(-1, 1, 1, 1)
        size = size * torch.where(whole, 1.0, _high(*x0.shape[-2:], x0.device, half=False))
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
        x0 = denoise(leaf)
        outside = (x0 - x0.clamp(-1, 1)).square().mean(dim=(1, 2, 3))
        objective = (strength.flatten() * amplitude(x0, band) - RANGE_WEIGHT * outside).sum()
        (gradient,) = torch.autograd.grad(objective, leaf)
    return gradient


def calibration(kind: str, start: float, steps: int, sampler: str, beta: str = "linear") -> float:
    """The factor of λ that makes it move a picture as far as the reference does (ancestral, 100 steps).

    >>> round(calibration("complexity", 0.5, 100, "ancestral") / STRENGTH["complexity"], 6)
    1.0
    """
    if len(visited(start, steps, SAMPLERS[sampler].spacing, beta)) < 2:
        raise UserError(too_few(start, steps, sampler, beta))
    reference = _carried(start, REFERENCE_STEPS, "ancestral", beta)
    return STRENGTH[kind] * reference / (_carried(start, steps, sampler, beta) * _response(kind, steps, sampler))


def _response(kind: str, steps: int, sampler: str) -> float:
    """The measured response at this number of steps, interpolated in logarithms."""
    measured = RESPONSE[kind][sampler]
    return float(np.exp(np.interp(np.log(steps), np.log(list(measured)), np.log(list(measured.values())))))


def too_few(start: float, steps: int, sampler: str, beta: str = "linear") -> str:
    """The reason why a picture with a single noise level cannot be guided: a push acts between two levels."""
    spacing = SAMPLERS[sampler].spacing
    enough = next((more for more in range(steps, 1001) if len(visited(start, more, spacing, beta)) > 1), None)
    needed = "a larger start" if enough is None else f"at least {enough} steps"
    return f"guidance needs {needed}: with {steps} steps and start {start:g} there is only one noise level"


@functools.cache
def _carried(start: float, steps: int, sampler: str, beta: str) -> float:
    """How far a unit push moves a picture, in theory."""
    chosen = SAMPLERS[sampler]
    levels = Schedule.respaced(1000, beta).alpha_bar[visited(start, steps, chosen.spacing, beta)]
    return total_push(levels, chosen.steps(levels))


# Kept on the device, since a copy in every step would make the GPU wait.
@functools.lru_cache(maxsize=16)
def _high(high: int, wide: int, device: torch.device, half: bool = True) -> Tensor:
    """1 where a frequency is in the high band; half: for the half plane that `rfft2` gives."""
    rows = torch.fft.fftfreq(high, device=device)[:, None]
    columns = (torch.fft.rfftfreq if half else torch.fft.fftfreq)(wide, device=device)[None]
    return ((rows.square() + columns.square()).sqrt() >= HIGH_BAND).float()


@functools.lru_cache(maxsize=16)
def _octaves(high: int, wide: int, slope: float, factor: float, device: torch.device) -> Tensor:
    """f^−slope for the half plane that `rfft2` gives, 0 at f = 0, with a root mean square of `factor`."""
    frequency = np.hypot(np.fft.fftfreq(high)[:, None], np.fft.fftfreq(wide)[None])
    frequency[0, 0] = np.inf
    weight = frequency**-slope
    weight = factor * weight / np.sqrt(np.mean(weight**2))
    return torch.as_tensor(weight[:, : wide // 2 + 1], dtype=torch.float32, device=device)


def _column(strength: float | Tensor, x0: Tensor) -> Tensor:
    values = torch.as_tensor(strength, dtype=torch.float32, device=x0.device)
    return values.view(-1, 1, 1, 1) if values.ndim else values


@dataclass(frozen=True, eq=False)
class NamedGuide:
    """logits: (N, 3, S, S) in [0, 1] -> (N, classes), differentiable; weights_hash: to find models that share it."""

    name: str
    logits: Callable[[Tensor], Tensor]
    classes: int | None = None
    weights_hash: str | None = None
    members: tuple[NamedGuide, ...] = ()

    def knows(self, label: int) -> bool:
        return label >= 0 and (self.classes is None or label < self.classes)

    def describe(self) -> dict[str, object]:
        described: dict[str, object] = {"name": self.name, "weights_sha256": self.weights_hash}
        return described | ({"members": [member.describe() for member in self.members]} if self.members else {})


def open_guide(guide: object, device: torch.device | str = "cpu", size: int | None = None) -> NamedGuide:
    """The guide that `guide` names or is; raises UserError if it does not accept pictures of that size.

    A model's name (`lite:2`), several of them (`lite:0,lite:2`), guided-diffusion's noisy classifier
    (`256x256_classifier`, or its file), an opened classifier (anything with `differentiable`), a torch module or any
    function of that signature.
    """
    if isinstance(guide, NamedGuide):
        return guide
    if isinstance(guide, (str, Path)):
        from unswayed.files.downloads import KNOWN, cached

        text = str(guide)
        if len(names := split_specs(text)) > 1:
            return _together([open_guide(name, device, size) for name in names])
        if text in KNOWN and KNOWN[text].kind == "guide":
            return _noisy(cached(text), device, size)
        if Path(text).suffix in (".pt", ".safetensors") and ":" not in text:
            return _noisy(Path(text), device, size)
        from unswayed.models import open_model

        guide = open_model(text, device=str(device))
    if hasattr(guide, "differentiable"):
        name, labels = str(getattr(guide, "name", type(guide).__name__)), getattr(guide, "labels", None)
        classes = None if labels is None else len(labels)
        return NamedGuide(name, guide.differentiable, classes, getattr(guide, "weights_hash", None))
    if callable(guide):
        name = str(getattr(guide, "name", getattr(guide, "__name__", type(guide).__name__)))
        return NamedGuide(name, guide, None if size is None else _tried(guide, name, device, size))
    raise UserError(f"the guide is a {type(guide).__name__}", allowed="a model's name, a classifier, or a callable")


def _together(members: Sequence[NamedGuide]) -> NamedGuide:
    """Several guides as one, which answers by the mean of their log-probabilities: a push that holds against all."""
    names = ",".join(member.name for member in members)
    if len({member.classes for member in members}) > 1:
        counts = ", ".join(f"{member.name} {member.classes}" for member in members)
        given = f"the guides {names} have different numbers of classes: {counts}"
        raise UserError(given, allowed="guides of equal classes")

    def logits(pictures: Tensor) -> Tensor:
        return torch.stack([member.logits(pictures).float().log_softmax(1) for member in members]).mean(0)

    return NamedGuide(names, logits, members[0].classes, None, tuple(members))


def _tried(guide: Callable[[Tensor], Tensor], name: str, device: torch.device | str, size: int) -> int:
    """The number of classes a function returns for a gray picture; raises UserError if it cannot guide."""
    with torch.enable_grad():
        picture = torch.full((1, 3, size, size), 0.5, device=device, requires_grad=True)
        answer: object = guide(picture)
    shape = tuple(getattr(answer, "shape", ()))
    if not isinstance(answer, Tensor) or answer.ndim != 2 or shape[0] != 1:
        kind = f"a tensor of shape {shape}" if isinstance(answer, Tensor) else f"a {type(answer).__name__}"
        given = f"the guide {name} returns {kind} for a picture (1, 3, {size}, {size})"
        raise UserError(given, allowed="(1, classes)")
    if not answer.requires_grad:
        given = f"the guide {name} returns logits without a gradient"
        raise UserError(given, allowed="a function that torch can differentiate")
    if not bool(answer.isfinite().all()):
        raise UserError(f"the guide {name} returns NaN or infinity for a gray picture", allowed="finite logits")
    return shape[1]


def _noisy(path: Path, device: torch.device | str, size: int | None) -> NamedGuide:
    from ..networks.noisy_classifier import load_noisy_classifier

    classifier, digest = load_noisy_classifier(path)
    if size not in (None, classifier.size):
        raise UserError(
            f"the guide {path} takes {classifier.size}×{classifier.size} pictures, the network makes {size}×{size}",
            allowed="a guide of the network's size, or a model that resizes its pictures, such as lite:2",
        )
    classifier = classifier.to(device)
    return NamedGuide(path.stem, lambda pictures: classifier(2 * pictures - 1), classifier.classes, digest)
