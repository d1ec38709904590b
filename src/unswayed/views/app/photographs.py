"""The photograph that a visitor edits: its file, its object's mask, its label; small enough to keep in memory."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.masks.checks import ALL, TINY, WARNING, mask_warnings
from unswayed.masks.segment import checked_box, segment
from unswayed.rendering.layers import mask_levels, png
from unswayed.rendering.photograph import exact_mask
from unswayed.scene import Scene
from unswayed.sources import open_source
from unswayed.sources.pictures import read_mask, read_picture, shrunk
from unswayed.sources.source import slug

T = TypeVar("T")
SAMPLE = "sample"
# A photograph of the largest size takes 50 MB, so these take at most about 300 MB.
HELD = 6
# Fewer painted pixels than this are ignored as accidental.
FEWEST_PAINTED = 16
# How many earlier masks can be restored.
UNDONE = 20
# An object that covers less or more of the picture than this was probably not found.
LEAST, MOST = 0.03, 0.90


@dataclass(frozen=True)
class Photograph:
    """path: the file; name: its original name; mask: PNG of the file's size (shrunk), so that a visitor's state is
    small; label: ImageNet class or None; notes: how the mask was made; own: the file is the visitor's; earlier: the
    previous masks with their notes, the last one last."""

    id: str
    path: str
    name: str
    mask: bytes
    label: int | None = None
    notes: tuple[str, ...] = ()
    own: bool = False
    earlier: tuple[tuple[bytes, tuple[str, ...]], ...] = field(default=(), compare=False, repr=False)

    @property
    def scene(self) -> Scene:
        """Return the picture with its mask, exactly as a replay of its record will read them."""
        image, reduced = read_once(self.path)
        return Scene(self.id, image, exact_mask(read_mask(self.mask)), self.label, (*self.notes, *reduced))


@functools.lru_cache(maxsize=HELD)
def read_once(path: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the picture in a file, at most of the largest size, and notes; the array is shared: do not modify."""
    picture = read_picture(path)
    scene = shrunk(Scene("picture", picture, np.ones(picture.shape[:2], np.float32)))
    return scene.image, scene.notes


def sample_names() -> tuple[str, ...]:
    return open_source(SAMPLE).ids


def open_sample(scene_id: str) -> Photograph:
    """Return a photograph of the embedded sample with its own mask and label."""
    entry = next((entry for entry in open_source(SAMPLE).entries if entry.id == scene_id), None)
    if entry is None or entry.mask is None:
        raise UserError(f"there is no sample photograph '{scene_id}'", allowed=", ".join(sample_names()))
    levels = mask_levels(read_mask(entry.mask))
    return Photograph(scene_id, str(entry.image), Path(entry.image).name, png(levels), entry.label)


def _uploaded(read: Callable[[str], T], path: str) -> T:
    """Read a visitor's file; a refusal names the file without its path on this server."""
    try:
        return read(path)
    except BadPicture as error:
        given = error.given.replace(path, Path(path).name)
        raise BadPicture(given, allowed=error.allowed, run=error.run) from None


def open_upload(path: str, segmenter: str = "grabcut") -> Photograph:
    """Return a visitor's photograph with a mask by the segmenter."""
    name, (image, _) = Path(path).name, _uploaded(read_once, path)
    whole = Photograph(slug(name), path, name, png(np.full(image.shape[:2], 255, np.uint8)), own=True)
    return replace(found_by(whole, segmenter), earlier=())


def found_by(photograph: Photograph, segmenter: str, box: tuple[int, int, int, int] | None = None) -> Photograph:
    """Return the photograph with the mask that a segmenter finds, within the box if there is one."""
    image, _ = read_once(photograph.path)
    if box is not None:
        box = checked_box(box, image.shape)
    prompt = "the center prior" if box is None else "the box " + ",".join(map(str, box))
    name = "an ONNX segmenter" if segmenter.startswith("onnx:") else segmenter
    note = f"mask made by {name} from {prompt}"
    return with_mask(photograph, segment(image, box, segmenter), note)


def with_mask(photograph: Photograph, mask: np.ndarray, note: str) -> Photograph:
    """Return the photograph with another mask, (H, W) in [0, 1], and a note about where it comes from."""
    if not (mask > 0.5).any():
        raise UserError("the mask is empty", allowed="a painted mask, or a box around the object")
    earlier = (*photograph.earlier, (photograph.mask, photograph.notes))[-UNDONE:]
    return replace(photograph, mask=png(mask_levels(mask)), notes=(note,), earlier=earlier)


