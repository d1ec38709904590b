"""A layer's activation maps, (N, channels, h, w), from a hook that a context manager removes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from unswayed.models import Classifier, HeatLayer


@contextlib.contextmanager
def activation_maps(
    model: Classifier, layer: HeatLayer | None = None
) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """A function from transformed inputs (N, 3, crop, crop) to the layer's maps (N, channels, h, w) float32.

    layer: the model's heat layer if None.
    """
    chosen = layer or model.heat_layer
    seen: list[torch.Tensor] = []

    def hook(_: Any, __: Any, output: torch.Tensor) -> None:
        seen.append(chosen.as_maps(output))

    def maps_of(inputs: torch.Tensor) -> torch.Tensor:
        seen.clear()
        model.logits(inputs)
        return seen[-1].float()

    handle = chosen.module(model.module).register_forward_hook(hook)
    try:
        yield maps_of
    finally:
        handle.remove()


def open_layer(model: Classifier, name: str | None) -> HeatLayer:
    """The description of the layer with that dotted name; the model's heat layer if None."""
    if name is None:
        return model.heat_layer
    import torch

    from unswayed.models.heat import find_heat_layer

    side = model.transform.crop
    return find_heat_layer(model.module, torch.zeros(1, 3, side, side, device=model.device), name)
