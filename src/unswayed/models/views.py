"""Wrappers that look at a picture twice: `+flip` (and at its mirror image), `+object-crop` (and closer)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import nn

from .classifier import Classifier
from .heat import HeatLayer

OBJECT = 0.4  # of the largest heat: what is hotter counts as the object
MARGIN = 0.15  # of the object's box, added on every side
SMALLEST = 0.35  # of the picture's side: nothing is looked at more closely than that


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
        hook = self.layer.module(self.inner).register_forward_hook(lambda _, inputs, output: seen.append(output))
        try:
            logits: torch.Tensor = self.inner(central)
        finally:
            hook.remove()
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


def boxes(heat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The middles (n, 2) and sides (n,) of squares around what is hot in (n, h, w), inside the unit square."""
    hot = heat > OBJECT
    low, high = [], []
    for along in (hot.any(1), hot.any(2)):  # columns, rows
        count = along.shape[1]
        edges = torch.arange(count, device=heat.device) / count
        low.append(torch.where(along, edges, 1.0).amin(1))
        high.append(torch.where(along, edges + 1 / count, 0.0).amax(1))
    first, last = torch.stack(low, dim=1), torch.stack(high, dim=1)
    extent = ((last - first).amax(1) * (1 + 2 * MARGIN)).clamp(SMALLEST, 1.0)
    half = extent[:, None] / 2
    middle = torch.minimum(torch.maximum((first + last) / 2, half), 1 - half)
    return middle, extent


def flip(model: Classifier) -> Classifier:
    """The model's mean answer over each picture and its mirror image."""
    return replace(model, module=FlipAverage(model.module), wraps=(flip, model), **_inside(model))


def object_crop(model: Classifier) -> Classifier:
    """The model's mean answer over its central crop and a crop around the object that it sees there."""
    own = model.transform
    resize = own.resize if own.resize > own.crop else round(own.crop / 0.875)
    module = ObjectCrop(model.module, own.crop, model.heat_layer, len(model.labels))
    wide = replace(own, resize=resize, crop=resize)
    return replace(model, module=module, transform=wide, wraps=(object_crop, model), **_inside(model))


def _inside(model: Classifier) -> dict[str, Any]:
    """What a model that is wrapped passes on: its heat layer's new name, and how it adapts to pictures."""
    return {"layer": f"inner.{model.layer}" if model.layer else None}
