"""`RandomEdit`: attribute edits of one picture in a DataLoader worker, in the style of torchvision's v2 transforms."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils import _pytree as pytree
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from unswayed.errors import UserError
from unswayed.sources.pictures import read_picture

from .mixture import EditMixture, draw
from .single import edit_one, rim, without_object

REMEMBERED = 16


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

    def __init__(
        self,
        mixture: EditMixture | None = None,
        backgrounds: Sequence[str | Path | np.ndarray | Image.Image] | None = None,
    ) -> None:
        super().__init__()
        self.mixture = mixture or EditMixture()
        if backgrounds is not None and not len(backgrounds):
            raise UserError("the list of backgrounds is empty", allowed="at least one picture, or None")
        self.backgrounds = backgrounds
        self.seen: deque[np.ndarray] = deque(maxlen=REMEMBERED)

    def forward(self, *inputs: Any) -> Any:
        """The sample with its picture and its mask edited; a picture without an object is left as it is."""
        sample = inputs if len(inputs) > 1 else inputs[0]
        flat, structure = pytree.tree_flatten(sample)
        pictures = [place for place, one in enumerate(flat) if isinstance(one, tv_tensors.Image | Image.Image)]
        masks = [place for place, one in enumerate(flat) if isinstance(one, tv_tensors.Mask)]
        if len(pictures) != 1 or len(masks) != 1:
            raise UserError(
                f"RandomEdit was given {len(pictures)} pictures and {len(masks)} masks",
                allowed="one picture (PIL or tv_tensors.Image) and one tv_tensors.Mask, and anything else beside them",
            )
        flat[pictures[0]], flat[masks[0]] = self._edited(flat[pictures[0]], flat[masks[0]])
        return pytree.tree_unflatten(flat, structure)

    def _edited(self, picture: Any, mask: tv_tensors.Mask) -> tuple[Any, tv_tensors.Mask]:
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        may_borrow = self.backgrounds is not None or bool(self.seen)
        draws = draw(1, self.mixture, rng, () if may_borrow else ("background", "occlusion"))
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
        other = self._background(image.shape, rng) if edits and draws.has(*BORROWERS)[0] else None
        moved_or_blurred = edits and draws.has("size", "position", "direction", "blur")[0]
        own = without_object(image, alpha) if moved_or_blurred or (remembers and not edits) else None
        if own is not None and remembers:
            self.seen.append(own)
        if not edits:
            return picture, mask
        edited, visible = edit_one(image, alpha, draws, own, other)
        return _picture_like(edited, picture), _mask_like(visible, mask, scale)

    def _background(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """A background that covers the picture's shape: the middle of one that was given or seen."""
        bank: Sequence[Any] = self.backgrounds if self.backgrounds is not None else self.seen
        one = bank[int(rng.integers(len(bank)))]
        array = read_picture(one) if isinstance(one, str | Path) else np.asarray(one)
        if array.shape == shape:
            return array
        factor = max(shape[0] / array.shape[0], shape[1] / array.shape[1])
        size = max(round(array.shape[1] * factor), shape[1]), max(round(array.shape[0] * factor), shape[0])
        grown = cv2.resize(array, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR)
        top, left = (grown.shape[0] - shape[0]) // 2, (grown.shape[1] - shape[1]) // 2
        return np.ascontiguousarray(grown[top : top + shape[0], left : left + shape[1]])


BORROWERS = ("background", "occlusion")


def _array(picture: Any) -> np.ndarray:
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


def _picture_like(image: np.ndarray, before: Any) -> Any:
    if isinstance(before, Image.Image):
        return Image.fromarray(image)
    pixels = torch.from_numpy(image).permute(2, 0, 1).contiguous()
    return tv_tensors.wrap(functional.to_dtype(pixels, before.dtype, scale=True), like=before)


def _mask_like(alpha: np.ndarray, before: tv_tensors.Mask, scale: int) -> tv_tensors.Mask:
    shape = torch.from_numpy(np.ascontiguousarray(alpha)).view(before.shape)
    if before.dtype == torch.bool:
        return tv_tensors.wrap(shape > 0.5, like=before)
    if before.dtype.is_floating_point:
        return tv_tensors.wrap(shape.to(before.dtype), like=before)
    values = (shape * 255).round() if scale == 255 else shape > 0.5
    return tv_tensors.wrap(values.to(before.dtype), like=before)
