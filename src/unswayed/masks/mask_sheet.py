"""A contact sheet of masks, least trusted first: what a person should look at before building on them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from unswayed.files.whole import write_bytes
from unswayed.sources.pictures import read_mask, read_picture

from .confidences import confidence_rows, mask_path, only_writer
from .make_masks import Made

SHEET = "worst.jpg"
SIDE, COLUMNS, MOST = 200, 6, 30
_TEXT = 16


def mask_sheet(pictures: Path, made: Sequence[Made], most: int = MOST) -> bytes:
    """A JPEG of the `most` least trusted masks as outlines on their photographs, each with its name and confidence.

    pictures: the folder, or the photograph, that the masks were made for.
    """
    worst = sorted((one for one in made if one.confidence is not None), key=lambda one: one.confidence or 0)[:most]
    root = pictures.parent if pictures.is_file() else pictures
    columns = max(1, min(COLUMNS, len(worst)))
    rows = -(-len(worst) // columns)
    sheet = Image.new("RGB", (columns * SIDE, max(rows, 1) * (SIDE + _TEXT)), "white")
    draw = ImageDraw.Draw(sheet)
    for place, one in enumerate(worst):
        left, top = place % columns * SIDE, place // columns * (SIDE + _TEXT)
        tile = _tile(read_picture(root / one.picture), read_mask(Path(one.mask)))
        sheet.paste(tile, (left + (SIDE - tile.width) // 2, top + (SIDE - tile.height) // 2))
        name = Path(one.picture).stem
        draw.text((left + 3, top + SIDE + 1), f"{one.confidence:.2f} {name[:24]}", fill="black")
    buffer = io.BytesIO()
    sheet.save(buffer, "JPEG", quality=88)
    return buffer.getvalue()


def write_sheet(pictures: Path, masks: Path) -> None:
    """Write `worst.jpg` of all masks in the table of confidences whose photographs are in `pictures`."""
    root = pictures.parent if pictures.is_file() else pictures
    with only_writer(masks):
        made = [
            Made(name, str(mask_path(masks, name)), "kept", None, row["confidence"])
            for name, row in confidence_rows(masks).items()
            if (root / name).is_file() and mask_path(masks, name).is_file()
        ]
        write_bytes(masks / SHEET, mask_sheet(pictures, made))


def _tile(image: np.ndarray, mask: np.ndarray) -> Image.Image:
    """The photograph with what is not object faded, and the outline in red."""
    import cv2

    factor = (SIDE - 4) / max(image.shape[:2])
    size = max(1, round(image.shape[1] * factor)), max(1, round(image.shape[0] * factor))
    small, inside = cv2.resize(image, size, interpolation=cv2.INTER_AREA), cv2.resize(mask, size) > 0.5
    shown = np.where(inside[..., None], small, (small * 0.35 + 160).clip(0, 255)).astype(np.uint8)
    outlines, _ = cv2.findContours(inside.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return Image.fromarray(cv2.drawContours(np.ascontiguousarray(shown), outlines, -1, (220, 30, 30), 1))
