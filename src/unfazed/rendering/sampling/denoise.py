"""The noise of one ancestral step, as far as a network's output decides it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from unfazed.rendering.networks.network import Network

from .prediction import start_error


def step_deviation(
    network: Network, numbers: Mapping[str, Tensor], spread: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Standard deviation of an ancestral step's noise; and, for a learned Σ, its ratio to the posterior's variance.

    numbers: ᾱ as `left`, and `toward`, `noise`, `low`, `high` of samplers.Steps; spread: the output's second half.
    """
    if spread is None:
        return network.noise_scale * numbers["noise"], None
    if network.variance_type == "error":
        error = start_error(spread, numbers["left"], network.prediction_type)
        variance = numbers["noise"].square() + network.doubt * numbers["toward"].square() * error
        return network.noise_scale * variance.sqrt(), None
    more = (spread + 1) / 2 * (numbers["high"] - numbers["low"])
    return network.noise_scale * (0.5 * (numbers["low"] + more)).exp(), more.exp()
