"""Pixel work for a batch of pictures in [0, 1], in torch: filling, light, color, blur and warping."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

DISPLAY_GAMMA = 2.2
LEVELS = 3  # halvings that a warp can choose from; an object shrinks by 8 in width before it aliases
# RGB to luma and two color axes, and back (YIQ); hue is an angle between the axes.
_TO_YIQ = ((0.299, 0.587, 0.114), (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135))
_FROM_YIQ = np.linalg.inv(_TO_YIQ).tolist()
_SHIFTS = (0, 8, 16, 24)  # of the four channels in a word


def smooth_fills(pictures: Tensor, alpha: Tensor) -> Tensor:
    """(n, 4, H, W): what fills the objects smoothly from their surroundings, and where it covers the picture.

    pictures: (n, 3, H, W); alpha: (n, 1, H, W), 1 inside the objects. Known pixels are averaged down a pyramid and the
    hole is filled on the way back up, from a quarter of the resolution on: a fill holds nothing finer.
    """
    # Every cell that touches the object, and its neighbors: so the object itself is hidden wholly.
    hole = nnf.max_pool2d(nnf.max_pool2d(alpha, 4, ceil_mode=True), 3, 1, 1)
    known = (hole < 0.05).to(pictures.dtype)
    levels = [torch.cat([nnf.avg_pool2d(pictures, 4, ceil_mode=True) * known, known], dim=1)]
    while max(levels[-1].shape[-2:]) > 1:
        levels.append(nnf.avg_pool2d(levels[-1], 2, ceil_mode=True))
    filled = levels[-1][:, :3] / levels[-1][:, 3:].clamp(min=1e-4)
    for level in reversed(levels[:-1]):
        coarse = _enlarged(filled, level.shape[-2], level.shape[-1], 2)
        filled = torch.addcmul(level[:, :3], 1 - level[:, 3:], coarse)
    return _enlarged(torch.cat([filled, 1 - known], dim=1), pictures.shape[-2], pictures.shape[-1], 4)


def _enlarged(layers: Tensor, high: int, wide: int, factor: int) -> Tensor:
    """The layers (n, C, h, w) enlarged bilinearly by a factor and cut to high × wide, as two matrix products."""

    def weights(small: int, large: int) -> Tensor:
        place = (torch.arange(large, device=layers.device) + 0.5) / factor - 0.5
        apart = place.clamp(0, small - 1)[:, None] - torch.arange(small, device=layers.device)
        return (1 - apart.abs()).clamp(min=0).to(layers.dtype)

    return weights(layers.shape[-2], high) @ (layers @ weights(layers.shape[-1], wide).T)


def relit(pictures: Tensor, stops: Tensor) -> Tensor:
    """The pictures under 2**stops times the light: with a display gamma of 2.2 that is one gain, clipped."""
    gain = (stops / DISPLAY_GAMMA).exp2().to(pictures.dtype)
    return (pictures * gain.view(-1, 1, 1, 1)).clamp(max=1)


def recolored(pictures: Tensor, hue: Tensor, saturation: Tensor) -> Tensor:
    """The pictures with the hue turned by `hue` degrees and the saturation scaled, at the same luma."""
    matrix = color_matrices(hue, saturation)[..., None, None].to(pictures.dtype)
    red, green, blue = pictures.split(1, dim=1)
    return (matrix[:, :, 0] * red + matrix[:, :, 1] * green + matrix[:, :, 2] * blue).clamp(0, 1)


def color_matrices(hue: Tensor, saturation: Tensor) -> Tensor:
    """(n, 3, 3): the change of RGB that turns the hue and scales the saturation."""
    there, again = (torch.tensor(one).to(hue.device, non_blocking=True) for one in (_TO_YIQ, _FROM_YIQ))
    angle = torch.deg2rad(hue)
    cosine, sine = saturation * angle.cos(), saturation * angle.sin()
    zero, one = torch.zeros_like(cosine), torch.ones_like(cosine)
    turn = torch.stack([one, zero, zero, zero, cosine, -sine, zero, sine, cosine], dim=1).view(-1, 3, 3)
    return again @ turn @ there


def blurred(layers: Tensor, radius: Tensor) -> Tensor:
    """The layers (n, C, H, W) out of focus by a disc of `radius` pixels, as the Gaussian of the same spread.

    One matrix product along each side: a matrix holds the weights of a picture's radius, reflected at the borders.
    """
    sigma = (radius / 2).clamp(min=1e-3).view(-1, 1, 1)

    def weights(side: int) -> Tensor:
        place = torch.arange(side, device=layers.device, dtype=torch.float32)
        to, source = place[:, None], place[None, :]
        apart = torch.stack([to - source, to + source, 2 * (side - 1) - to - source])
        # The outermost pixels are the mirrors themselves and are not seen twice.
        mirrored = torch.stack([source >= 0, source > 0, source < side - 1])
        taps = (torch.exp(-0.5 * (apart[:, None] / sigma) ** 2) * mirrored[:, None]).sum(0)
        return (taps / taps.sum(-1, keepdim=True)).to(layers.dtype)

    high, wide = layers.shape[-2:]
    across = torch.bmm(layers.flatten(1, 2), weights(wide).transpose(1, 2)).view_as(layers)
    return (weights(high)[:, None] @ across).clamp(max=1)


def warped(layers: Tensor, back: Tensor, factor: Tensor) -> Tensor:
    """The layers (n, 4, H, W), colors premultiplied by alpha, moved by the maps (n, 2, 3) from canvas to picture.

    Where an object shrinks, it is sampled from a smaller, averaged copy, so that it does not alias. All copies of a
    picture lie side by side in one larger picture, so that one sampling serves every factor. A pixel is one word of
    four bytes, so that its place is computed once for all four channels.
    """
    high, wide = layers.shape[-2:]
    level = (-factor.log2()).clamp(0, LEVELS).round()
    atlas = layers.new_zeros(len(layers), high, wide + (wide + 1) // 2, dtype=torch.int32)
    atlas[..., :wide] = _packed(layers)
    corners, small, top = [(0, 0, wide, high)], layers, 0
    for _ in range(LEVELS):
        small = nnf.avg_pool2d(small, 2)
        tall, broad = small.shape[-2:]
        atlas[:, top : top + tall, wide : wide + broad] = _packed(small)
        corners.append((wide, top, broad, tall))
        top += tall
    places = torch.tensor(corners, dtype=torch.float32).to(layers.device, non_blocking=True)[level.long()]
    corner, extent = places[:, :2, None, None], places[:, 2:, None, None]
    # From pixels of the canvas to pixels of a level: the map is in units of the longer side.
    scale = level.exp2().view(-1, 1, 1)
    linear, offset = (back[:, :, :2] / scale)[..., None, None], (back[:, :, 2:] * max(high, wide) / scale)[..., None]
    y = (torch.arange(high, device=layers.device) + 0.5).view(1, 1, high, 1)
    x = (torch.arange(wide, device=layers.device) + 0.5).view(1, 1, 1, wide)
    at = linear[:, :, 0] * x + linear[:, :, 1] * y + offset
    inside = ((at >= 0) & (at <= extent)).all(dim=1)
    at = torch.minimum((at - 0.5).clamp(min=0), extent - 1)
    first, share = at.floor(), at.frac()
    second = torch.minimum(first + 1, extent - 1) + corner
    (left, upper), (right, lower) = ((first + corner).int().unbind(1), second.int().unbind(1))
    across, down = share[:, 0], share[:, 1]
    weights = ((1 - across) * (1 - down), across * (1 - down), (1 - across) * down, across * down)
    pixels = atlas.flatten(1)
    words = [
        pixels.gather(1, (row * atlas.shape[-1] + column).flatten(1).long()).view_as(row)
        for row, column in ((upper, left), (upper, right), (lower, left), (lower, right))
    ]
    channels = [
        _sum(weight * ((word >> shift) & 255) for weight, word in zip(weights, words, strict=True)) for shift in _SHIFTS
    ]
    moved = _sum((channel + 0.5).int() << shift for channel, shift in zip(channels, _SHIFTS, strict=True))
    return _unpacked(torch.where(inside, moved, 0), layers.dtype)


def _sum(parts: Iterable[Tensor]) -> Tensor:
    return functools.reduce(operator.add, parts)


def _packed(layers: Tensor) -> Tensor:
    """(n, H, W) int32: the four channels of the layers (n, 4, H, W) in [0, 1], a byte each."""
    levels = (layers.float() * 255).round().int()
    return _sum(levels[:, place] << shift for place, shift in enumerate(_SHIFTS))


def _unpacked(words: Tensor, dtype: torch.dtype) -> Tensor:
    """(n, 4, H, W) in [0, 1]: what `_packed` was given, in 256 levels."""
    shifts = torch.tensor(_SHIFTS).to(words.device, non_blocking=True).view(-1, 1, 1)
    return (((words[:, None] >> shifts) & 255).float() / 255).to(dtype)
