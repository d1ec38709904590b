"""The training recipe: all settings besides the photographs, with its learning rates and timesteps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from unswayed.choices import Option
from unswayed.errors import UserError


@dataclass(frozen=True)
class Recipe:
    """Everything besides the photographs that decides the result.

    decay: at the end of the steps; near: the share
    of timesteps drawn below 620 of 1000 (edits use no higher ones), skewed toward little noise; spread: relative
    standard deviation of the error added to the noise level of half of each batch, so that the network tolerates a
    sampler's small errors; ema: relative width of the power-function average (Karras et al. 2024); perceptual: of the
    critic's distance, if there is a critic.
    """

    steps: Annotated[int, Option("Total number of optimizer steps.")] = 17500
    batch: Annotated[int, Option("Batch size.")] = 128
    lr: Annotated[float, Option("Peak learning rate.")] = 2e-3
    warmup: Annotated[int, Option("Number of warm-up steps.")] = 300
    decay: Annotated[float, Option("Share of the steps in which the learning rate decays to zero.")] = 0.5
    near: float = 0.92
    spread: float = 0.02
    ema: float = 0.05
    doubt_weight: float = 0.02
    perceptual: Annotated[float, Option("Weight of the perceptual loss.")] = 0.04
    held_out: Annotated[int, Option("Number of photographs held out for validation.")] = 50
    seed: Annotated[int, Option("Random seed of the weights, the crops and the noise.")] = 0

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
