"""Pixel work for a batch of pictures in [0, 1], in torch: filling, light, color, blur and warping."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as nnf
from torch import Tensor

DISPLAY_GAMMA = 2.2
LEVELS = 3  # halvings that a warp can choose from; an object shrinks by 8 in width before it aliases
# RGB to luma and two color axes, and back (YIQ); hue is an angle between the axes.
_TO_YIQ = ((0.299, 0.587, 0.114), (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135))


def without_objects(pictures: Tensor, alpha: Tensor) -> Tensor:
    """The pictures (n, 3, H, W) with their objects, alpha (n, 1, H, W), filled smoothly from what surrounds them.

    Known pixels are averaged down a pyramid and the hole is filled on the way back up, from half the resolution on:
    a fill holds nothing finer.
    """
    hole = nnf.max_pool2d(nnf.max_pool2d(alpha, 5, 2, 2), 3, 1, 1)
    small = nnf.adaptive_avg_pool2d(pictures, (hole.shape[-2], hole.shape[-1]))
    known = (hole < 0.05).to(pictures.dtype)
    levels = [torch.cat([small * known, known], dim=1)]
    while max(levels[-1].shape[-2:]) > 1:
        levels.append(nnf.avg_pool2d(levels[-1], 2, ceil_mode=True))
    filled = levels[-1][:, :3] / levels[-1][:, 3:].clamp(min=1e-4)
    for level in reversed(levels[:-1]):
        coarse = nnf.interpolate(filled, level.shape[-2:], mode="bilinear", align_corners=False)
        filled = torch.addcmul(level[:, :3], 1 - level[:, 3:], coarse)
    smooth = nnf.interpolate(
        torch.cat([filled, 1 - known], dim=1), pictures.shape[-2:], mode="bilinear", align_corners=False
    )
    return torch.lerp(pictures, smooth[:, :3], smooth[:, 3:])


def relit(pictures: Tensor, stops: Tensor) -> Tensor:
    """The pictures under 2**stops times the light: with a display gamma of 2.2 that is one gain, clipped."""
    return (pictures * (stops / DISPLAY_GAMMA).exp2().view(-1, 1, 1, 1)).clamp_(max=1)


def recolored(pictures: Tensor, hue: Tensor, saturation: Tensor) -> Tensor:
    """The pictures with the hue turned by `hue` degrees and the saturation scaled, at the same luma."""
    turned = color_matrices(hue, saturation)
    return torch.bmm(turned.to(pictures.dtype), pictures.flatten(2)).view_as(pictures).clamp_(0, 1)


def color_matrices(hue: Tensor, saturation: Tensor) -> Tensor:
    """(n, 3, 3): the change of RGB that turns the hue and scales the saturation."""
    there, again = (one.to(hue.device, non_blocking=True) for one in _yiq())
    angle = torch.deg2rad(hue)
    cosine, sine = saturation * angle.cos(), saturation * angle.sin()
    zero, one = torch.zeros_like(cosine), torch.ones_like(cosine)
    turn = torch.stack([one, zero, zero, zero, cosine, -sine, zero, sine, cosine], dim=1).view(-1, 3, 3)
    return again @ turn @ there


@functools.cache
def _yiq() -> tuple[Tensor, Tensor]:
    """The change from RGB to YIQ and back; inverted once, on the CPU: a GPU's solver is slow for nine numbers."""
    there = torch.tensor(_TO_YIQ, dtype=torch.float64)
    return there.float(), torch.linalg.inv(there).float()


def blurred(layers: Tensor, radius: Tensor, largest: float) -> Tensor:
    """The layers (n, C, H, W) out of focus by a disc of `radius` pixels, as the Gaussian of the same spread.

    largest: the largest radius, known beforehand so that nothing waits for a GPU.
    """
    count, channels, high, wide = layers.shape
    reach = max(1, min(int(largest * 1.5 + 0.999), min(high, wide) - 1))
    offsets = torch.arange(-reach, reach + 1, device=layers.device, dtype=torch.float32)
    taps = torch.exp(-0.5 * (offsets / (radius[:, None] / 2).clamp(min=1e-3)) ** 2)
    taps = (taps / taps.sum(1, keepdim=True)).to(layers.dtype).repeat_interleave(channels, dim=0)
    flat = layers.reshape(1, count * channels, high, wide)
    flat = nnf.pad(flat, (reach, reach, reach, reach), mode="reflect")
    flat = nnf.conv2d(flat, taps[:, None, :, None], groups=count * channels)
    return nnf.conv2d(flat, taps[:, None, None, :], groups=count * channels).view_as(layers)


def warped(layers: Tensor, back: Tensor, factor: Tensor) -> Tensor:
    """The layers (n, 4, H, W), colors premultiplied by alpha, moved by the maps (n, 2, 3) from canvas to picture.

    Where an object shrinks, it is sampled from a smaller, averaged copy, so that it does not alias. All copies of a
    picture lie side by side in one larger picture, so that one sampling serves every factor.
    """
    count, _, high, wide = layers.shape
    longer = max(high, wide)
    level = (-factor.log2()).clamp(0, LEVELS).round()
    atlas = layers.new_zeros(count, 4, high, wide + (wide + 1) // 2)
    atlas[..., :wide] = layers
    corners, small, top = [(0, 0, wide, high)], layers, 0
    for _ in range(LEVELS):
        small = nnf.avg_pool2d(small, 2)
        tall, broad = small.shape[-2:]
        atlas[:, :, top : top + tall, wide : wide + broad] = small
        corners.append((wide, top, broad, tall))
        top += tall
    places = torch.tensor(corners, dtype=torch.float32).to(layers.device, non_blocking=True)[level.long()]
    left, above, width, height = (one.view(-1, 1, 1) for one in places.unbind(1))
    y = ((torch.arange(high, device=layers.device) + 0.5) / longer).view(1, high, 1)
    x = ((torch.arange(wide, device=layers.device) + 0.5) / longer).view(1, 1, wide)
    entry = back.view(count, 6, 1, 1)
    # In pixels of the level that is sampled, from its upper left corner.
    shrink = level.exp2().view(-1, 1, 1)
    column = (entry[:, 0] * x + entry[:, 1] * y + entry[:, 2]) * (longer / shrink)
    row = (entry[:, 3] * x + entry[:, 4] * y + entry[:, 5]) * (longer / shrink)
    inside = (column >= 0) & (column <= wide / shrink) & (row >= 0) & (row <= high / shrink)
    column = torch.minimum(column.clamp(min=0.5), width - 0.5) + left
    row = torch.minimum(row.clamp(min=0.5), height - 0.5) + above
    grid = torch.stack([column * (2 / atlas.shape[-1]) - 1, row * (2 / high) - 1], dim=-1)
    moved = nnf.grid_sample(atlas, grid.to(layers.dtype), mode="bilinear", align_corners=False)
    return moved * inside[:, None]
