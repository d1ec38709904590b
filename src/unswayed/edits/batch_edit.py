"""`BatchEdit`: attribute edits of a whole batch at once, on the device where the batch lies."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from unswayed.errors import UserError

from .mixture import BACKGROUND, KINDS, NUMBERS, OBJECT, Draws, EditMixture, draw
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
