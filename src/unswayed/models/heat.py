"""The layer of a heat map: the last one with spatial positions, found during one forward pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import nn

from unswayed.errors import UserError, check_known

from .runtime import evaluating, watching


@dataclass(frozen=True)
class HeatLayer:
    """The layer of a heat map, and how its output becomes (N, channels, height, width).

    name: dotted module name; reshape: `none` (it has that shape), `channels-last` (N, h, w, C) or `tokens`
    (N, prefix + h·w, C), where the first `prefix` tokens (class, registers) have no position.
    """

    name: str
    reshape: str
    height: int
    width: int
    prefix: int = 0

    def module(self, root: nn.Module) -> nn.Module:
        return root.get_submodule(self.name)

    def as_maps(self, output: torch.Tensor) -> torch.Tensor:
        """The layer's output as (N, channels, height, width)."""
        if self.reshape == "tokens":
            tokens = output[:, self.prefix :]
            return tokens.reshape(len(tokens), self.height, self.width, -1).permute(0, 3, 1, 2)
        return output.permute(0, 3, 1, 2) if self.reshape == "channels-last" else output

    @property
    def reshape_transform(self) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """The `reshape_transform` of the grad-cam library."""
        return None if self.reshape == "none" else self.as_maps

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def find_heat_layer(module: nn.Module, example: torch.Tensor, name: str | None = None) -> HeatLayer:
    """The heat layer of `module`, or the one called `name`, from one pass of `example` (1, 3, h, w).

    Convolutional networks and those that keep a grid: the last output with more than one position. Vision
    transformers: the first norm of the last block, since after it only the class token reaches the output.
    """
    layers: list[tuple[HeatLayer, str]] = []  # in the order of execution, with their class names

    def record(layer_name: str, layer: nn.Module, _: object, output: object) -> None:
        if isinstance(output, torch.Tensor) and (heat_layer := _describe(layer_name, output)):
            layers.append((heat_layer, type(layer).__name__))

    with watching(module, record), evaluating(module), torch.no_grad():
        module(example)
    if name is not None:
        known = {layer.name: layer for layer, _ in layers}
        check_known("layer with spatial positions", [name], known)
        return known[name]
    if not layers:
        raise UserError("no layer of this model has spatial positions, so it has no heat map")
    # Grids, and the norms of blocks of tokens. A grid that comes after the last block's tokens (Swin, EdgeNeXt) is
    # nearer to the output than they are.
    useful = [layer for layer, kind in layers if layer.reshape != "tokens" or ("Norm" in kind and _block(layer.name))]
    if not useful:
        return layers[-1][0]
    last = useful[-1]
    if last.reshape != "tokens":
        return last
    block = _block(last.name)
    return next(layer for layer in useful if layer.reshape == "tokens" and _block(layer.name) == block)


def _describe(name: str, output: torch.Tensor) -> HeatLayer | None:
    shape = tuple(output.shape)
    if len(shape) == 4 and shape[2] == shape[3] > 1:
        return HeatLayer(name, "none", shape[2], shape[3])
    if len(shape) == 4 and shape[1] == shape[2] > 1:
        return HeatLayer(name, "channels-last", shape[1], shape[2])
    if len(shape) == 3 and shape[0] == 1:
        side = int(shape[1] ** 0.5)
        if side > 1 and shape[1] - side * side <= 8:
            return HeatLayer(name, "tokens", side, side, shape[1] - side * side)
    return None


def _block(name: str) -> str:
    """The path of the numbered block that contains a module: `blocks.11` of `blocks.11.norm1`."""
    match = re.match(r"(.*\.?\d+)\.[^\d]", name)
    return match.group(1) if match else ""
