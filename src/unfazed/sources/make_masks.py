"""A mask file for every photograph of a folder: `unfazed masks FOLDER -o MASKS`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from unfazed.errors import BadPicture, UserError
from unfazed.files import write_bytes

from .labeled import pictures_below
from .pictures import read_picture
from .segment import Box, open_segmenter, segment


@dataclass(frozen=True)
class Made:
    """The result for one photograph. status: made, kept (the mask already existed) or failed; reason: why."""

    picture: str
    mask: str
    status: str
    reason: str | None = None


def make_masks(pictures: Path, masks: Path, segmenter: str = "grabcut", box: Box | None = None) -> Iterator[Made]:
    """One result per photograph, as it is done; existing masks are kept, so a stopped run resumes.

    pictures: a folder, searched recursively, or one picture; masks: the output folder, with one NAME.png for each.
    """
    open_segmenter(segmenter)
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
            mask = segment(read_picture(root / name), box, segmenter)
        except BadPicture as error:
            yield Made(name, str(path), "failed", str(error))
            continue
        write_bytes(path, mask_png(mask))
        yield Made(name, str(path), "made")


def mask_png(mask: np.ndarray) -> bytes:
    """A mask (H, W) in [0, 1] as the bytes of an 8-bit grayscale PNG."""
    file = io.BytesIO()
    Image.fromarray(np.rint(np.clip(mask, 0, 1) * 255).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def _names(pictures: Path, masks: Path) -> tuple[Path, list[str]]:
    if pictures.is_file():
        root, names = pictures.parent, [pictures.name]
    elif pictures.is_dir():
        root, names = pictures, pictures_below(pictures)
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
