"""`RandomEdit`: attribute edits of one picture in a DataLoader worker, in the style of torchvision's v2 transforms."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from unswayed.errors import UserError
from unswayed.scene import Scene, frame
from unswayed.sources import Source, open_source
from unswayed.sources.pictures import read_picture

from . import EDITS
from .blur import blurred
from .color import recolored
from .composition import Composition, Impossible, Original, PictureReference, Pool, WithoutObject
from .edit import Choice, Edit, Range, allowed
from .geometry import resized
from .layers import composite, drawn_picture, over, realize, without_object
from .lighting import lit
from .mixture import BACKGROUND, KINDS, NUMBERS, OBJECT, Draws, EditMixture, draw
from .occlusion import hiding_batch
from .placement import GRID, placements

REMEMBERED = 16
AnyPicture: TypeAlias = tv_tensors.Image | Image.Image
Lender: TypeAlias = str | Path | np.ndarray | Image.Image


class RandomEdit(v2.Transform):
    """Edits the object of a picture at random; takes and returns a picture with its mask, and anything beside them.

    backgrounds: pictures to put behind objects and to hide them with: files, (H, W, 3) uint8 arrays or PIL pictures.
    Without them the pictures that this worker has seen shortly before serve, their objects filled smoothly from what
    surrounds them.

    A sample is any nest of tuples, lists and dicts that holds one picture (PIL, or `tv_tensors.Image`, uint8 or in
    [0, 1]) and one `tv_tensors.Mask` (bool, 0 and 1, or 0 to 255). It belongs before any normalization. Draws come
    from torch's own generator, which a DataLoader seeds for each worker.

    >>> image = tv_tensors.Image(torch.full((3, 64, 64), 128, dtype=torch.uint8))
    >>> mask = tv_tensors.Mask(torch.zeros(64, 64, dtype=torch.bool))
    >>> mask[20:40, 20:40] = True
    >>> edited, moved, label = RandomEdit(EditMixture(probability=1.0))(image, mask, 3)
    >>> edited.shape, moved.dtype, label
    (torch.Size([3, 64, 64]), torch.bool, 3)
    """

    def __init__(self, mixture: EditMixture | None = None, backgrounds: Sequence[Lender] | None = None) -> None:
        super().__init__()
        self.mixture = mixture or EditMixture()
        if backgrounds is not None and not len(backgrounds):
            raise UserError("the list of backgrounds is empty", allowed="at least one picture, or None")
        self.backgrounds = backgrounds
        self.seen: deque[np.ndarray] = deque(maxlen=REMEMBERED)

    def forward(self, *inputs: object) -> object:
        """The sample with its picture and its mask edited; a picture without an object is left as it is."""
        flat, structure = pytree.tree_flatten(inputs if len(inputs) > 1 else inputs[0])
        pictures = [index for index, leaf in enumerate(flat) if isinstance(leaf, tv_tensors.Image | Image.Image)]
        masks = [index for index, leaf in enumerate(flat) if isinstance(leaf, tv_tensors.Mask)]
        if len(pictures) != 1 or len(masks) != 1:
            raise UserError(
                f"RandomEdit was given {len(pictures)} pictures and {len(masks)} masks",
                allowed="one picture (PIL or tv_tensors.Image) and one tv_tensors.Mask, and anything else beside them",
            )
        flat[pictures[0]], flat[masks[0]] = self._edited(flat[pictures[0]], flat[masks[0]])
        return pytree.tree_unflatten(flat, structure)

    def _edited(self, picture: AnyPicture, mask: tv_tensors.Mask) -> tuple[AnyPicture, tv_tensors.Mask]:
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        may_borrow = self.backgrounds is not None or bool(self.seen)
        draws = draw(1, self.mixture, rng, () if may_borrow else BORROWERS)
        remembers = self.backgrounds is None and any(self.mixture.weights.get(kind) for kind in BORROWERS)
        edits = bool(draws.kinds.any())
        # One picture in four is remembered even if it is not edited itself: to fill its object costs time.
        if not edits and not (remembers and rng.random() < 0.25):
            return picture, mask
        image, alpha, scale = _array(picture), rim(_unit(mask)), 255 if int(mask.max()) > 1 else 1
        if image.shape[:2] != alpha.shape:
            raise UserError(
                f"the mask is {alpha.shape[1]}×{alpha.shape[0]}, its picture {image.shape[1]}×{image.shape[0]}",
                allowed="a mask of its picture's size",
            )
        if alpha.max() <= 0.5:
            return picture, mask
        borrows = bool(draws.kinds[0, len(KINDS) :].any()) or draws.has(*BORROWERS)[0]
        other = self._background(image.shape, rng) if may_borrow and borrows else None
        soft = draws.has("blur")[0] and draws.blurred[0] == OBJECT
        shows_behind = edits and (soft or draws.has("size", "position", "direction")[0])
        own = without_object(image, alpha) if shows_behind or (remembers and not edits) else None
        if own is not None and remembers:
            self.seen.append(own)
        if not edits:
            return picture, mask
        edited, visible = edit_one(image, alpha, draws, own, other)
        edited, visible = edited_by_others(edited, visible, draws, self.mixture, other)
        shown = _mask_like(visible, mask, scale)
        if isinstance(picture, Image.Image):
            return Image.fromarray(edited), shown
        pixels = torch.from_numpy(edited).permute(2, 0, 1).contiguous()
        return tv_tensors.wrap(functional.to_dtype(pixels, picture.dtype, scale=True), like=picture), shown

    def _background(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """A background that covers the picture's shape: the middle of one that was given or seen."""
        bank: Sequence[Lender] = self.backgrounds if self.backgrounds is not None else self.seen
        picture = bank[int(rng.integers(len(bank)))]
        array = read_picture(picture) if isinstance(picture, str | Path) else np.asarray(picture)
        if array.shape == shape:
            return array
        high, wide, _ = shape
        factor = max(high / array.shape[0], wide / array.shape[1])
        size = max(round(array.shape[1] * factor), wide), max(round(array.shape[0] * factor), high)
        grown = cv2.resize(array, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR)
        top, left = (grown.shape[0] - high) // 2, (grown.shape[1] - wide) // 2
        return np.ascontiguousarray(grown[top : top + high, left : left + wide])


