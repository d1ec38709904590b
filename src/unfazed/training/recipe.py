"""The training recipe: all settings besides the photographs, with its learning rates and timesteps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unfazed.errors import UserError


@dataclass(frozen=True)
class Recipe:
    """Everything besides the photographs that decides the result.

    steps: in total; decay: the share of them, at the end, over which the learning rates fall to zero; near: the share
    of timesteps drawn below 620 of 1000 (edits use no higher ones), skewed toward little noise; spread: relative
    standard deviation of the error added to the noise level of half of each batch, so that the network tolerates a
    sampler's small errors; ema: relative width of the power-function average (Karras et al. 2024); perceptual: weight
    of the critic's distance, if there is a critic.
    """

    steps: int = 17500
    batch: int = 128
    lr: float = 2e-3
    warmup: int = 300
    decay: float = 0.5
    near: float = 0.92
    spread: float = 0.02
    ema: float = 0.05
    doubt_weight: float = 0.02
    perceptual: float = 0.04
    held_out: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch", 1), ("warmup", 1), ("held_out", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}", allowed=f"{least} or more")
        if not 0 < self.lr <= 1:
            raise UserError(f"the learning rate is {self.lr}", allowed="above 0, at most 1")
        if not 0 <= self.decay <= 1:
            raise UserError(f"decay is {self.decay}", allowed="0 to 1, a share of the steps")
        if not self.perceptual >= 0:
            raise UserError(f"the critic's weight is {self.perceptual}", allowed="0 or more")


def learning_rate(recipe: Recipe, step: int) -> float:
    """The learning rate of a step: warm-up, constant, then linear to zero."""
    falling = (recipe.steps - step) / max(1, recipe.decay * recipe.steps)
    return recipe.lr * max(0.0, min(1.0, (step + 1) / recipe.warmup, falling))


def noise_levels(recipe: Recipe, number: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """(number,) timesteps in 0…999."""
    u = torch.rand(number, generator=generator, device=device)
    far = torch.rand(number, generator=generator, device=device) >= recipe.near
    return torch.where(far, 620 + u * 380, 620 * u**1.5).long().clamp(0, 999)
