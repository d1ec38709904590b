"""Zero-shot classifiers: an image tower and one text embedding per class, averaged over prompt templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from unswayed.errors import UserError
from unswayed.files.whole import read_names

if TYPE_CHECKING:
    from unswayed.specs import Spec

# The seven templates that CLIP's authors found to work as well as all eighty.
TEMPLATES = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)


class ZeroShot(nn.Module):
    """Cosine of picture and class, times the model's scale: (N, 3, h, w) -> (N, classes) logits.

    classes: (C, D) unit rows. The last layer is linear, so a head can replace it.
    """

    def __init__(self, tower: nn.Module, classes: torch.Tensor, scale: float, bias: float = 0.0) -> None:
        super().__init__()
        self.tower = tower
        self.head = nn.Linear(classes.shape[1], classes.shape[0])
        with torch.no_grad():
            self.head.weight.copy_(classes * scale)
            self.head.bias.fill_(bias)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.head(functional.normalize(self.tower(pixels), dim=-1))


class WithHead(nn.Module):
    """An image tower with a fine-tuned linear head on its embedding: (N, 3, h, w) -> (N, classes) logits."""

    def __init__(self, tower: nn.Module, weight: torch.Tensor, bias: torch.Tensor | None, normalized: bool) -> None:
        super().__init__()
        self.tower, self.normalized = tower, normalized
        self.head = nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            self.head.weight.copy_(weight)
            self.head.bias.copy_(bias) if bias is not None else self.head.bias.zero_()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features = self.tower(pixels)
        return self.head(functional.normalize(features, dim=-1) if self.normalized else features)


def class_embeddings(
    classes: Sequence[str], templates: Sequence[str], encode: Callable[[list[str]], torch.Tensor]
) -> torch.Tensor:
    """(C, D) unit rows: each class's text embeddings, normalized, averaged over the templates, normalized again."""
    rows = []
    for name in classes:
        with torch.inference_mode():
            texts = functional.normalize(
                encode([template.replace("{}", name) for template in templates]).float(), dim=-1
            )
        rows.append(functional.normalize(texts.mean(0), dim=-1))
    return torch.stack(rows).clone()


def templates_of(spec: Spec) -> tuple[str, ...]:
    """The prompt templates that `?prompt=a photo of a {}.` or `?templates=FILE` (one per line) gives, else seven."""
    if {"prompt", "templates"} <= set(spec.options):
        raise UserError(f"{spec} states both prompt and templates", allowed="one of them")
    if "prompt" in spec.options:
        found: tuple[str, ...] = (spec.options["prompt"],)
    elif "templates" in spec.options:
        found = tuple(read_names(spec.options["templates"], "file of templates"))
    else:
        found = TEMPLATES
    bad = [template for template in found if "{}" not in template]
    if bad or not found:
        raise UserError(f"the template {bad[0] if bad else ''!r} has no {{}} for the class", allowed="a photo of a {}.")
    return found


def head_of(state: dict[str, torch.Tensor], where: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The weight (classes, D) and bias of a linear head's checkpoint, whatever their names."""
    matrices = [one for one in state.values() if one.ndim == 2]
    if len(matrices) != 1:
        raise UserError(
            f"{where} holds {len(matrices)} matrices, but a linear head has one", allowed="weight (classes, D), bias"
        )
    biases = [one for one in state.values() if one.ndim == 1 and len(one) == len(matrices[0])]
    return matrices[0], biases[0] if biases else None
