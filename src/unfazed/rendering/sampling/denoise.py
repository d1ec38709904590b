"""The standard deviation of the noise that one ancestral step adds."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from unfazed.rendering.networks.network import Network

from .prediction import x0_variance


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
