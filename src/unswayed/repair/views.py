"""What a network sees of a batch while it is trained and while it is validated: crops, mirror images, numbers."""

from __future__ import annotations

import torch
import torch.nn.functional as nnf
from torch import Tensor

from unswayed.edits.placement import GRID
from unswayed.models.transforms import Transform


def training_crops(
    images: Tensor, masks: Tensor, transform: Transform, least: float, generator: torch.Generator
) -> Tensor:
    """Random crops (n, 3, crop, crop) in [0, 1], half of them mirrored; where it fits, the whole object is inside.

    images: (n, 3, S, S) uint8; masks: (n, 1, S, S) uint8, all 0 where nothing is known; least: the least share of the
    area that a crop shows.
    """
    count, device = len(images), images.device
    share, stretch, across, down, mirror = torch.rand(5, count, generator=generator).to(device)
    area, ratio = least + share * (1 - least), torch.exp((stretch - 0.5) * 0.575)  # 3/4 to 4/3
    extent = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()], dim=1).clamp(max=1)
    low = torch.stack([across, down], dim=1) * (1 - extent)
    first, last = _boxes(masks)
    kept = torch.maximum(torch.minimum(low, first), last - extent)
    low = torch.where(last - first <= extent, kept, low)
    # From the crop's square [-1, 1]² to the picture's.
    flip = torch.where(mirror < 0.5, -1.0, 1.0)
    middle, zero = (low + extent / 2) * 2 - 1, torch.zeros_like(flip)
    rows = [extent[:, 0] * flip, zero, middle[:, 0], zero, extent[:, 1], middle[:, 1]]
    theta = torch.stack(rows, dim=1).view(-1, 2, 3)
    grid = nnf.affine_grid(theta, [count, 3, transform.crop, transform.crop], align_corners=False)
    pixels = images.float().div_(255)
    return nnf.grid_sample(pixels, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _boxes(masks: Tensor) -> tuple[Tensor, Tensor]:
    """Corners of the boxes around objects, two (n, 2) in [0, 1]; the whole picture where there is none."""
    inside = nnf.adaptive_max_pool2d(masks.float(), GRID)[:, 0] > 127
    edges = torch.arange(GRID, device=masks.device) / GRID
    first, last = [], []
    for along in (inside.any(1), inside.any(2)):  # columns, rows
        first.append(torch.where(along, edges, 1.0).amin(1))
        last.append(torch.where(along, edges + 1 / GRID, 0.0).amax(1))
    low, high = torch.stack(first, dim=1), torch.stack(last, dim=1)
    some = inside.flatten(1).any(1)[:, None]
    return torch.where(some, low, torch.zeros_like(low)), torch.where(some, high, torch.ones_like(high))