BORROWERS = ("background", "occlusion")


def _array(picture: AnyPicture) -> np.ndarray:
    """(H, W, 3) uint8."""
    if isinstance(picture, Image.Image):
        return np.asarray(picture.convert("RGB"))
    pixels = functional.to_dtype(picture.as_subclass(torch.Tensor), torch.uint8, scale=True)
    if pixels.ndim != 3 or pixels.shape[0] != 3:
        raise UserError(f"the picture has the shape {tuple(picture.shape)}", allowed="(3, H, W); BatchEdit for batches")
    return np.ascontiguousarray(pixels.permute(1, 2, 0).numpy())


def _unit(mask: tv_tensors.Mask) -> np.ndarray:
    """(H, W) float32 in [0, 1]."""
    array = mask.as_subclass(torch.Tensor).numpy()
    array = array.reshape(array.shape[-2:]) if array.ndim == 3 and array.shape[0] == 1 else array
    if array.ndim != 2:
        raise UserError(f"the mask has the shape {array.shape}", allowed="(H, W) or (1, H, W)")
    values = array.astype(np.float32)
    return values / 255 if array.dtype.kind in "iu" and values.max() > 1 else values


def _mask_like(alpha: np.ndarray, before: tv_tensors.Mask, scale: int) -> tv_tensors.Mask:
    values = torch.from_numpy(alpha).view(before.shape)
    if not before.dtype.is_floating_point:
        values = (values * 255).round() if scale == 255 else values > 0.5
    return tv_tensors.wrap(values.to(before.dtype), like=before)


