"""`BatchEdit`: attribute edits of a whole batch at once, on the device where the batch lies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from unfazed.errors import UserError

from .mixture import BACKGROUND, NUMBERS, OBJECT, Draws, EditMixture, draw
from .pixels import blurred, recolored, relit, warped, without_objects
from .placement import covers, outlines, placements


class BatchEdit(nn.Module):
    """Edits of the objects in a batch of pictures; each picture gets its own, drawn from one mixture.

    backgrounds: (K, 3, H, W) pictures to put behind objects and to hide them with, uint8 or in [0, 1]; without them
    the other pictures of the batch serve, their objects filled smoothly from what surrounds them.

    >>> images, masks = torch.zeros(2, 3, 64, 64), torch.zeros(2, 1, 64, 64)
    >>> masks[:, :, 20:40, 20:40] = 1
    >>> edited, moved = BatchEdit(EditMixture(probability=1.0))(images, masks)
    >>> edited.shape, moved.shape
    (torch.Size([2, 3, 64, 64]), torch.Size([2, 1, 64, 64]))
    """

    backgrounds: Tensor | None

    def __init__(self, mixture: EditMixture | None = None, backgrounds: Tensor | None = None) -> None:
        super().__init__()
        self.mixture = mixture or EditMixture()
        if backgrounds is not None and (backgrounds.ndim != 4 or backgrounds.shape[1] != 3 or not len(backgrounds)):
            raise UserError(
                f"the backgrounds have the shape {tuple(backgrounds.shape)}", allowed="(K, 3, H, W), at least one"
            )
        self.register_buffer("backgrounds", backgrounds, persistent=False)

    def draw(self, count: int, generator: torch.Generator | None = None) -> Draws:
        """The draws for a batch; generator: a CPU generator, torch's own if None."""
        seed = int(torch.randint(2**62, (), generator=generator))
        return draw(count, self.mixture, np.random.default_rng(seed))

    def forward(
        self,
        images: Tensor,
        masks: Tensor,
        removed: Tensor | None = None,
        *,
        usable: Sequence[bool] | np.ndarray | None = None,
        draws: Draws | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The edited pictures and the masks of what is visible of their objects, in the types that came in.

        images: (N, 3, H, W) uint8, or floating point in [0, 1] (before any normalization by mean and deviation);
        masks: (N, H, W) or (N, 1, H, W), bool, integers or in [0, 1], object above one half; removed: the pictures
        without their objects, where something better than a smooth fill is known; usable: which pictures have a mask.
        A picture without a mask stays as it is and lends no background.
        """
        if images.ndim != 4 or images.shape[1] != 3 or masks.shape[-2:] != images.shape[-2:]:
            raise UserError(
                f"the pictures are {tuple(images.shape)}, the masks {tuple(masks.shape)}",
                allowed="(N, 3, H, W) pictures and (N, H, W) or (N, 1, H, W) masks of the same size",
            )
        count = len(images)
        draws = self.draw(count, generator) if draws is None else draws
        may = np.ones(count, bool) if usable is None else np.asarray(usable, bool)
        chosen = np.flatnonzero(draws.kinds.any(axis=1) & may)
        if not len(chosen):
            return images, masks
        lenders = np.flatnonzero(may)
        rows = torch.from_numpy(chosen).to(images.device, non_blocking=True)
        batch = _Batch(images, masks, removed, self.backgrounds)
        edited, visible = batch.edit(draws[chosen], chosen, rows, lenders)
        out, moved = images.clone(), masks.clone()
        out[rows] = _like(edited, images)
        moved[rows] = _mask_like(visible, masks, batch.scale(rows))
        return out, moved


class _Batch:
    """The pictures of one call, and what is read off them."""

    def __init__(self, images: Tensor, masks: Tensor, removed: Tensor | None, bank: Tensor | None) -> None:
        self.images, self.removed, self.bank = images, removed, bank
        self.masks = masks.unsqueeze(1) if masks.ndim == 3 else masks

    def scale(self, rows: Tensor) -> Tensor:
        """(n, 1, 1, 1): the value that stands for an object in masks of integers: 1, or 255 where any is above 1."""
        largest = self.masks[rows].amax(dim=(1, 2, 3), keepdim=True)
        return torch.where(largest > 1, 255.0, 1.0)

    def alpha(self, rows: Tensor) -> Tensor:
        """(n, 1, H, W): 1 inside the object, with a rim of a pixel that fades inwards."""
        masks = self.masks[rows].float()
        if not self.masks.is_floating_point() and self.masks.dtype != torch.bool:
            masks = masks / self.scale(rows)
        # Steep around one half: an object is where its mask is above that, the half-known border of a trimap too.
        solid = (masks * 8 - 3).clamp_(0, 1)
        return torch.minimum(solid, nnf.avg_pool2d(solid, 3, 1, 1, count_include_pad=False))

    def background(self, rows: Tensor) -> Tensor:
        """(n, 3, H, W): the pictures of these rows without their objects."""
        if self.removed is not None:
            return _unit(self.removed[rows])
        return without_objects(_unit(self.images[rows]), self.alpha(rows))

    def lent(self, donors: np.ndarray, chosen: np.ndarray, lenders: np.ndarray) -> Tensor:
        """(n, 3, H, W): other pictures' backgrounds, for draws `donors` in [0, 1) of the pictures `chosen`."""
        device = self.images.device
        if self.bank is not None:
            rows = torch.from_numpy((donors * len(self.bank)).astype(np.int64)).to(device, non_blocking=True)
            picked = _unit(self.bank[rows])
            if picked.shape[-2:] == self.images.shape[-2:]:
                return picked
            return nnf.interpolate(picked, self.images.shape[-2:], mode="bilinear", antialias=True)
        # Any other lender: so many steps further along the list, which never comes back to the picture itself.
        own = np.searchsorted(lenders, chosen)
        steps = 1 + (donors * max(len(lenders) - 1, 1)).astype(np.int64)
        return self.background(torch.from_numpy(lenders[(own + steps) % len(lenders)]).to(device, non_blocking=True))

    def edit(self, draws: Draws, chosen: np.ndarray, rows: Tensor, lenders: np.ndarray) -> tuple[Tensor, Tensor]:
        """The edited pictures of these rows in [0, 1] and the alpha of what is visible of their objects."""
        device = self.images.device
        numbers = torch.from_numpy(draws.numbers).to(device, non_blocking=True)
        of = {name: numbers[:, place] for place, name in enumerate(NUMBERS)}

        def where(flags: np.ndarray) -> Tensor:
            return torch.from_numpy(np.flatnonzero(flags)).to(device, non_blocking=True)

        original = _unit(self.images[rows])
        alpha = self.alpha(rows)
        there = alpha.amax(dim=(1, 2, 3), keepdim=True) > 0.5
        front, back = original, original.clone()
        replaced, geometric = draws.has("background"), draws.has("size", "position", "direction")
        defocused = draws.has("blur") & (draws.blurred == BACKGROUND)
        own = (geometric | defocused) & ~replaced
        if own.any():
            at = where(own)
            back[at] = self.background(rows[at])
        if replaced.any():
            back[where(replaced)] = self.lent(draws.of("donor")[replaced], chosen[replaced], lenders)
        lit = draws.has("lighting")
        if (lit & (draws.lit != OBJECT)).any():
            at = where(lit & (draws.lit != OBJECT))
            back[at] = relit(back[at], of["lighting"][at])
        unit = max(original.shape[-2:]) / 256
        if defocused.any():
            at = where(defocused)
            back[at] = blurred(back[at], of["blur"][at] * unit, float(draws.of("blur")[defocused].max()) * unit)
        if (draws.has("color") | (lit & (draws.lit != BACKGROUND))).any():
            front = front.clone()
        if (lit & (draws.lit != BACKGROUND)).any():
            at = where(lit & (draws.lit != BACKGROUND))
            front[at] = relit(front[at], of["lighting"][at])
        if draws.has("color").any():
            at = where(draws.has("color"))
            front[at] = recolored(front[at], of["color"][at], of["saturation"][at])
        layer = torch.cat([front * alpha, alpha], dim=1)
        soft = draws.has("blur") & (draws.blurred == OBJECT)
        if soft.any():
            at = where(soft)
            layer[at] = blurred(layer[at], of["blur"][at] * unit, float(draws.of("blur")[soft].max()) * unit)
        if geometric.any():
            at = where(geometric)
            flags = np.stack([draws.has(kind) for kind in ("size", "position", "direction")], axis=1)
            flagged = torch.from_numpy(flags[geometric].astype(np.float32)).to(device, non_blocking=True)
            shape = (original.shape[-2], original.shape[-1])
            maps, factor = placements(*outlines(alpha[at]), shape, flagged, numbers[at][:, :4])
            layer[at] = warped(layer[at], maps, factor)
        pictures = torch.addcmul(layer[:, :3], 1 - layer[:, 3:], back)
        visible = layer[:, 3:]
        hidden = draws.has("occlusion")
        if hidden.any():
            at = where(hidden)
            patch = covers(visible[at], torch.stack([of[name][at] for name in ("occlusion", "place", "tilt")], dim=1))
            other = self.lent(1 - draws.of("donor")[hidden] - 1e-6, chosen[hidden], lenders)
            pictures[at] = torch.lerp(pictures[at], other, patch)
            visible = visible.clone()
            visible[at] = visible[at] * (1 - patch)
        return torch.where(there, pictures, original), torch.where(there, visible, alpha)


def _unit(pictures: Tensor) -> Tensor:
    return pictures.float().div_(255) if pictures.dtype == torch.uint8 else pictures.float()


def _like(pictures: Tensor, before: Tensor) -> Tensor:
    if before.dtype == torch.uint8:
        return (pictures * 255).round_().clamp_(0, 255).to(torch.uint8)
    return pictures.to(before.dtype)


def _mask_like(alpha: Tensor, before: Tensor, scale: Tensor) -> Tensor:
    if before.dtype == torch.bool:
        alpha = alpha > 0.5
    elif not before.is_floating_point():
        alpha = torch.where(scale > 1, (alpha * scale).round(), (alpha > 0.5).float())
    return (alpha[:, 0] if before.ndim == 3 else alpha).to(before.dtype)
