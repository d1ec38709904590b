"""Changes of a layer's pixels at the output size: light, colour, focus.

Each takes (S, S, 3) uint8 and the layer's weight (S, S) float32 (1 where a pixel belongs to it) and gives both back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import cv2
import numpy as np

from .composition import Adjustment

Layer = tuple[np.ndarray, np.ndarray]


def lighting(image: np.ndarray, weight: np.ndarray, stops: float) -> Layer:
    """The pixels under 2**stops times the light: multiplied in linear light, clipped, sRGB again."""
    return cv2.LUT(image, _exposure(stops)), weight


def colour(image: np.ndarray, weight: np.ndarray, hue: float, saturation: float) -> Layer:
    """The pixels with the hue turned by `hue` degrees and the saturation scaled, at the same CIELAB lightness."""
    lab = cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2Lab)
    cosine, sine = saturation * np.cos(np.radians(hue)), saturation * np.sin(np.radians(hue))
    a, b = lab[..., 1].copy(), lab[..., 2].copy()
    lab[..., 1], lab[..., 2] = cosine * a - sine * b, sine * a + cosine * b
    turned = cv2.cvtColor(lab, cv2.COLOR_Lab2RGB)
    return np.clip(np.round(turned * 255), 0, 255).astype(np.uint8), weight


def blur(image: np.ndarray, weight: np.ndarray, pixels: float) -> Layer:
    """The layer out of focus by a disc of `pixels` radius; only its own pixels (by weight) mix, the rim softens."""
    if pixels < 0.1:
        return image, weight
    kernel = _disc(pixels)
    premultiplied = np.dstack([image * weight[..., None], weight]).astype(np.float32)
    soft = cv2.filter2D(premultiplied, -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    mixed = soft[..., :3] / np.maximum(soft[..., 3:], 1e-4)
    own = np.where(soft[..., 3:] > 1e-4, mixed, image)
    return np.clip(np.round(own), 0, 255).astype(np.uint8), np.clip(soft[..., 3], 0, 1)


ADJUSTMENTS: dict[str, Callable[..., Layer]] = {"lighting": lighting, "colour": colour, "blur": blur}


def adjusted(image: np.ndarray, weight: np.ndarray, changes: tuple[Adjustment, ...]) -> Layer:
    """A layer after all its changes, in order."""
    for change in changes:
        image, weight = ADJUSTMENTS[change.name](image, weight, **dict(change.parameters))
    return image, weight


@functools.lru_cache(maxsize=64)
def _exposure(stops: float) -> np.ndarray:
    values = np.arange(256) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    lit = np.minimum(linear * 2.0**stops, 1.0)
    encoded = np.where(lit <= 0.0031308, lit * 12.92, 1.055 * lit ** (1 / 2.4) - 0.055)
    return np.round(encoded * 255).astype(np.uint8)


@functools.lru_cache(maxsize=64)
def _disc(radius: float) -> np.ndarray:
    """A disc of real-valued radius as a kernel that sums to one, its rim anti-aliased."""
    reach = int(np.ceil(radius))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    kernel = np.clip(radius + 0.5 - np.hypot(x, y), 0, 1)
    return (kernel / kernel.sum()).astype(np.float32)
