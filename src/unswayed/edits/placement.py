"""Where the objects of a batch lie, their warps, and what fills their old places; all in torch.

Points are (x, y) in units of the longer side of the picture, y down. Outlines are read off a grid of GRID×GRID cells,
so that everything about them is small, and nothing waits for a GPU.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable

import torch
import torch.nn.functional as nnf
from torch import Tensor

GRID = 32
LEVELS = 3  # halvings that a warp can choose from; an object shrinks by 8 in width before it aliases
_SHIFTS = (0, 8, 16, 24)  # of the four channels in a word


def frame_of(high: int, wide: int, device: torch.device) -> Tensor:
    """(2,): width and height of the picture in units of its longer side."""
    # Made on the device: a copy from the CPU would wait for the GPU.
    longer = max(high, wide)
    return torch.stack([torch.full((), wide / longer, device=device), torch.full((), high / longer, device=device)])


def cells(frame: Tensor) -> Tensor:
    """(GRID², 2): the middles of the grid's cells."""
    along = (torch.arange(GRID, device=frame.device) + 0.5) / GRID
    y, x = torch.meshgrid(along, along, indexing="ij")
    return torch.stack([x.reshape(-1), y.reshape(-1)], dim=1) * frame


def outlines(alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Which cells hold a part of the object, (n, GRID²) bool, and the share of the picture it covers, (n,)."""
    inside = nnf.adaptive_max_pool2d(alpha, GRID).flatten(1) > 0.5
    return inside, (alpha > 0.5).float().mean(dim=(1, 2, 3))


def placements(
    inside: Tensor, rate: Tensor, shape: tuple[int, int], geometry: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """The maps from the canvas back to the picture, (n, 2, 3), and the factors (n,) by which objects grow.

    inside, rate: from `outlines`; shape: height and width of the pictures; geometry: (n, 3) float, 1 where size,
    position, direction is edited; numbers: (n, 4) with size, x, y, direction. An object is scaled and turned about
    the middle of its box, made smaller where it would not fit into the frame, and shifted as little as needed to lie
    inside it, or to where `x, y` say.
    """
    frame = frame_of(*shape, inside.device)
    points, half = cells(frame), frame / GRID / 2
    low, top = _bounds(points[None].expand(len(inside), -1, -1), inside)
    center = (low + top) / 2
    rate = rate.clamp(min=1e-4)
    resized, moved, turned = geometry.unbind(1)
    factor = torch.where(resized > 0, (numbers[:, 0] / rate).sqrt(), torch.ones_like(rate))
    angle = torch.deg2rad(numbers[:, 3]) * turned
    cosine, sine = angle.cos(), angle.sin()
    # Counter-clockwise as seen, with y down.
    turn = torch.stack([cosine, sine, -sine, cosine], dim=1).view(-1, 2, 2)
    around = (points[None] - center[:, None]) @ turn.transpose(1, 2)
    margin = (turn.abs() @ half).view(-1, 2)
    low, top = _bounds(around, inside)
    low, top = low - margin, top + margin
    largest = (frame / (top - low)).amin(dim=1)
    # An object that is only moved keeps its size, even if the coarse outline says that it just does not fit.
    factor = torch.where((resized + turned) > 0, torch.minimum(factor, largest), factor)
    extent, low = (top - low) * factor[:, None], low * factor[:, None]
    room = (frame - extent).clamp(min=0)
    kept = torch.minimum((center + low).clamp(min=0), room)
    landed = torch.where(moved[:, None] > 0, numbers[:, 1:3] * room, kept) - low
    # A picture without an object has no outline; its map is not used, but it must be finite.
    back = torch.nan_to_num(turn.transpose(1, 2) / factor[:, None, None], 0.0, 0.0, 0.0)
    shift = torch.nan_to_num(center[:, :, None] - back @ landed[:, :, None], 0.0, 0.0, 0.0)
    return torch.cat([back, shift], dim=2), factor


def _bounds(points: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """The corners of the box around the points that are inside: two (n, 2)."""
    out = torch.full((), float("inf"), device=points.device)
    return (torch.where(inside[:, :, None], points, out).amin(1), torch.where(inside[:, :, None], points, -out).amax(1))


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
        centers = (torch.arange(large, device=layers.device) + 0.5) / factor - 0.5
        apart = centers.clamp(0, small - 1)[:, None] - torch.arange(small, device=layers.device)
        return (1 - apart.abs()).clamp(min=0).to(layers.dtype)

    return weights(layers.shape[-2], high) @ (layers @ weights(layers.shape[-1], wide).T)


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
    return _sum(levels[:, channel] << shift for channel, shift in enumerate(_SHIFTS))


def _unpacked(words: Tensor, dtype: torch.dtype) -> Tensor:
    """(n, 4, H, W) in [0, 1]: what `_packed` was given, in 256 levels."""
    shifts = torch.tensor(_SHIFTS).to(words.device, non_blocking=True).view(-1, 1, 1)
    return (((words[:, None] >> shifts) & 255).float() / 255).to(dtype)
