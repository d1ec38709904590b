"""Guides of adversarial guidance: any classifier as a named function from pictures in [0, 1] to logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unswayed.errors import UserError


@dataclass(frozen=True, eq=False)
class NamedGuide:
    """logits: (N, 3, S, S) in [0, 1] -> (N, classes), differentiable; weights_hash: to find models that share it."""

    name: str
    logits: Callable[[Tensor], Tensor]
    classes: int | None = None
    weights_hash: str | None = None

    def knows(self, label: int) -> bool:
        return label >= 0 and (self.classes is None or label < self.classes)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "weights_sha256": self.weights_hash}


def open_guide(guide: Any, device: torch.device | str = "cpu", size: int | None = None) -> NamedGuide:
    """The guide that `guide` names or is; raises UserError if it does not accept pictures of that size.

    A model's name (`lite:2`), guided-diffusion's noisy classifier (`256x256_classifier`, or its file), an opened
    classifier (anything with `differentiable`), a torch module or any function of that signature.
    """
    if isinstance(guide, NamedGuide):
        return guide
    if isinstance(guide, (str, Path)):
        from unswayed.files.known_weights import KNOWN, cached

        text = str(guide)
        if text in KNOWN and KNOWN[text].kind == "guide":
            return _noisy(cached(text), device, size)
        if Path(text).suffix in (".pt", ".safetensors") and ":" not in text:
            return _noisy(Path(text), device, size)
        from unswayed.models import open_model

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
        name = str(getattr(guide, "name", getattr(guide, "__name__", type(guide).__name__)))
        return NamedGuide(name, guide, None if size is None else _tried(guide, name, device, size))
    raise UserError(f"the guide is a {type(guide).__name__}", allowed="a model's name, a classifier, or a callable")


def _tried(guide: Callable[[Tensor], Tensor], name: str, device: torch.device | str, size: int) -> int:
    """The number of classes a function returns for a gray picture; raises UserError if it cannot guide."""
    with torch.enable_grad():
        picture = torch.full((1, 3, size, size), 0.5, device=device, requires_grad=True)
        answer: Any = guide(picture)
    shape = tuple(getattr(answer, "shape", ()))
    if not isinstance(answer, Tensor) or answer.ndim != 2 or shape[0] != 1:
        found = f"a tensor of shape {shape}" if isinstance(answer, Tensor) else f"a {type(answer).__name__}"
        raise UserError(
            f"the guide {name} returns {found} for a picture (1, 3, {size}, {size})", allowed="(1, classes)"
        )
    if not answer.requires_grad:
        raise UserError(
            f"the guide {name} returns logits without a gradient", allowed="a function that torch can differentiate"
        )
    if not bool(answer.isfinite().all()):
        raise UserError(f"the guide {name} returns NaN or infinity for a gray picture", allowed="finite logits")
    return shape[1]


def _noisy(path: Path, device: torch.device | str, size: int | None) -> NamedGuide:
    from unswayed.rendering.networks.noisy_classifier import load_noisy_classifier

    classifier, digest = load_noisy_classifier(path)
    if size not in (None, classifier.size):
        raise UserError(
            f"the guide {path} takes {classifier.size}×{classifier.size} pictures, the network makes {size}×{size}",
            allowed="a guide of the network's size, or a model that resizes its pictures, such as lite:2",
        )
    classifier = classifier.to(device)
    return NamedGuide(path.stem, lambda pictures: classifier(2 * pictures - 1), classifier.classes, digest)
