"""The renderer without a network: the object over its background with a feathered rim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from .layers import Layers, Refused, Rendered


@dataclass(frozen=True)
class Paste:
    """Alpha compositing; `feather` is the width in pixels over which the object's rim fades, inwards.

    An edit that needs a network is refused with a reason, never imitated.
    """

    feather: float = 1.0

    def render(self, batch: Sequence[Layers]) -> list[Rendered | Refused]:
        return [self._render(layers) for layers in batch]

    def describe(self) -> dict[str, Any]:
        return {"renderer": "paste", "feather": self.feather, "device": "cpu"}

    def _render(self, layers: Layers) -> Rendered | Refused:
        if layers.needs_network is not None:
            return Refused(f"needs a diffusion network: {layers.needs_network}")
        alpha = feathered(layers.alpha, self.feather)
        return Rendered(composite(layers.object, alpha, layers.background), alpha=alpha)


def feathered(alpha: np.ndarray, feather: float) -> np.ndarray:
    """`alpha` (S, S) faded inwards over about `feather` pixels; never above the input, so no old rim shows."""
    if feather <= 0:
        return alpha
    return np.minimum(alpha, cv2.GaussianBlur(alpha, (0, 0), feather / 2))


def composite(front: np.ndarray, alpha: np.ndarray, back: np.ndarray) -> np.ndarray:
    """alpha·front + (1 − alpha)·back, (S, S, 3) uint8; exactly `front` where alpha is 1 and `back` where it is 0."""
    share = alpha[..., None]
    mixed = back + share * (front.astype(np.float32) - back)
    return np.clip(np.rint(mixed), 0, 255).astype(np.uint8)
