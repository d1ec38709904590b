"""What a network's raw output says of the clean picture: x0, and how unsure of it the network is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PREDICTIONS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "epsilon": lambda output, x, signal, noise: (x - noise * output) / signal,
    "v_prediction": lambda output, x, signal, noise: signal * x - noise * output,
    "sample": lambda output, x, signal, noise: output,
}


def predicted_start(output: Tensor, x: Tensor, alpha_cumprod: Tensor, prediction_type: str) -> Tensor:
    """x̂0 (N, 3, H, W), not clipped, from the predicted noise, v (Salimans & Ho 2022) or picture itself.

    alpha_cumprod: ᾱ, broadcastable to x.
    """
    return PREDICTIONS[prediction_type](output, x, alpha_cumprod.sqrt(), (1 - alpha_cumprod).sqrt())


def start_error(output: Tensor, alpha_cumprod: Tensor, prediction_type: str) -> Tensor:
    """Variance of x̂0 (N, 3, H, W) where a network also predicts the log of its squared error, as compact does."""
    noise = 1 - alpha_cumprod
    scale = {"epsilon": noise / alpha_cumprod, "v_prediction": noise, "sample": torch.ones_like(noise)}[prediction_type]
    return scale * output.exp()
