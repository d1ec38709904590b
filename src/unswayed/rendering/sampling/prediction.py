"""The clean picture x0, its variance, and the noise of a step, from a network's raw output."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from unswayed.rendering.networks.network import Network

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


def x0_variance(output: Tensor, alpha_bar: Tensor, prediction_type: str) -> Tensor:
    """Variance of x̂0 (N, 3, H, W) where a network also predicts the log of its squared error, as compact does."""
    noise = 1 - alpha_bar
    scale = {"epsilon": noise / alpha_bar, "v_prediction": noise, "sample": torch.ones_like(noise)}[prediction_type]
    return scale * output.exp()


def step_sigma(
    network: Network, numbers: Mapping[str, Tensor], variance_output: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Standard deviation of an ancestral step's noise; and, for a learned Σ, its ratio to the posterior's variance.

    numbers: `alpha_bar`, and `toward`, `sigma`, `low`, `high` of samplers.Steps; variance_output: of `Network`.
    """
    if variance_output is None:
        return network.noise_scale * numbers["sigma"], None
    if network.variance_type == "error":
        error = x0_variance(variance_output, numbers["alpha_bar"], network.prediction_type)
        variance = numbers["sigma"].square() + network.doubt * numbers["toward"].square() * error
        return network.noise_scale * variance.sqrt(), None
    more = (variance_output + 1) / 2 * (numbers["high"] - numbers["low"])
    return network.noise_scale * (0.5 * (numbers["low"] + more)).exp(), more.exp()