def undone(photograph: Photograph) -> Photograph:
    """Return the photograph with the mask that it had before the last change of the mask."""
    if not photograph.earlier:
        raise UserError("there is no earlier mask", allowed="undo after a change of the mask")
    *earlier, (mask, notes) = photograph.earlier
    return replace(photograph, mask=mask, notes=notes, earlier=tuple(earlier))


def uploaded_mask(photograph: Photograph, path: str) -> Photograph:
    """Return the photograph with the mask in a file, white is the object; its proportions are the photograph's."""
    name, mask = Path(path).name, _uploaded(read_mask, path)
    (high, wide), (other_high, other_wide) = read_once(photograph.path)[0].shape[:2], mask.shape
    # A mask of the original size belongs to a photograph that was reduced; rounding moves a side by a pixel.
    if abs(other_wide * high / other_high - wide) > max(1.0, wide / 100):
        raise UserError(
            f"{name}: the mask has {other_wide}×{other_high} pixels and the photograph {wide}×{high}",
            allowed="a mask with the width and height of the photograph, white on black",
        )
    if mask.shape != (high, wide):
        mask = cv2.resize(mask, (wide, high), interpolation=cv2.INTER_AREA)
    return with_mask(photograph, mask, f"mask uploaded: {name}")


def doubts(scene: Scene) -> tuple[str, ...]:
    """Return what looks wrong about the mask of a scene, as sentences.

    >>> doubts(Scene("a", np.zeros((10, 10, 3), np.uint8), np.pad(np.ones((1, 1), np.float32), ((4, 5), (4, 5)))))
    ('The object covers only 1.0 % of the picture: perhaps only a part of it was found.',)
    """
    rate, warnings = scene.pixel_rate, [text.removeprefix(WARNING) for text in mask_warnings(scene.mask)]
    told = [f"{text[0].upper()}{text[1:]}." for text in warnings]
    if TINY <= rate < LEAST:
        told.append(f"The object covers only {100 * rate:.1f} % of the picture: perhaps only a part of it was found.")
    elif MOST < rate <= ALL:
        told.append(f"The object covers {100 * rate:.0f} % of the picture: perhaps the background was taken for it.")
    return tuple(told)


def marked(photograph: Photograph, mark: Mapping[str, object], segmenter: str) -> Photograph:
    """Return the photograph with the mask after the visitor's mark on its picture.

    mark: {"box": [x, y, width, height]} in shares of the picture, {"undo": True}, or {"paint": PNG as base64, "add":
    bool}: the opaque pixels of the PNG are added to, or removed from, the current mask.
    """
    if mark.get("undo"):
        return undone(photograph)
    image, _ = read_once(photograph.path)
    high, wide = image.shape[:2]
    if mark.get("box") is not None:
        return found_by(photograph, segmenter, box_of(mark["box"], wide, high))
    painted = painted_over(str(mark.get("paint", "")), wide, high)
    before = read_mask(photograph.mask)
    mask = np.maximum(before, painted) if mark.get("add", True) else np.minimum(before, 1 - painted)
    return with_mask(photograph, mask, "; ".join(dict.fromkeys([*photograph.notes, "mask changed by hand"])))


def box_of(shares: Any, wide: int, high: int) -> tuple[int, int, int, int]:
    """Return the part inside the picture of a box in shares of it, in pixels: the pointer may have left the picture.

    >>> box_of([0.25, 0.5, 0.5, 0.25], 640, 480)
    (160, 240, 320, 120)
    """
    try:
        x, y, width, height = (float(value) for value in shares)
        left, right = (min(max(round(share * wide), 0), wide) for share in (x, x + width))
        top, bottom = (min(max(round(share * high), 0), high) for share in (y, y + height))
    except (TypeError, ValueError, OverflowError):
        raise UserError("the box is not four numbers", allowed="x, y, width, height, each from 0 to 1") from None
    if right - left < 8 or bottom - top < 8:
        raise UserError("the box is too small", allowed="a box around the whole object")
    return left, top, right - left, bottom - top


def painted_over(encoded: str, wide: int, high: int) -> np.ndarray:
    """Return what a PNG (base64) covers, at the photograph's size: (high, wide) float32 in [0, 1]."""
    try:
        data = base64.b64decode(encoded.partition(",")[2] or encoded, validate=True)
    except ValueError:
        raise UserError("the painted mask is not a PNG file") from None
    drawn = read_mask(data)
    if np.count_nonzero(drawn > 0.5) < FEWEST_PAINTED:
        raise UserError("too little is painted", allowed="strokes over the whole object")
    painted: np.ndarray = cv2.resize(drawn, (wide, high), interpolation=cv2.INTER_LINEAR)
    return painted
