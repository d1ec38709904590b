"""Wrappers that compose: `lite:0+tencrop`, `timm:resnet50+bn-adapt`; each is a classifier like any other.

`+flip` also looks at the mirror image of a picture, `+object-crop` also looks closer at the object.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
import torch.nn.functional as nnf
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from unswayed.errors import UserError

from .classifier import Classifier, HeatLayer
from .transforms import Transform

OBJECT = 0.4  # of the largest heat: what is hotter counts as the object
MARGIN = 0.15  # of the object's box, added on every side
SMALLEST = 0.35  # of the picture's side: nothing is looked at more closely than that


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
            answer = logits.float().softmax(1) if self.probability else logits
            total = answer if total is None else total + answer
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
    module = TenCrop(model.module, model.transform.crop, probability)
    inside = model.adapt

    def adapt(batches: Iterable[torch.Tensor]) -> None:
        """The model inside adapts to its actual input, the crops."""
        assert inside is not None
        inside(view for batch in batches for view in module.views(batch))

    return replace(
        model,
        module=module,
        transform=_uncropped(model.transform),
        layer=_inner(model.layer),
        adapt=adapt if inside else None,
        wraps=(functools.partial(tencrop, probability=probability), model),
    )


tencrop_probability = functools.partial(tencrop, probability=True)


NO_BATCH_NORM = "has no batch norm"


def bn_adapt(model: Classifier) -> Classifier:
    """The model with batch-norm statistics estimated from the pictures it is about to be evaluated on.

    Each set of pictures (an edit of a benchmark, a folder) gets its own: mean and variance are averaged over
    batches of it, from scratch. A model without batch norm is refused.
    """
    module = copy.deepcopy(model.module).eval()
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    if not layers:
        raise UserError(f"{model.name} {NO_BATCH_NORM}, so +bn-adapt changes nothing", allowed=model.name)

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


class FlipAverage(nn.Module):
    """Mean logits over pictures and their mirror images."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = (self.inner(pixels) + self.inner(pixels.flip(-1))) / 2
        return logits


class ObjectCrop(nn.Module):
    """Mean logits over the central crop and a crop around the object that the network sees in it.

    (N, 3, s, s) in. The object is where the class activation map of the predicted class is hot; networks that do not
    end in a mean over places and a linear layer give the mean activation instead.
    """

    def __init__(self, inner: nn.Module, crop: int, layer: HeatLayer, classes: int) -> None:
        super().__init__()
        self.inner, self.crop, self.layer, self.classes = inner, crop, layer, classes

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        side = pixels.shape[-1]
        start = round((side - self.crop) / 2)
        central = pixels[..., start : start + self.crop, start : start + self.crop]
        seen: list[torch.Tensor] = []
        with self.layer.module(self.inner).register_forward_hook(lambda _, inputs, output: seen.append(output)):
            logits: torch.Tensor = self.inner(central)
        heat = self._heat(self.layer.as_maps(seen[-1]).float(), logits.argmax(1))
        middle, extent = boxes(heat)
        # From the central crop's unit square to the whole picture's.
        middle = (middle * self.crop + start) / side
        extent = extent * (self.crop / side)
        theta = torch.zeros(len(pixels), 2, 3, device=pixels.device)
        theta[:, 0, 0] = theta[:, 1, 1] = extent
        theta[:, :, 2] = middle * 2 - 1
        grid = nnf.affine_grid(theta, [len(pixels), 3, self.crop, self.crop], align_corners=False)
        closer = nnf.grid_sample(pixels.float(), grid, mode="bicubic", padding_mode="reflection", align_corners=False)
        result: torch.Tensor = (logits + self.inner(closer.to(pixels.dtype))) / 2
        return result

    def _heat(self, maps: torch.Tensor, predicted: torch.Tensor) -> torch.Tensor:
        """(N, h, w) in [0, 1]."""
        fitting = [
            part.weight
            for part in self.inner.modules()
            if isinstance(part, nn.Linear) and part.weight.shape == (self.classes, maps.shape[1])
        ]
        if fitting:
            heat = torch.einsum("nchw,nc->nhw", maps, fitting[-1].float()[predicted]).relu()
        else:
            heat = maps.abs().mean(1)
        low = heat.amin(dim=(1, 2), keepdim=True)
        return (heat - low) / (heat.amax(dim=(1, 2), keepdim=True) - low).clamp(min=1e-6)


def corners(inside: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first and the last corners (n, 2) of the boxes around what is true in (n, h, w), in the unit square."""
    low, high = [], []
    for along in (inside.any(1), inside.any(2)):  # columns, rows
        count = along.shape[1]
        edges = torch.arange(count, device=inside.device) / count
        low.append(torch.where(along, edges, 1.0).amin(1))
        high.append(torch.where(along, edges + 1 / count, 0.0).amax(1))
    return torch.stack(low, dim=1), torch.stack(high, dim=1)


def boxes(heat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The middles (n, 2) and sides (n,) of squares around what is hot in (n, h, w), inside the unit square."""
    first, last = corners(heat > OBJECT)
    extent = ((last - first).amax(1) * (1 + 2 * MARGIN)).clamp(SMALLEST, 1.0)
    half = extent[:, None] / 2
    middle = torch.minimum(torch.maximum((first + last) / 2, half), 1 - half)
    return middle, extent


def flip(model: Classifier) -> Classifier:
    """The model's mean answer over each picture and its mirror image."""
    return replace(model, module=FlipAverage(model.module), wraps=(flip, model), layer=_inner(model.layer))


def object_crop(model: Classifier) -> Classifier:
    """The model's mean answer over its central crop and a crop around the object that it sees there."""
    module = ObjectCrop(model.module, model.transform.crop, model.heat_layer, len(model.labels))
    wide = _uncropped(model.transform)
    return replace(model, module=module, transform=wide, wraps=(object_crop, model), layer=_inner(model.layer))


def _uncropped(own: Transform) -> Transform:
    """The transform of a wrapper that crops by itself: the central square of the resized picture."""
    resize = own.resize if own.resize > own.crop else round(own.crop / 0.875)
    return replace(own, resize=resize, crop=resize)


def _inner(layer: str | None) -> str | None:
    """The name of the model's heat layer inside the wrapper."""
    return f"inner.{layer}" if layer else None


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
