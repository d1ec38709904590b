"""`LogProbabilities`: a network that returns probabilities, as one that returns logits."""

from __future__ import annotations

import torch
from torch import nn


class LogProbabilities(nn.Module):
    """The logarithms of a network's probabilities, which are logits of the same probabilities.

    network: (N, 3, h, w) -> (N, classes) probabilities, such as one that ends in a softmax.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        # Probabilities may be rounded to zero.
        return self.network(pixels).float().clamp_min(1e-12).log()
