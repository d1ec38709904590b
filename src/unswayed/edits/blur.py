"""Blur: the background or the object out of focus."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .composition import Adjustment, Composition, Layer, Pool
from .edit import Change, Edit, Range, parameter, where

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Blur(Edit):
    """The background defocused, the object blurred, or both; a pixel edit without diffusion."""

    name = "blur"
    axis = "pixels"
    axis_label = "blur radius, pixels of 256"
    description = "the focus of the object, the background or both"
    order = 70
    changes = (
        Change("background blurred", "pixels", 0.0, 32.0),
        Change("object blurred", "pixels", 0.0, 32.0, (("where", "object"),)),
    )

    pixels: float = parameter(
        4.0, Range(0.0, 32.0, unit="pixels of a 256-pixel picture", step=0.5), "radius of the disc that a point becomes"
    )
    where: str = where("background", "what is blurred")

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        change = Adjustment(blurred, (("pixels", self.pixels * pool.size / 256),))
        return composition.adjust(change, self.where, blur=self.pixels)

    def describe(self) -> str:
        subject = "object and background" if self.where == "both" else self.where
        return f"{subject} blurred over {self.pixels:g} pixels"

    def words(self, chained: bool = False) -> str:
        return f"{'all' if self.where == 'both' else self.where} blurred, {self.pixels:g} px"


def blurred(image: np.ndarray, weight: np.ndarray, pixels: float) -> Layer:
    """Return the layer blurred with a disc of `pixels` radius; only its own pixels (by weight) mix."""
    import cv2

    if pixels < 0.1:
        return image, weight
    kernel = _disc(pixels)
    premultiplied = np.dstack([image * weight[..., None], weight]).astype(np.float32)
    soft = cv2.filter2D(premultiplied, -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    mixed = soft[..., :3] / np.maximum(soft[..., 3:], 1e-4)
    own = np.where(soft[..., 3:] > 1e-4, mixed, image)
    return np.clip(np.round(own), 0, 255).astype(np.uint8), np.clip(soft[..., 3], 0, 1)


@functools.lru_cache(maxsize=64)
def _disc(radius: float) -> np.ndarray:
    """Return a disc of real-valued radius as a kernel that sums to one, with an anti-aliased edge."""
    reach = int(np.ceil(radius))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    kernel = np.clip(radius + 0.5 - np.hypot(x, y), 0, 1)
    return (kernel / kernel.sum()).astype(np.float32)


def blurred_batch(layers: Tensor, radius: Tensor) -> Tensor:
    """Return layers as `blurred` changes them, each by its own radius (n,) in pixels.

    layers: (n, 4, H, W), colors times weight, and weight. The discs are multiplied in the Fourier domain, where any
    radius up to 32 of 256 pixels takes the same time and the shapes are fixed, as a compiler wants them.
    """
    import torch

    high, wide = layers.shape[-2:]
    margin = max(high, wide) // 8 + 1
    rings, distances = [], []
    for side in (high, wide):
        # At least `margin` more pixels on both ends, mirrored; a multiple of 16 of them is quick to transform.
        length, period = -(-(side + 2 * margin) // 16) * 16, max(2 * (side - 1), 1)
        pixel = torch.arange(-margin, length - margin, device=layers.device) % period
        rings.append(torch.minimum(pixel, period - pixel))
        # How far each pixel of a ring is from the first.
        pixel = torch.arange(length, device=layers.device, dtype=torch.float32)
        distances.append(torch.minimum(pixel, length - pixel))
    padded = layers.float()[:, :, rings[0]][..., rings[1]]
    away = torch.hypot(distances[0][:, None], distances[1])
    disc = (radius.float().view(-1, 1, 1) + 0.5 - away).clamp(0, 1)
    # A disc is symmetric, so its spectrum is real.
    share = torch.fft.rfft2(disc / disc.sum(dim=(1, 2), keepdim=True)).real
    spectrum = torch.view_as_real(torch.fft.rfft2(padded)) * share[:, None, :, :, None]
    soft = torch.fft.irfft2(torch.view_as_complex(spectrum), s=padded.shape[-2:])
    soft = soft[..., margin : margin + high, margin : margin + wide].clamp(0, 1).to(layers.dtype)
    return torch.where(radius.view(-1, 1, 1, 1) < 0.1, layers, soft)
