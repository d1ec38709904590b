"""A mask file for every photograph of a folder: `unfazed masks FOLDER -o MASKS`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from unfazed.errors import BadPicture, UserError
from unfazed.files import write_bytes
from unfazed.measures.mask_confidence import mask_confidence

from .labeled import pictures_below
from .mask_names import object_name
from .pictures import read_picture
from .segment import Box, Choice, checked_box, open_segmenter, with_agreement


@dataclass(frozen=True)
class Made:
    """The result for one photograph. status: made, kept (the mask already existed) or failed; reason: why.

    confidence: how far the mask can be trusted, in [0, 1], with its three parts; None where it was not made now.
    """

    picture: str
    mask: str
    status: str
    reason: str | None = None
    confidence: float | None = None
    agreement: float | None = None
    edge: float | None = None
    size: float | None = None


def make_masks(
    pictures: Path,
    masks: Path,
    segmenter: str = "auto",
    box: Box | None = None,
    choice_for: Callable[[str], Choice | None] | None = None,
) -> Iterator[Made]:
    """One result per photograph, as it is done; existing masks are kept, so a stopped run resumes.

    pictures: a folder, searched recursively, or one picture; masks: the output folder, with one NAME.png for each.
    choice_for: the name of a picture -> how to choose between candidate masks, or None for their own order.
    """
    opened = open_segmenter(segmenter)
    root, names = _names(pictures, masks)
    written: dict[PurePosixPath, str] = {}
    for name in names:
        target = PurePosixPath(name).with_suffix(".png")
        path = masks / target
        if target in written:
            reason = f"{written[target]} differs only in the suffix, so both masks would be the same file"
            yield Made(name, str(path), "failed", reason)
            continue
        written[target] = name
        if path.is_file():
            yield Made(name, str(path), "kept")
            continue
        try:
            image = read_picture(root / name)
            place = None if box is None else checked_box(box, image.shape)
            mask, agreement = with_agreement(opened, image, place, choice_for(name) if choice_for else None)
            if not (mask > 0.5).any():
                raise BadPicture(
                    f"{name}: {segmenter} found no object", allowed="--box X,Y,W,H around it, or a mask of your own"
                )
        except BadPicture as error:
            yield Made(name, str(path), "failed", str(error))
            continue
        write_bytes(path, mask_png(mask))
        found = mask_confidence(image, mask, agreement)
        yield Made(name, str(path), "made", None, found.value, found.agreement, found.edge, found.size)


def mask_png(mask: np.ndarray) -> bytes:
    """A mask (H, W) in [0, 1] as the bytes of an 8-bit grayscale PNG."""
    file = io.BytesIO()
    Image.fromarray(np.rint(np.clip(mask, 0, 1) * 255).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def _names(pictures: Path, masks: Path) -> tuple[Path, list[str]]:
    if pictures.is_file():
        root, names = pictures.parent, [pictures.name]
    elif pictures.is_dir():
        # Masks that lie beside their photographs get no masks of their own.
        root, names = pictures, [name for name in pictures_below(pictures) if object_name(name) is None]
    else:
        raise UserError(f"{pictures} does not exist", allowed="a folder of photographs, or one photograph")
    if masks.resolve() == root.resolve():
        raise UserError(
            f"the masks would be written among the pictures in {root}", run="unfazed masks FOLDER -o FOLDER/masks"
        )
    if masks.resolve().is_relative_to(root.resolve()):
        inner = masks.resolve().relative_to(root.resolve()).as_posix() + "/"
        names = [name for name in names if not name.startswith(inner)]
    if not names:
        raise UserError(f"{pictures} holds no pictures")
    return root, names
