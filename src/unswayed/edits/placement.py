"""Where the edited objects lie, for a batch: affine maps from coarse outlines, and patches that hide a share of them.

Points are (x, y) in units of the longer side of the picture, y down. Outlines are read off a grid of GRID×GRID cells,
so that everything here is small, and nothing waits for a GPU.
"""

from __future__ import annotations

import torch
import torch.nn.functional as nnf
from torch import Tensor

GRID = 32


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


def covers(alpha: Tensor, numbers: Tensor) -> Tensor:
    """Rounded squares (n, 1, H, W) in [0, 1], each of which hides a share of its object.

    numbers: (n, 3) with the share, and place and tilt in [0, 1). The radius is where the sorted distances of the
    object's cells from a place on the object have reached that share.
    """
    high, wide = alpha.shape[-2:]
    frame = frame_of(high, wide, alpha.device)
    points = cells(frame)
    weight = nnf.adaptive_avg_pool2d(alpha, GRID).flatten(1).float()
    reached = weight.cumsum(1)
    total = reached[:, -1:].clamp(min=1e-6)
    middle = points[(reached < numbers[:, 1:2] * total).sum(1).clamp(max=GRID * GRID - 1)]
    tilt = numbers[:, 2] * (torch.pi / 2)
    distance, order = _distance(points[None, :, 0], points[None, :, 1], middle, tilt[:, None]).sort(dim=1)
    hidden = weight.gather(1, order).cumsum(1)
    place = (hidden < numbers[:, :1] * total).sum(1, keepdim=True).clamp(max=GRID * GRID - 1)
    radius = distance.gather(1, place)
    y = ((torch.arange(high, device=alpha.device) + 0.5) / max(high, wide)).view(1, high, 1)
    x = ((torch.arange(wide, device=alpha.device) + 0.5) / max(high, wide)).view(1, 1, wide)
    far = _distance(x, y, middle[:, :, None], tilt[:, None, None])
    return ((radius[:, :, None] - far) * max(high, wide) + 0.5).clamp(0, 1)[:, None].to(alpha.dtype)


def _bounds(points: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """The corners of the box around the points that are inside: two (n, 2)."""
    out = torch.full((), float("inf"), device=points.device)
    return (
        torch.where(inside[:, :, None], points, out).amin(1),
        torch.where(inside[:, :, None], points, -out).amax(1),
    )


def _distance(x: Tensor, y: Tensor, middle: Tensor, tilt: Tensor) -> Tensor:
    """How far points are from the middle, in the norm whose circles are rounded, tilted squares."""
    x, y = x - middle[:, 0:1], y - middle[:, 1:2]
    along, across = x * tilt.cos() + y * tilt.sin(), y * tilt.cos() - x * tilt.sin()
    return (along**4 + across**4).sqrt().sqrt()
