"""`BatchEdit`: attribute edits of a whole batch at once, on the device where the batch lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from unswayed.errors import UserError

from .mixture import BACKGROUND, KINDS, NUMBERS, OBJECT, Draws, EditMixture, draw
from .pixels import blurred, recolored, relit, smooth_fills, warped
from .placement import covers, outlines, placements

GEOMETRY = ("size", "position", "direction")
# The flags of each picture, 0 or 1: which edits it gets, what light and blur act on, and whether what is behind the
# object shows, so that the object's place must be filled.
FLAGS = (*KINDS, "light on object", "light on background", "blur of object", "blur of background", "filled")


class BatchEdit(nn.Module):
    """Edits of the objects in a batch of pictures; each picture gets its own, drawn from one mixture.

    backgrounds: (K, 3, H, W) pictures to put behind objects and to hide them with, uint8 or in [0, 1]; without them
    the other pictures of the batch serve, their objects filled smoothly from what surrounds them.

    For training on a GPU call `compile()` first: the first batch then takes a minute, every other a fraction of its
    time.

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
        self._compiled: Callable[..., tuple[Tensor, Tensor]] | None = None

    def compile(self, **options: Any) -> None:  # type: ignore[override]
        """Compiles the edits with `torch.compile`, to which the options go; the draws stay outside."""
        self._compiled = torch.compile(edit_batch, **options)

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
        draws = self.draw(len(images), generator) if draws is None else draws
        may = np.ones(len(images), bool) if usable is None else np.asarray(usable, bool)
        rows = np.flatnonzero(draws.kinds.any(axis=1) & may)
        if not len(rows):
            return images, masks
        # One compiled graph serves every batch: all pictures go through all edits of the mixture, by flags of 0 and 1.
        compiled = self._compiled is not None
        rows = np.arange(len(images)) if compiled else rows
        draws = draws[rows]
        usual = self.mixture.weights if compiled else {}
        lenders = np.flatnonzero(may)
        donor = draws.of("donor")
        donors = np.stack([self._donors(one, rows, lenders) for one in (donor, 1 - donor - 1e-6)], axis=1)
        if self.backgrounds is None:
            donors[:, 0] = np.where(draws.has("background"), donors[:, 0], rows)
        some = [np.flatnonzero(draws.has(*kinds)) for kinds in (("blur",), GEOMETRY, ("occlusion",))]
        # At least two rows: a compiler makes graphs of their own for none and for one.
        some = [one if len(one) > 1 else np.append(one, [0, 0])[:2] for one in some]

        def there(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(images.device, non_blocking=True)

        blurs, moves, hides = (there(one) for one in some)
        table = (there(donors), there(draws.numbers), there(_flags(draws, may[rows])), blurs, moves, hides)
        if compiled:
            for one in (images, masks, removed, *table):
                if one is not None:  # the number of pictures may change from batch to batch, their size does not
                    torch._dynamo.maybe_mark_dynamic(one, 0)
        edited, visible = (self._compiled or edit_batch)(
            images,
            masks,
            removed,
            self.backgrounds,
            None if compiled else there(rows),
            *table,
            frozenset(kind for kind in KINDS if usual.get(kind) or draws.has(kind).any()),
        )
        if compiled:
            return edited, visible
        out, moved, at = images.clone(), masks.clone(), there(rows)
        out[at], moved[at] = edited, visible
        return out, moved

    def _donors(self, drawn: np.ndarray, rows: np.ndarray, lenders: np.ndarray) -> np.ndarray:
        """(n,): which picture lends its background to each row, for draws in [0, 1)."""
        if self.backgrounds is not None:
            return (drawn * len(self.backgrounds)).astype(np.int64)
        # Any other lender: so many steps further along the list, which never comes back to the picture itself.
        steps = 1 + (drawn * max(len(lenders) - 1, 1)).astype(np.int64)
        return lenders[(np.searchsorted(lenders, rows) + steps) % len(lenders)]


def edit_batch(
    images: Tensor,
    masks: Tensor,
    removed: Tensor | None,
    bank: Tensor | None,
    rows: Tensor | None,
    donors: Tensor,
    numbers: Tensor,
    flags: Tensor,
    blurs: Tensor,
    moves: Tensor,
    hides: Tensor,
    stages: frozenset[str],
) -> tuple[Tensor, Tensor]:
    """The edited pictures of n rows (None: of all rows) and the masks of what is visible of their objects.

    donors: (n, 2) which pictures' backgrounds show behind the object and in the patch that hides it; numbers: (n, 12),
    in the order of NUMBERS; flags: (n, 13) float, in the order of FLAGS; blurs, moves, hides: which of the
    n rows are blurred, change their place and are hidden in part, and perhaps others; stages: the edits that any row
    gets.
    """
    given, masks = masks, masks.unsqueeze(1) if masks.ndim == 3 else masks
    number = dict(zip(NUMBERS, numbers.unbind(1), strict=True))
    flag = dict(zip(FLAGS, flags.unbind(1), strict=True))

    def has(name: str) -> Tensor:
        return flag[name].view(-1, 1, 1, 1) > 0

    scale = torch.where(masks.amax(dim=(1, 2, 3), keepdim=True) > 1, 255.0, 1.0)
    objects = _alpha(masks, scale)
    fills = smooth_fills(_unit(images), objects) if removed is None else _unit(removed)

    def behind(place: Tensor | None) -> Tensor:
        """The pictures at these places without their objects."""
        fill = fills if place is None else fills[place]
        if removed is not None:
            return fill
        return torch.lerp(_unit(images if place is None else images[place]), fill[:, :3], fill[:, 3:])

    def lent(donor: Tensor) -> Tensor:
        if bank is None:
            return behind(donor)
        picked = _unit(bank[donor])
        if picked.shape[-2:] == images.shape[-2:]:
            return picked
        return nnf.interpolate(picked, images.shape[-2:], mode="bilinear", antialias=True)

    def of_rows(every: Tensor) -> Tensor:
        return every if rows is None else every[rows]

    original, alpha = _unit(of_rows(images)), of_rows(objects)
    front, back = original, torch.where(has("filled"), behind(donors[:, 0] if bank is None else rows), original)
    if bank is not None:
        back = torch.where(has("background"), lent(donors[:, 0]), back)
    if "lighting" in stages:
        front = relit(front, number["lighting"] * flag["light on object"])
        back = relit(back, number["lighting"] * flag["light on background"])
    if "color" in stages:
        front = recolored(front, number["color"] * flag["color"], 1 + (number["saturation"] - 1) * flag["color"])
    layer = torch.cat([front * alpha, alpha], dim=1)
    if "blur" in stages:
        sharp, sharp_back, of_back = layer[blurs], back[blurs], has("blur of background")[blurs]
        opaque = torch.cat([sharp_back, torch.ones_like(sharp_back[:, :1])], dim=1)
        soft = blurred(torch.where(of_back, opaque, sharp), number["blur"][blurs] * (max(images.shape[-2:]) / 256))
        back = back.index_copy(0, blurs, torch.where(of_back, soft[:, :3], sharp_back))
        layer = layer.index_copy(0, blurs, torch.where(has("blur of object")[blurs], soft, sharp))
    if stages & set(GEOMETRY):
        ways = torch.stack([flag[name] for name in GEOMETRY], dim=1)[moves]
        shape = (images.shape[-2], images.shape[-1])
        maps, factor = placements(*outlines(alpha[moves]), shape, ways, numbers[moves][:, :4])
        still = layer[moves]
        moved = torch.where(ways.amax(1).view(-1, 1, 1, 1) > 0, warped(still, maps, factor), still)
        layer = layer.index_copy(0, moves, moved)
    # A picture without an edit or without an object stays as it is.
    changed = (flags[:, : len(KINDS)].amax(1) > 0) & (alpha.amax(dim=(1, 2, 3)) > 0.5)
    changed, scale = changed.view(-1, 1, 1, 1), of_rows(scale)
    pictures = torch.addcmul(layer[:, :3], 1 - layer[:, 3:], back)
    pictures = torch.where(changed, _like(pictures, images), of_rows(images))
    visible = torch.where(changed, _mask_like(layer[:, 3:], masks, scale), of_rows(masks))
    if "occlusion" in stages:
        seen = layer[hides, 3:]
        patch = covers(seen, torch.stack([number[name][hides] for name in ("occlusion", "place", "tilt")], dim=1))
        patch = patch * (has("occlusion") & changed)[hides].to(patch.dtype)
        hidden = torch.lerp(_unit(pictures[hides]), lent(donors[hides, 1]), patch)
        pictures = pictures.index_copy(0, hides, _like(hidden, images))
        left = _mask_like(seen * (1 - patch), masks, scale[hides])
        visible = visible.index_copy(0, hides, torch.where(changed[hides], left, visible[hides]))
    return pictures, visible.view_as(of_rows(given))


def _flags(draws: Draws, may: np.ndarray) -> np.ndarray:
    """(n, 13) float32: the flags of each picture in the order of FLAGS; all 0 where a picture must not be edited."""
    lit, soft = draws.has("lighting"), draws.has("blur")
    of_back = soft & (draws.blurred == BACKGROUND)
    more = (lit & (draws.lit != BACKGROUND), lit & (draws.lit != OBJECT), soft & ~of_back, of_back)
    filled = draws.has("background", *GEOMETRY) | of_back
    flags: np.ndarray = np.column_stack([draws.kinds, *more, filled]) & may[:, None]
    return flags.astype(np.float32)


def _alpha(masks: Tensor, scale: Tensor) -> Tensor:
    """(N, 1, H, W): 1 inside the object, with a rim of a pixel that fades inwards."""
    unit = masks.float()
    if not masks.is_floating_point() and masks.dtype != torch.bool:
        unit = unit / scale
    # Steep around one half: an object is where its mask is above that, the half-known border of a trimap too.
    solid = (unit * 8 - 3).clamp(0, 1)
    return _unit(torch.minimum(solid, nnf.avg_pool2d(solid, 3, 1, 1, count_include_pad=False)))


def _unit(pictures: Tensor) -> Tensor:
    """The pictures in [0, 1]; on a GPU in half precision, which keeps all 256 levels at half the traffic."""
    unit = pictures.float() / 255 if pictures.dtype == torch.uint8 else pictures
    return unit.half() if pictures.is_cuda else unit.float()


def _like(pictures: Tensor, before: Tensor) -> Tensor:
    if before.dtype == torch.uint8:
        return (pictures.float() * 255).round().clamp(0, 255).to(torch.uint8)
    return pictures.to(before.dtype)


def _mask_like(alpha: Tensor, before: Tensor, scale: Tensor) -> Tensor:
    if before.dtype == torch.bool:
        return alpha > 0.5
    if not before.is_floating_point():
        alpha = torch.where(scale > 1, (alpha * scale).round(), (alpha > 0.5).float())
    return alpha.to(before.dtype)
