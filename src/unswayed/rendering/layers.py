"""The input of a renderer (arrays of the output size) and its two kinds of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from unswayed.edits.composition import Guidance


@dataclass(frozen=True, eq=False)
class Layers:
    """One picture to be rendered, at the output size S.

    object: (S, S, 3) uint8, valid where alpha > 0; alpha: (S, S) float32 in [0, 1], anti-aliased, pasted back exactly;
    background: (S, S, 3) uint8, noised and denoised; start: share of the noise schedule at which blending starts, 0 =
    no diffusion; guidance: or None; label: the true class, for adversarial guidance; seed: of this picture alone;
    needs_network: why it cannot be pasted, or None; visible: (S, S) float32, the object without the parts that
    something covers, or None if nothing covers it.
    """

    object: np.ndarray
    alpha: np.ndarray
    background: np.ndarray
    start: float
    guidance: Guidance | None
    label: int | None
    seed: int
    needs_network: str | None = None
    visible: np.ndarray | None = None

    @property
    def mask(self) -> np.ndarray:
        """The visible object, (S, S) float32 in [0, 1]: what the benchmark keeps and measures the pixel rate on."""
        return self.alpha if self.visible is None else self.visible


@dataclass(frozen=True, eq=False)
class Rendered:
    """A picture (S, S, 3) uint8, and the renderer's measures of it for the manifest.

    alpha: (S, S) float32, what the object was blended with, where that is not the alpha of its layers; generated:
    whether a network made the background, so that it need not be the one of the layers.
    """

    image: np.ndarray
    measures: dict[str, Any] = field(default_factory=dict)
    alpha: np.ndarray | None = None
    generated: bool = False


@dataclass(frozen=True)
class Refused:
    """A picture that this renderer does not make (skipped) or could not make (failed), with the reason."""

    reason: str
    status: str = "skipped"


class Renderer(Protocol):
    """Renders a batch of mixed scenes, edits and strengths; returns one answer per picture, in order."""

    def render(self, batch: Sequence[Layers]) -> list[Rendered | Refused]: ...

    def describe(self) -> dict[str, Any]:
        """The entry in benchmark.json: name, settings, hash of the weights, device type."""
        ...
