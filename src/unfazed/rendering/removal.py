"""Object removal: a picture and the mask of its object in, the same picture without the object out."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from unfazed.errors import unknown

from .backgrounds import Removal

# name -> "module:class" that makes it; what follows `name:` in a spec is handed to the class
REMOVALS: dict[str, str] = {
    "opencv": "unfazed.rendering.removal:OpencvRemoval",
    "diffusion": "unfazed.rendering.removal_diffusion:DiffusionRemoval",
    "onnx": "unfazed.rendering.removal_onnx:OnnxRemoval",
}


def open_removal(spec: str = "opencv") -> Removal:
    """A callable (image (S, S, 3) uint8, mask (S, S) float, seed) -> (S, S, 3) uint8, with a `name`."""
    name, _, detail = spec.partition(":")
    if name not in REMOVALS:
        raise unknown("object removal", name, REMOVALS)
    module, _, maker = REMOVALS[name].partition(":")
    removal: Removal = getattr(import_module(module), maker)(*([detail] if detail else []))
    return removal


class OpencvRemoval:
    """Removal without a network."""

    name = "opencv-1"

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int = 0) -> np.ndarray:
        from .membrane import membrane

        return membrane(image, (mask <= 0.02).astype(np.float32))
