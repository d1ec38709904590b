"""Occlusion: a part of the object hidden behind a patch of another scene's background."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .composition import Composition, Cover, Impossible, Pool, Removed
from .edit import Change, Edit, Need, Range, parameter
from .geometry import placed_mask

if TYPE_CHECKING:
    from torch import Tensor

PLACES = 6


@dataclass(frozen=True)
class Occlusion(Edit):
    """A share of the object hidden by a patch of another scene's object-free background; pasted without diffusion."""

    name: ClassVar[str] = "occlusion"
    axis: ClassVar[str] = "share"
    axis_label: ClassVar[str] = "share of the object that is hidden"
    description: ClassVar[str] = "how much of the object is hidden"
    order: ClassVar[int] = 50
    changes: ClassVar[tuple[Change, ...]] = (Change("object hidden", "share", 0.0, 0.95),)

    share: float = parameter(
        0.3, Range(0.01, 0.95, unit="of the object", step=0.01), "how much of the object is hidden"
    )

    random: ClassVar[bool] = True
    borrows: ClassVar[bool] = True
    needs: ClassVar[tuple[Need, ...]] = ("removal",)

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        other = pool.other(composition.scene_id, rng)
        if other is None:
            raise Impossible("occlusion needs another scene in the source, but there is none")
        alpha = placed_mask(composition.mask, composition.placement, pool.size)
        for cover in composition.covers:
            alpha = alpha * (1 - cover.alpha)
        patch = hiding(alpha, self.share, rng)
        visible = float((alpha * (1 - patch) > 0.5).mean())
        return replace(
            composition,
            covers=(*composition.covers, Cover(patch, Removed(other))),
            # Less of the object is visible, so the rate that an earlier edit requested is replaced by this one.
            requested={**composition.requested, "occlusion": self.share, "pixel_rate": visible, "from": other},
        )

    def describe(self) -> str:
        return f"{100 * self.share:g} % of the object hidden"


def hiding(alpha: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return a rounded square, (S, S) float32 in [0, 1], that hides `share` of the object's pixels, to one pixel.

    Several squares at random positions and angles are grown until they hide enough; the smallest is used because it
    hides the least of the background.
    """
    rows, columns = np.nonzero(alpha > 0.5)
    wanted = int(round(share * len(rows)))
    if not 0 < wanted < len(rows):
        raise Impossible(f"occlusion {share:g}: the object has only {len(rows)} pixels")

    def reach(x: np.ndarray, y: np.ndarray, middle_x: float, middle_y: float, tilt: float) -> np.ndarray:
        x, y = np.subtract(x, middle_x, dtype=np.float32), np.subtract(y, middle_y, dtype=np.float32)
        return _distance(x, y, tilt, np)

    # A pixel is hidden when alpha·(1 − patch) is at most one half; at the object's edge that is a little earlier.
    earlier = 0.5 / alpha[rows, columns] - 0.5
    squares = []
    for _ in range(PLACES):
        middle = int(rng.integers(len(rows)))
        # Not on the pixel grid, so that no two pixels have the same distance.
        aside = rng.uniform(-0.5, 0.5, 2)
        square = columns[middle] + aside[0], rows[middle] + aside[1], rng.uniform(0, np.pi / 2)
        reached = reach(columns, rows, *square) - earlier
        squares.append((float(np.partition(reached, wanted - 1)[wanted - 1]) + 1e-3, square))
    radius, square = min(squares)
    places = np.indices(alpha.shape, dtype=np.float32)
    return np.clip(radius - reach(places[1], places[0], *square) + 0.5, 0.0, 1.0).astype(np.float32)


def hiding_batch(alpha: Tensor, share: Tensor, place: Tensor, tilt: Tensor) -> Tensor:
    """Return rounded squares (n, 1, H, W) in [0, 1], each of which hides about a share (n,) of its object.

    alpha: (n, 1, H, W); place, tilt: (n,) in [0, 1), where on the object the middle lies, and its angle. The radius is
    where the sorted distances of the object's cells from the middle have reached the share.
    """
    import torch
    from torch.nn.functional import adaptive_avg_pool2d

    from .placement import GRID, cells, frame_of

    high, wide = alpha.shape[-2:]
    longer = max(high, wide)
    points = cells(frame_of(high, wide, alpha.device))
    weight = adaptive_avg_pool2d(alpha, GRID).flatten(1).float()
    reached = weight.cumsum(1)
    total = reached[:, -1:].clamp(min=1e-6)
    x, y = points[(reached < place[:, None] * total).sum(1).clamp(max=GRID**2 - 1)].split(1, dim=1)
    tilt = tilt[:, None] * (torch.pi / 2)
    distance, order = _distance(points[:, 0] - x, points[:, 1] - y, tilt, torch).sort(dim=1)
    hidden = weight.gather(1, order).cumsum(1)
    radius = distance.gather(1, (hidden < share[:, None] * total).sum(1, keepdim=True).clamp(max=GRID**2 - 1))
    down = ((torch.arange(high, device=alpha.device) + 0.5) / longer).view(1, high, 1)
    across = ((torch.arange(wide, device=alpha.device) + 0.5) / longer).view(1, 1, wide)
    away = _distance(across - x[:, :, None], down - y[:, :, None], tilt[:, :, None], torch)
    return ((radius[:, :, None] - away) * longer + 0.5).clamp(0, 1)[:, None].to(alpha.dtype)


def _distance(x: Any, y: Any, tilt: Any, xp: Any) -> Any:
    """Return how far points are from a middle, in the norm whose circles are rounded, tilted squares.

    x, y: the points from that middle; xp: the module of the arrays, numpy or torch.
    """
    along, across = x * xp.cos(tilt) + y * xp.sin(tilt), y * xp.cos(tilt) - x * xp.sin(tilt)
    return xp.sqrt(xp.sqrt(along**4 + across**4))
