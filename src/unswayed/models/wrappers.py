"""Wrappers that compose: `lite:0+tencrop`, `timm:resnet50+bn-adapt`; each is a classifier like any other."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from unswayed.errors import UserError

from .classifier import Classifier
from .views import flip, object_crop


class TenCrop(nn.Module):
    """Mean logits over center and corner crops and their mirror images: (N, 3, s, s) -> (N, classes).

    probability: the logarithm of the mean probability instead, which softmax turns into that probability.
    """

    def __init__(self, inner: nn.Module, crop: int, probability: bool = False) -> None:
        super().__init__()
        self.inner, self.crop, self.probability = inner, crop, probability

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        total = None
        # One crop at a time: ten at once would need ten times the memory and would not be faster.
        for view in self.views(pixels):
            logits = self.inner(view)
            one = logits.float().softmax(1) if self.probability else logits
            total = one if total is None else total + one
        assert total is not None
        return (total / 10).clamp_min(torch.finfo(total.dtype).tiny).log() if self.probability else total / 10

    def views(self, pixels: torch.Tensor) -> Iterator[torch.Tensor]:
        high, wide = pixels.shape[-2] - self.crop, pixels.shape[-1] - self.crop
        corners = [(0, 0), (0, wide), (high, 0), (high, wide), (round(high / 2), round(wide / 2))]
        for top, left in corners:
            cut = pixels[..., top : top + self.crop, left : left + self.crop]
            yield cut
            yield cut.flip(-1)


def tencrop(model: Classifier, probability: bool = False) -> Classifier:
    """The model's mean logits, or mean probability, over ten crops of its resized picture (its central square)."""
    own = model.transform
    resize = own.resize if own.resize > own.crop else round(own.crop / 0.875)
    wide = replace(own, resize=resize, crop=resize)
    module = TenCrop(model.module, own.crop, probability)
    inside = model.adapt

    def adapt(batches: Iterable[torch.Tensor]) -> None:
        """The model inside adapts to its actual input, the crops."""
        assert inside is not None
        inside(view for batch in batches for view in module.views(batch))

    return replace(
        model,
        module=module,
        transform=wide,
        layer=f"inner.{model.layer}" if model.layer else None,
        adapt=adapt if inside else None,
        wraps=(functools.partial(tencrop, probability=probability), model),
    )


def bn_adapt(model: Classifier) -> Classifier:
    """The model with batch-norm statistics estimated from the pictures it is about to be evaluated on.

    Each set of pictures (an edit of a benchmark, a folder) gets its own: mean and variance are averaged over
    batches of it, from scratch. A model without batch norm is refused.
    """
    module = copy.deepcopy(model.module)
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    if not layers:
        raise UserError(f"{model.name} has no batch norm, so +bn-adapt changes nothing", allowed=model.name)

    def adapt(batches: Iterable[torch.Tensor]) -> None:
        momenta = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a plain average over the batches
            layer.train()
        try:
            with torch.no_grad():
                for batch in batches:
                    if len(batch) > 1:
                        module(batch.to(model.device))
        finally:
            for layer, momentum in zip(layers, momenta, strict=True):
                layer.momentum = momentum
                layer.eval()

    wraps = None
    if model.wraps is not None:
        wrap, inside = model.wraps
        wraps = (lambda other: bn_adapt(wrap(other))), inside
    return replace(model, module=module, adapt=adapt, wraps=wraps)


WRAPPERS: dict[str, Callable[[Classifier], Classifier]] = {
    "tencrop": tencrop,
    "tencrop-probability": functools.partial(tencrop, probability=True),
    "flip": flip,
    "object-crop": object_crop,
    "bn-adapt": bn_adapt,
}