def edit_one(
    image: np.ndarray, alpha: np.ndarray, draws: Draws, own: np.ndarray | None, other: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The edited picture, (H, W, 3) uint8, and the alpha of what is visible of its object, (H, W) float32.

    image: (H, W, 3) uint8; alpha: (H, W) float32 from `rim`; draws: of one picture; own: the picture without its
    object, filled smoothly if None; other: another picture without its object, which `background` and `occlusion`
    need. The draws and places are those of a batch, the operations on pixels those of the edits.
    """
    of = dict(zip(NUMBERS, draws.numbers[0].tolist(), strict=True))
    kinds = dict(zip(KINDS, draws.kinds[0].tolist(), strict=False))
    radius = of["blur"] * max(alpha.shape) / 256 if kinds["blur"] else 0.0
    defocused = radius > 0 and draws.blurred[0] == BACKGROUND
    geometric = kinds["size"] or kinds["position"] or kinds["direction"]
    layered = geometric or (radius > 0 and not defocused)
    front, back = image, image
    if kinds["background"]:
        assert other is not None
        back = other
    elif layered:
        back = without_object(image, alpha) if own is None else own
    weight = 1 - alpha if back is image else np.ones_like(alpha)
    if kinds["lighting"]:
        back = lit(back, weight, of["lighting"])[0] if draws.lit[0] != OBJECT else back
        front = lit(front, alpha, of["lighting"])[0] if draws.lit[0] != BACKGROUND else front
    if defocused:
        back = blurred(back, weight, radius)[0]
    if kinds["color"]:
        window = _window(alpha, 0)
        front = front.copy()
        front[window] = recolored(front[window], alpha[window], of["color"], of["saturation"])[0]
    if layered:
        layer, window = _layer(front, alpha, kinds if geometric else {}, of, 0.0 if defocused else radius)
        share = np.ascontiguousarray(layer[..., 3])
        behind = cv2.multiply(np.ascontiguousarray(back[window]), cv2.merge([1 - share] * 3), dtype=cv2.CV_32F)
        picture, visible = back.copy(), np.zeros_like(alpha)
        picture[window] = cv2.add(np.ascontiguousarray(layer[..., :3]), behind, dtype=cv2.CV_8U)
        visible[window] = share
    else:
        visible = alpha
        picture = over(front, alpha, back) if front is not back else image
    if kinds["occlusion"]:
        assert other is not None
        numbers = (torch.tensor([of[name]]) for name in ("occlusion", "place", "tilt"))
        patch = hiding_batch(torch.from_numpy(visible)[None, None], *numbers)[0, 0].numpy()
        picture, visible = over(other, patch, picture), visible * (1 - patch)
    return picture, visible


def rim(mask: np.ndarray) -> np.ndarray:
    """The alpha (H, W) float32 of a mask (H, W) float32 in [0, 1]: the object with a rim that fades inwards."""
    solid = np.clip(mask * 8 - 3, 0, 1, dtype=np.float32)
    return cv2.min(solid, cv2.blur(solid, (3, 3)))


def _window(alpha: np.ndarray, margin: int) -> tuple[slice, slice]:
    """Rows and columns of the object and a margin around it."""
    left, top, broad, tall = cv2.boundingRect((alpha > 0).view(np.uint8))
    ends = (top, tall, alpha.shape[0]), (left, broad, alpha.shape[1])
    rows, columns = (slice(max(at - margin, 0), min(at + extent + margin, side)) for at, extent, side in ends)
    return rows, columns


def _layer(
    front: np.ndarray, alpha: np.ndarray, kinds: dict[str, bool], of: dict[str, float], radius: float
) -> tuple[np.ndarray, tuple[slice, slice]]:
    """The object blurred and placed, (h, w, 4) float32 with colors premultiplied by alpha, and the window of the
    picture that it lands on; kinds: empty if it stays at its place."""
    rows, columns = cut = _window(alpha, 2 + int(np.ceil(radius)))
    colors, share = blurred(front[cut], alpha[cut], radius)
    colors = cv2.multiply(colors, cv2.merge([share] * 3), dtype=cv2.CV_32F)
    layer = cv2.merge([*cv2.split(colors), share])
    if not kinds:
        return layer, cut
    ways = torch.tensor([[kinds["size"], kinds["position"], kinds["direction"]]], dtype=torch.float32)
    numbers = torch.tensor([[of["size"], of["x"], of["y"], of["direction"]]])
    solid = (alpha > 0.5).view(np.uint8)
    inside = torch.from_numpy(cv2.resize(solid * 255, (GRID, GRID), interpolation=cv2.INTER_AREA) > 0).view(1, -1)
    rate = torch.tensor([cv2.countNonZero(solid) / solid.size])
    high, wide = alpha.shape
    maps, factor = placements(inside, rate, (high, wide), ways, numbers)
    # From pixels of the canvas to pixels of the picture, counted from the upper left corner of the first pixel.
    back, shrink = maps[0].double().numpy() * np.array([1, 1, max(high, wide)]), min(float(factor[0]), 1.0)
    size = max(round(layer.shape[1] * shrink), 1), max(round(layer.shape[0] * shrink), 1)
    scale = np.array([size[0] / layer.shape[1], size[1] / layer.shape[0]])
    corners = np.array([[x, y] for x in (columns.start, columns.stop) for y in (rows.start, rows.stop)], dtype=float)
    landed = (corners - back[:, 2]) @ np.linalg.inv(back[:, :2]).T
    first = np.clip(np.floor(landed.min(axis=0)).astype(int) - 1, 0, [wide - 1, high - 1])
    last = np.clip(np.ceil(landed.max(axis=0)).astype(int) + 1, first + 1, [wide, high])
    if size != layer.shape[1::-1]:
        layer = cv2.resize(layer, size, interpolation=cv2.INTER_AREA)
    # OpenCV counts pixels by their middles.
    corner = back[:, :2] @ (first + 0.5) + back[:, 2] - np.array([columns.start, rows.start])
    matrix = np.column_stack([back[:, :2] * scale[:, None], corner * scale - 0.5])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    layer = cv2.warpAffine(layer, matrix, tuple((last - first).tolist()), flags=flags)
    return layer, (slice(first[1], last[1]), slice(first[0], last[0]))


def edited_by_others(
    image: np.ndarray, mask: np.ndarray, draws: Draws, mixture: EditMixture, other: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The picture (H, W, 3) uint8 and its mask (H, W) float32 after the drawn edits of other packages.

    draws: of this picture alone; other: another picture without its object, of any square size, which some edits need.
    An edit that is not possible for the picture, or not without a network, leaves it as it is.
    """
    chosen = np.flatnonzero(draws.kinds[0, len(KINDS) :])
    high, wide = mask.shape
    side = max(high, wide)
    # Compositions are square: what is missing is mirrored, and cut off again.
    missing = (0, side - high), (0, side - wide)
    for index in chosen:
        if not (mask > 0.5).any():
            break
        share = float(draws.shares[0, index])
        own = f"{share}"  # patterns that follow from the photograph's name then follow from the draw
        square = Scene(own, np.pad(image, (*missing, (0, 0)), mode="symmetric"), np.pad(mask.clip(0, 1), missing))
        pool = Pool((own,) if other is None else (own, "other"), {own: square, "other": square}.__getitem__, side)
        edit = drawn_edit(draws.others[index], share, mixture)
        with contextlib.suppress(Impossible):
            composition = edit.apply(Composition.of(square), np.random.default_rng(int(share * 2**53)), pool)
            if composition.needs_network is None:
                layers = realize(composition, _Fills(side, other), 0)
                image = composite(layers.object, layers.alpha, layers.background)[:high, :wide]
                mask = layers.mask[:high, :wide]
    return np.ascontiguousarray(image), np.ascontiguousarray(mask)


def drawn_edit(name: str, share: float, mixture: EditMixture) -> Edit:
    """The edit of that name at a share in [0, 1) of its range; one whose main parameter is a text has its default."""
    edit, levels = EDITS.load(name), dict[str, object]()
    space = allowed(edit, edit.axis)
    if isinstance(space, Range):
        levels[edit.axis] = space.at(share, *mixture.ranges.get(name, (space.low, space.high)))
    elif isinstance(space, Choice):
        levels[edit.axis] = space.names[int(share * len(space.names))]
    return edit(**levels)


class _Fills:
    """Backgrounds without a removal method: objects are filled smoothly, other scenes are one given picture."""

    def __init__(self, size: int, other: np.ndarray | None) -> None:
        self.size, self.other = size, other

    def resolve(self, reference: PictureReference, composition: Composition) -> np.ndarray:
        if isinstance(reference, Original):
            return composition.image
        if not isinstance(reference, WithoutObject):
            return drawn_picture(reference, self.size)
        if reference.scene_id == composition.scene_id:
            return without_object(composition.image, composition.mask)
        assert self.other is not None
        return resized(self.other, self.size)


class Scenes(Dataset[object]):
    """Samples (`tv_tensors.Image` (3, size, size) uint8, `tv_tensors.Mask` (size, size) in [0, 1], label).

    source: a Source, or what `open_source` opens, such as `folder:photos`. Each photograph is framed as a benchmark
    frames it: the largest square that holds the whole object. transform: is called with the three and returns the
    sample.

    >>> image, mask, label = Scenes("sample", size=64)[0]
    >>> image.shape, mask.shape, label
    (torch.Size([3, 64, 64]), torch.Size([64, 64]), 347)
    """

    def __init__(self, source: str | Source, size: int = 256, transform: Callable[..., object] | None = None) -> None:
        self.source = open_source(source) if isinstance(source, str) else source
        self.size, self.transform = size, transform

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, position: int) -> object:
        scene = frame(self.source[position])
        image = torch.from_numpy(resized(scene.image, self.size)).permute(2, 0, 1).contiguous()
        sample = tv_tensors.Image(image), tv_tensors.Mask(torch.from_numpy(resized(scene.mask, self.size))), scene.label
        return sample if self.transform is None else self.transform(*sample)
