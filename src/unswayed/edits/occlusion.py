"""Occlusion: a part of the object hidden behind the object of another scene."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from unswayed.scene import Scene

from .composition import Composition, Cover, Impossible, Pool
from .edit import Change, Edit, Range, parameter
from .geometry import after, box, outline, placed_mask, placed_object, scaling, shift

if TYPE_CHECKING:
    from torch import Tensor

# An occluder that cannot hide enough becomes larger in steps, up to so many times the width of the picture.
LARGER, LARGEST = 1.3, 2.5
STRIDE = 4  # pixels of a coarse step to the side
_TO_WIDE = np.array([[1 / 3, 0.0, 1 / 3], [0.0, 1 / 3, 1 / 3]])


@dataclass(frozen=True)
class Occlusion(Edit):
    """A share of the object hidden by the cut-out object of another scene; pasted without diffusion."""

    name = "occlusion"
    axis = "share"
    axis_label = "share of the object that is hidden"
    description = "how much of the object another object hides"
    order = 50
    changes = (Change("object hidden", "share", 0.0, 0.95),)

    share: float = parameter(
        0.3, Range(0.01, 0.95, unit="of the object", step=0.01), "how much of the object is hidden"
    )

    random = True
    borrows = True

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        other = pool.other(composition.scene_id, rng)
        if other is None:
            raise Impossible("occlusion needs another scene in the source, but there is none")
        alpha = placed_mask(composition.mask, composition.placement, pool.size)
        for cover in composition.covers:
            alpha = alpha * (1 - cover.alpha)
        scene = pool.load(other)
        cover = replace(hiding(alpha, self.share, scene, rng), label=scene.label)
        visible = float((alpha * (1 - cover.alpha) > 0.5).mean())
        return replace(
            composition,
            covers=(*composition.covers, cover),
            # Less of the object is visible, so the rate that an earlier edit requested is replaced by this one.
            requested={**composition.requested, "occlusion": self.share, "pixel_rate": visible, "from": other},
        )

    def describe(self) -> str:
        return f"{100 * self.share:g} % of the object hidden by another object"

    def words(self, chained: bool = False) -> str:
        return f"{100 * self.share:g} % hidden"


def hiding(alpha: np.ndarray, share: float, other: Scene, rng: np.random.Generator) -> Cover:
    """Return the other scene's object where it hides `share` of the object's pixels, to one pixel.

    It stands on the same ground, a little nearer, and comes in from the left or the right until it hides enough; if it
    is too small for that, it is enlarged. Its outline is moved by a fraction of a pixel to hide the exact number, or by
    more if the object cannot be hidden otherwise.
    """
    rows, columns = np.nonzero(alpha > 0.5)
    wanted = int(round(share * len(rows)))
    if not 0 < wanted < len(rows):
        raise Impossible(f"occlusion {share:g}: the object has only {len(rows)} pixels")
    side, (low, high) = alpha.shape[0], box(outline(other.mask))
    largest = float(LARGEST / (high - low).max())
    factor = float(np.sqrt(max(1.5 * share, 0.4) * len(rows) / (other.mask > 0.5).mean())) / side
    top, bottom = rows.min() / side, (rows.max() + 1) / side
    ground, direction = min(bottom + rng.uniform(0.0, 0.05), 1.0), int(rng.choice((-1, 1)))

    def hidden(step: int) -> int:
        return int((occluder[rows + side, columns + side - step] > 0.5).sum())

    while True:
        factor, middle = min(factor, largest), (low + high) / 2
        # In the middle of a canvas three times as wide, on the ground, or before the object's middle if it is higher;
        # windows of that canvas show it further left or right.
        height = factor * (high - low)[1]
        at = ground - height / 2 if height < bottom - top else (top + bottom) / 2
        standing = shift(0.5 - middle[0], at - middle[1])
        placement = after(_TO_WIDE, after(standing, scaling(factor, middle)))
        pixels, occluder = placed_object(other.image, other.mask, placement, 3 * side)
        steps = range(-side, side + 1)[:: direction * STRIDE]
        enough = next((step for step in steps if hidden(step) >= wanted), None)
        if enough is not None or factor >= largest:
            break
        factor *= LARGER
    # The first step that is enough, or the one that hides the most.
    step = max(steps, key=hidden) if enough is None else enough
    between = [step - direction * back for back in range(STRIDE - 1, 0, -1)] if enough not in (None, steps[0]) else []
    step = next((fine for fine in between if hidden(fine) >= wanted), step)
    window = np.s_[side : 2 * side, side - step : 2 * side - step]
    return _exact(alpha, wanted, np.ascontiguousarray(pixels[window]), np.ascontiguousarray(occluder[window]))


def _exact(alpha: np.ndarray, wanted: int, pixels: np.ndarray, occluder: np.ndarray) -> Cover:
    """Return the occluder with its outline moved so that exactly `wanted` pixels of the object are hidden."""
    from scipy import ndimage

    from unswayed.sources.pictures import distance_to

    from .layers import own_colors

    solid = occluder > 0.5
    outside, nearest = ndimage.distance_transform_edt(~solid, return_indices=True)
    # Half a pixel less on either side, refined by how much of a pixel is covered; slanted, so that few are equal.
    far = np.where(solid, 0.5 - distance_to(~solid), outside - 0.5).astype(np.float32) + (0.5 - occluder) * (
        abs(occluder - 0.5) < 0.5
    )
    places = np.indices(alpha.shape, dtype=np.float32)
    far += (places[0] * 0.61803 + places[1]) * 1e-4
    rows, columns = np.nonzero(alpha > 0.5)
    # A pixel is hidden when alpha·(1 − cover) is at most one half; at the object's edge that is a little earlier.
    reached = far[rows, columns] - (0.5 / alpha[rows, columns] - 0.5)
    radius = float(np.partition(reached, wanted - 1)[wanted - 1]) + 1e-5
    # Beyond its own outline the occluder has the colors of the nearest pixels on it.
    colors = own_colors(pixels, occluder)[tuple(nearest)]
    return Cover(np.clip(radius - far + 0.5, 0.0, 1.0).astype(np.float32), colors)


def hiding_batch(alpha: Tensor, share: Tensor, middle: Tensor, tilt: Tensor) -> Tensor:
    """Return rounded squares (n, 1, H, W) in [0, 1], each of which hides about a share (n,) of its object.

    alpha: (n, 1, H, W); middle, tilt: (n,) in [0, 1), where on the object the middle lies, and its angle. The radius is
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
    x, y = points[(reached < middle[:, None] * total).sum(1).clamp(max=GRID**2 - 1)].split(1, dim=1)
    tilt = tilt[:, None] * (torch.pi / 2)
    distance, order = _distance(points[:, 0] - x, points[:, 1] - y, tilt).sort(dim=1)
    hidden = weight.gather(1, order).cumsum(1)
    radius = distance.gather(1, (hidden < share[:, None] * total).sum(1, keepdim=True).clamp(max=GRID**2 - 1))
    down = ((torch.arange(high, device=alpha.device) + 0.5) / longer).view(1, high, 1)
    across = ((torch.arange(wide, device=alpha.device) + 0.5) / longer).view(1, 1, wide)
    away = _distance(across - x[:, :, None], down - y[:, :, None], tilt[:, :, None])
    return ((radius[:, :, None] - away) * longer + 0.5).clamp(0, 1)[:, None].to(alpha.dtype)


def _distance(x: Tensor, y: Tensor, tilt: Tensor) -> Tensor:
    """Return how far points are from a middle, in the norm whose circles are rounded, tilted squares."""
    along, across = x * tilt.cos() + y * tilt.sin(), y * tilt.cos() - x * tilt.sin()
    return (along**4 + across**4).sqrt().sqrt()
