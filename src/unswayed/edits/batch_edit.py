"""`BatchEdit`: attribute edits of a whole batch at once, on the device where the batch lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from unswayed.errors import UserError

from . import EDITS
from .blur import blurred_batch
from .color import recolored_batch
from .layers import without_object
from .lighting import lit_batch
from .mixture import BACKGROUND, KINDS, NUMBERS, OBJECT, Draws, EditMixture, draw
from .occlusion import hiding_batch
from .placement import outlines, placements, smooth_fills, warped
from .random_edit import drawn_edit, edited_by_others
from .weather import Weather, weathered_batch

GEOMETRY = ("size", "position", "direction")
# The flags of each picture, 0 or 1: which edits it gets, what light and blur act on, and whether what is behind the
# object shows, so that the object's place must be filled.
FLAGS = (*KINDS, "light on object", "light on background", "blur of object", "blur of background", "filled")
# The rows that some edits are computed for: those that get one of these.
SOME = (("lighting",), ("color",), ("blur",), GEOMETRY, ("occlusion",))


class BatchEdit(nn.Module):
    """Edits of the objects in a batch of pictures; each picture gets its own, drawn from one mixture.

    backgrounds: (K, 3, H, W) pictures to put behind objects and to hide them with, uint8 or in [0, 1]; without them
    the other pictures of the batch serve, their objects filled smoothly from what surrounds them.

    For training on a GPU call `compile()` first: the first batch then takes a minute, every other a fraction of its
    time. Weather follows in one operation for each kind; edits of other packages are made one picture at a time on the
    CPU, after the others.

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
            given = f"the backgrounds have the shape {tuple(backgrounds.shape)}"
            raise UserError(given, allowed="(K, 3, H, W), at least one")
        self.register_buffer("backgrounds", backgrounds, persistent=False)
        self._compiled: Callable[..., tuple[Tensor, Tensor]] | None = None

    def compile(self, **options: Any) -> None:
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
        edited, visible = self._edited(images, masks, removed, draws, may)
        others = np.flatnonzero(draws.kinds[:, len(KINDS) :].any(axis=1) & may)
        return self._by_others(images, masks, edited, visible, draws, others)

    def _edited(
        self, images: Tensor, masks: Tensor, removed: Tensor | None, draws: Draws, may: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """The pictures after the edits of this package, as one operation on the device."""
        rows = np.flatnonzero(draws.kinds[:, : len(KINDS)].any(axis=1) & may)
        if not len(rows):
            return images, masks
        # One compiled graph serves every batch: all pictures go through all edits of the mixture, by flags of 0 and 1.
        compiled = self._compiled is not None
        rows = np.arange(len(images)) if compiled else rows
        draws = draws[rows]
        usual = self.mixture.weights if compiled else {}
        some = [np.flatnonzero(draws.has(*kinds)) for kinds in SOME]
        # At least two rows: a compiler makes graphs of their own for none and for one.
        some = [places if len(places) > 1 else np.append(places, [0, 0])[:2] for places in some]

        def there(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(images.device, non_blocking=True)

        arrays = (self._donors(draws, rows, np.flatnonzero(may)), draws.numbers, _flags(draws, may[rows]), *some)
        table = [there(array) for array in arrays]
        stages = frozenset(kind for kind in KINDS if usual.get(kind) or draws.has(kind).any())
        if self._compiled is not None:
            for tensor in (images, masks, removed, *table):
                if tensor is not None:  # the number of pictures may change from batch to batch, their size does not
                    torch._dynamo.maybe_mark_dynamic(tensor, 0)
            return self._compiled(images, masks, removed, self.backgrounds, None, *table, stages=stages)
        out, moved, at = images.clone(), masks.clone(), there(rows)
        out[at], moved[at] = edit_batch(images, masks, removed, self.backgrounds, at, *table, stages=stages)
        return out, moved

    def _donors(self, draws: Draws, rows: np.ndarray, lenders: np.ndarray) -> np.ndarray:
        """(n, 2): which pictures lend their backgrounds to each row, to lie behind its object and to hide it."""
        drawn = draws.of("donor")
        shares = np.stack([drawn, 1 - drawn - 1e-6], axis=1)
        if self.backgrounds is not None:
            return (shares * len(self.backgrounds)).astype(np.int64)
        # Another lender: so many steps further along the list, which never comes back to the picture itself.
        steps = 1 + (shares * max(len(lenders) - 1, 1)).astype(np.int64)
        donors = lenders[(np.searchsorted(lenders, rows)[:, None] + steps) % len(lenders)]
        donors[:, 0] = np.where(draws.has("background"), donors[:, 0], rows)
        return donors

    def _by_others(
        self, images: Tensor, masks: Tensor, edited: Tensor, visible: Tensor, draws: Draws, rows: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """The pictures after weather, and after edits without an operation on batches, by their operation on arrays."""
        edited, visible = (edited.clone(), visible.clone()) if len(rows) else (edited, visible)
        scale = torch.where(masks.flatten(1).amax(1) > 1, 255.0, 1.0)
        kinds = draws.kinds.copy()
        for number, name in enumerate(draws.others, len(KINDS)):
            chosen = rows[kinds[rows, number]]
            if not len(chosen) or not issubclass(EDITS.load(name), Weather):
                continue
            kinds[:, number] = False
            at, shares = torch.from_numpy(chosen).to(images.device), draws.shares[chosen, number - len(KINDS)]
            weathers = [cast(Weather, drawn_edit(name, float(share), self.mixture)) for share in shares]
            severity = np.array([weather.severity for weather in weathers])
            seed = np.array([weather.seed(f"{float(share)}") for weather, share in zip(weathers, shares, strict=True)])
            alpha = visible[at].float().view(len(chosen), 1, *images.shape[-2:])
            alpha = alpha if masks.is_floating_point() else alpha / scale[at].view(-1, 1, 1, 1)
            pictures = weathered_batch(weathers[0], _unit(edited[at]), alpha, severity, seed)
            edited[at] = _like(pictures, images.dtype)
        draws = replace(draws, kinds=kinds)
        for row in rows[kinds[rows, len(KINDS) :].any(axis=1)].tolist():
            drawn, other = draws.of("donor")[row], None
            donor = (row + 1 + int(drawn * (len(images) - 1))) % len(images)
            if self.backgrounds is not None:
                other = _pixels(self.backgrounds[int(drawn * len(self.backgrounds))])
            elif donor != row:
                other = without_object(_pixels(images[donor]), _solid(masks[donor], float(scale[donor])))
            before = _solid(visible[row], float(scale[row]))
            image, mask = edited_by_others(_pixels(edited[row]), before, draws[row : row + 1], self.mixture, other)
            picture = torch.from_numpy(image).permute(2, 0, 1).to(images.device)
            edited[row] = picture if images.dtype == torch.uint8 else picture.to(images.dtype) / 255
            alpha = torch.from_numpy(mask).to(images.device).view(visible[row].shape)
            visible[row] = _mask_like(alpha, masks, scale[row].to(alpha.device))
        return edited, visible


class _Behind:
    """What lies behind the objects of a batch: the pictures filled, given without their objects, or lent."""

    def __init__(self, images: Tensor, objects: Tensor, removed: Tensor | None, bank: Tensor | None) -> None:
        self.images, self.removed, self.bank = images, removed, bank
        self.fills = smooth_fills(_unit(images), objects) if removed is None else _unit(removed)

    def of(self, rows: Tensor | None) -> Tensor:
        """The pictures of these rows (None: all) without their objects."""
        fill = self.fills if rows is None else self.fills[rows]
        if self.removed is not None:
            return fill
        return torch.lerp(_unit(self.images if rows is None else self.images[rows]), fill[:, :3], fill[:, 3:])

    def lent(self, donors: Tensor) -> Tensor:
        """The backgrounds that the donors lend: pictures of the batch, or of the bank if there is one."""
        if self.bank is None:
            return self.of(donors)
        picked = _unit(self.bank[donors])
        if picked.shape[-2:] == self.images.shape[-2:]:
            return picked
        return nnf.interpolate(picked, self.images.shape[-2:], mode="bilinear", antialias=True)


def edit_batch(
    images: Tensor,
    masks: Tensor,
    removed: Tensor | None,
    bank: Tensor | None,
    rows: Tensor | None,
    donors: Tensor,
    numbers: Tensor,
    flags: Tensor,
    *some: Tensor,
    stages: frozenset[str],
) -> tuple[Tensor, Tensor]:
    """The edited pictures of n rows (None: of all rows) and the masks of what is visible of their objects.

    donors: (n, 2) which pictures' backgrounds show behind the object and in the patch that hides it; numbers: (n, 12),
    in the order of NUMBERS; flags: (n, 13) float, in the order of FLAGS; some: in the order of SOME, which of the n
    rows get these edits, and perhaps others; stages: the edits that any row gets.
    """
    lights, colors, blurs, moves, hides = some
    given, masks = masks, masks.unsqueeze(1) if masks.ndim == 3 else masks
    number = dict(zip(NUMBERS, numbers.unbind(1), strict=True))
    flag = {name: column.view(-1, 1, 1, 1) for name, column in zip(FLAGS, flags.unbind(1), strict=True)}
    scale = torch.where(masks.amax(dim=(1, 2, 3), keepdim=True) > 1, 255.0, 1.0)
    objects = _alpha(masks, scale)
    behind = _Behind(images, objects, removed, bank)
    before, alpha, seen, scale = (part if rows is None else part[rows] for part in (images, objects, masks, scale))
    front = _unit(before)
    back = torch.where(flag["filled"] > 0, behind.of(donors[:, 0] if bank is None else rows), front)
    if bank is not None:
        back = torch.where(flag["background"] > 0, behind.lent(donors[:, 0]), back)
    if "lighting" in stages:
        on_object, on_back = (flag[f"light on {part}"].flatten() for part in ("object", "background"))
        front = front.index_copy(0, lights, lit_batch(front[lights], (on_object * number["lighting"])[lights]))
        back = back.index_copy(0, lights, lit_batch(back[lights], (on_back * number["lighting"])[lights]))
    if "color" in stages:
        turned = recolored_batch(front[colors], number["color"][colors], number["saturation"][colors])
        front = front.index_copy(0, colors, torch.where(flag["color"][colors] > 0, turned, front[colors]))
    layer = torch.cat([front * alpha, alpha], dim=1)
    if "blur" in stages:
        layer, back = _soft(layer, back, number["blur"], flag, blurs)
    if stages & set(GEOMETRY):
        layer = layer.index_copy(0, moves, _placed(layer[moves], alpha[moves], numbers[moves], flags[moves]))
    # A picture without an edit or without an object stays as it is.
    changed = ((flags[:, : len(KINDS)].amax(1) > 0) & (alpha.amax(dim=(1, 2, 3)) > 0.5)).view(-1, 1, 1, 1)
    pictures = torch.addcmul(layer[:, :3], 1 - layer[:, 3:], back)
    pictures = torch.where(changed, _like(pictures, images.dtype), before)
    visible = torch.where(changed, _mask_like(layer[:, 3:], masks, scale), seen)
    if "occlusion" in stages:
        shown = layer[hides, 3:]
        patch = hiding_batch(shown, *(number[name][hides] for name in ("occlusion", "place", "tilt")))
        patch = patch * ((flag["occlusion"] > 0) & changed)[hides].to(patch.dtype)
        hidden = torch.lerp(_unit(pictures[hides]), behind.lent(donors[hides, 1]), patch)
        pictures = pictures.index_copy(0, hides, _like(hidden, images.dtype))
        left = _mask_like(shown * (1 - patch), masks, scale[hides])
        visible = visible.index_copy(0, hides, torch.where(changed[hides], left, visible[hides]))
    return pictures, visible.view_as(given if rows is None else given[rows])


def _soft(layer: Tensor, back: Tensor, radius: Tensor, flag: dict[str, Tensor], blurs: Tensor) -> tuple[Tensor, Tensor]:
    """The objects' layers (n, 4, H, W) and the backgrounds (n, 3, H, W), blurred where their flags say so."""
    sharp, sharp_back, of_back = layer[blurs], back[blurs], flag["blur of background"][blurs] > 0
    # A background that still holds the object is blurred without it.
    own = torch.where(flag["filled"][blurs] > 0, torch.ones_like(sharp[:, 3:]), 1 - sharp[:, 3:])
    chosen = torch.where(of_back, torch.cat([sharp_back * own, own], dim=1), sharp)
    soft = blurred_batch(chosen, radius[blurs] * (max(layer.shape[-2:]) / 256))
    mixed = torch.where(soft[:, 3:] > 1e-4, soft[:, :3] / soft[:, 3:].clamp(min=1e-4), sharp_back)
    back = back.index_copy(0, blurs, torch.where(of_back, mixed, sharp_back))
    return layer.index_copy(0, blurs, torch.where(flag["blur of object"][blurs] > 0, soft, sharp)), back


def _placed(layer: Tensor, alpha: Tensor, numbers: Tensor, flags: Tensor) -> Tensor:
    """The layers (n, 4, H, W) at their new size, place and direction, where their flags say so."""
    ways = torch.stack([flags[:, FLAGS.index(name)] for name in GEOMETRY], dim=1)
    maps, factor = placements(*outlines(alpha), (layer.shape[-2], layer.shape[-1]), ways, numbers[:, :4])
    return torch.where(ways.amax(1).view(-1, 1, 1, 1) > 0, warped(layer, maps, factor), layer)


def _flags(draws: Draws, may: np.ndarray) -> np.ndarray:
    """(n, 13) float32: the flags of each picture in the order of FLAGS; all 0 where a picture must not be edited."""
    lit, soft = draws.has("lighting"), draws.has("blur")
    of_back = soft & (draws.blurred == BACKGROUND)
    more = (lit & (draws.lit != BACKGROUND), lit & (draws.lit != OBJECT), soft & ~of_back, of_back)
    filled = draws.has("background", *GEOMETRY) | (soft & ~of_back)
    flags: np.ndarray = np.column_stack([draws.kinds[:, : len(KINDS)], *more, filled]) & may[:, None]
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


def _like(pictures: Tensor, before: torch.dtype) -> Tensor:
    if before != torch.uint8 or pictures.dtype == torch.uint8:
        return pictures.to(before)
    return (pictures.float() * 255).round().clamp(0, 255).to(torch.uint8)


def _mask_like(alpha: Tensor, before: Tensor, scale: Tensor) -> Tensor:
    if before.dtype == torch.bool:
        return alpha > 0.5
    if not before.is_floating_point():
        alpha = torch.where(scale > 1, (alpha * scale).round(), (alpha > 0.5).float())
    return alpha.to(before.dtype)


def _pixels(picture: Tensor) -> np.ndarray:
    """(H, W, 3) uint8 of one picture (3, H, W), uint8 or in [0, 1]."""
    return np.ascontiguousarray(_like(picture, torch.uint8).permute(1, 2, 0).cpu().numpy())


def _solid(mask: Tensor, scale: float) -> np.ndarray:
    """(H, W) float32 in [0, 1] of one mask."""
    values = mask.float().reshape(mask.shape[-2:]).cpu().numpy()
    return values if mask.is_floating_point() or mask.dtype == torch.bool else values / np.float32(scale)
