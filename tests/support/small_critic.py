"""Inception's shape at a sixteenth of its width, with random weights: random features tell pictures apart too."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from unswayed.rendering.training.perceptual import _REDUCTION, _STEM, _TOWERS


def widths():
    """(name, channels in, channels out, kernel) of every convolution, with a sixteenth of Inception's channels."""
    stem = zip(_STEM, (3, 2, 2, 4, 5), (2, 2, 4, 5, 12), (3, 3, 3, 1, 3), strict=True)
    yield from stem
    inputs = 12
    for block in ("mixed", "mixed_1", "mixed_2"):
        shapes = ((inputs, 4, 1), (inputs, 3, 1), (3, 4, 5), (inputs, 4, 1), (4, 6, 3), (6, 6, 3), (inputs, 2, 1))
        yield from ((f"{block}.{name}", *shape) for name, shape in zip(_TOWERS, shapes, strict=True))
        inputs = 16
    shapes = ((16, 24, 3), (16, 4, 1), (4, 6, 3), (6, 6, 3))
    yield from ((f"mixed_3.{name}", *shape) for name, shape in zip(_REDUCTION, shapes, strict=True))


def write_small_critic(path: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, inputs, outputs, kernel in widths():
        weight = torch.randn(outputs, inputs, kernel, kernel, generator=generator) / (kernel * inputs**0.5)
        tensors[f"net.layers.{name}.weight"] = weight
        tensors[f"net.layers.{name}.beta"] = torch.randn(outputs, generator=generator) / 4
        tensors[f"net.layers.{name}.mean"] = torch.randn(outputs, generator=generator) / 4
        tensors[f"net.layers.{name}.var"] = torch.rand(outputs, generator=generator) + 0.5
    save_file(tensors, path)
    return path
