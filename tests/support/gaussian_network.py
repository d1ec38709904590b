"""A network whose answer is known: the exact denoiser of pictures with independent N(mean, deviation²) pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unswayed.rendering.networks import Network
from unswayed.rendering.sampling import Schedule


class ExactDenoiser(nn.Module):
    """E[ε | x_t], and as second half the log of its squared error: what a perfect network would answer."""

    def __init__(self, mean: float, deviation: float, halves: int = 2, second: float | None = None) -> None:
        super().__init__()
        self.mean, self.variance, self.halves, self.second = mean, deviation**2, halves, second
        self.alpha_bar = nn.Parameter(torch.tensor(Schedule.respaced(1000).alpha_bar, dtype=torch.float32), False)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        alpha_bar = self.alpha_bar[t.round().long()].view(-1, 1, 1, 1)
        gain = alpha_bar.sqrt() * self.variance / (alpha_bar * self.variance + 1 - alpha_bar)
        x0 = self.mean + gain * (x - alpha_bar.sqrt() * self.mean)
        noise = (x - alpha_bar.sqrt() * x0) / (1 - alpha_bar).sqrt()
        if self.halves == 1:
            return noise
        # The error of ε̂ is that of x̂0 times sqrt(ᾱ / (1 − ᾱ)).
        error = (alpha_bar * self.variance / (alpha_bar * self.variance + 1 - alpha_bar)).log().expand_as(x)
        return torch.cat([noise, error if self.second is None else torch.full_like(x, self.second)], dim=1)


def gaussian(mean: float = 0.2, deviation: float = 0.4, kind: str = "error", size: int = 64, **facts: float) -> Network:
    """The exact denoiser as a network; kind: its variance_type (learned_range answers β, right for deviation 1
    as fixed_large is)."""
    second = 1.0 if kind == "learned_range" else None
    module = ExactDenoiser(mean, deviation, 1 if kind.startswith("fixed") else 2, second)
    return Network(module, "gaussian", size, "epsilon", kind, "linear", **facts)
