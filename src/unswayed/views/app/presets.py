"""Changes to begin with: each changes the prediction of EfficientNet-Lite 0, which is the first model of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .controls import Group, flat_from
from .photographs import open_sample
from .placing import own_values


@dataclass(frozen=True)
class Preset:
    """title: of its button; sample: the photograph; values: {edit: {parameter: value}}, as the controls have them."""

    title: str
    sample: str
    values: Mapping[str, Mapping[str, Any]]


# Found by trying every attribute on every photograph of the sample; the page opens with the first one.
PRESETS = (
    Preset("A small koala", "koala", {"size": {"rate": 0.03}}),
    Preset("A sheep upside down", "sheep", {"direction": {"degrees": 180.0}}),
    Preset("A blue hen", "chicken", {"color": {"hue": 120.0}}),
    Preset("A pig at the edge", "pig", {"position": {"x": 0.0, "y": 0.5}}),
)


def preset_flat(shown: Sequence[Group], preset: Preset) -> list[Any]:
    """Return the page's values with the changes of a preset and no others."""
    every = {group.edit: preset.values.get(group.edit) for group in shown}
    empty = [None] * sum(group.count for group in shown)
    return flat_from(shown, empty, every, own_values(open_sample(preset.sample)))
