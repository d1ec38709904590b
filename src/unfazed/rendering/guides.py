"""What adversarial guidance attacks: any classifier as a function from pictures in [0, 1] to logits, with its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unfazed.errors import UserError


@dataclass(frozen=True, eq=False)
class NamedGuide:
    """logits: (N, 3, S, S) in [0, 1] -> (N, classes), differentiable; weights_hash: to mark models that share it."""

    name: str
    logits: Callable[[Tensor], Tensor]
    classes: int | None = None
    weights_hash: str | None = None

    def knows(self, label: int) -> bool:
        return label >= 0 and (self.classes is None or label < self.classes)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "weights_sha256": self.weights_hash}


def open_guide(guide: Any, device: torch.device | str = "cpu") -> NamedGuide:
    """The guide that `guide` names or is.

    A model's name (`lite:2`), guided-diffusion's noisy classifier (`256x256_classifier`, or its file), an opened
    classifier (anything with `differentiable`), a torch module or any function of that signature.
    """
    if isinstance(guide, NamedGuide):
        return guide
    if isinstance(guide, (str, Path)):
        from .weights import KNOWN, cached

        text = str(guide)
        if text in KNOWN and KNOWN[text].kind == "guide":
            return _noisy(cached(text), device)
        if Path(text).suffix in (".pt", ".safetensors") and ":" not in text:
            return _noisy(Path(text), device)
        from unfazed.models import open_model

        guide = open_model(text, device=str(device))
    if hasattr(guide, "differentiable"):
        labels = getattr(guide, "labels", None)
        return NamedGuide(
            str(getattr(guide, "name", type(guide).__name__)),
            guide.differentiable,
            None if labels is None else len(labels),
            getattr(guide, "weights_hash", None),
        )
    if callable(guide):
        return NamedGuide(str(getattr(guide, "name", getattr(guide, "__name__", type(guide).__name__))), guide)
    raise UserError(f"the guide is a {type(guide).__name__}", allowed="a model's name, a classifier, or a callable")


def _noisy(path: Path, device: torch.device | str) -> NamedGuide:
    from .noisy_classifier import load_noisy_classifier

    classifier, digest = load_noisy_classifier(path)
    classifier = classifier.to(device)
    return NamedGuide(path.stem, lambda pictures: classifier(2 * pictures - 1), classifier.classes, digest)
