"""A contact sheet of masks, least trusted first: what a person should look at before building on them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from unfazed.text_tables import csv_text

from .confidences import MEASURES, read_confidences
from .make_masks import Made
from .pictures import read_mask, read_picture

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


def confidence_csv(path: Path, made: Sequence[Made]) -> bytes:
    """A CSV of confidences, least trusted first: those of an earlier run in the file at `path`, and those made now."""
    import polars as pl

    rows: dict[str, dict[str, Any]] = {}
    if path.is_file():
        rows = {row["picture"]: row for row in read_confidences(path).to_pylist()}
    for one in made:
        values = (one.confidence, one.agreement, one.edge, one.size)
        rows[one.picture] = {"picture": one.picture, **dict(zip(MEASURES, values, strict=True))}
    table = pl.DataFrame(list(rows.values()), dict.fromkeys(MEASURES, pl.Float64) | {"picture": pl.String})
    ordered = table.select("picture", *MEASURES).sort("confidence", maintain_order=True)
    return csv_text(ordered.with_columns(pl.col(MEASURES).round(4))).encode()


def _tile(image: np.ndarray, mask: np.ndarray) -> Image.Image:
    """The photograph with what is not object faded, and the outline in red."""
    import cv2

    factor = (SIDE - 4) / max(image.shape[:2])
    size = max(1, round(image.shape[1] * factor)), max(1, round(image.shape[0] * factor))
    small, inside = cv2.resize(image, size, interpolation=cv2.INTER_AREA), cv2.resize(mask, size) > 0.5
    shown = np.where(inside[..., None], small, (small * 0.35 + 160).clip(0, 255)).astype(np.uint8)
    outlines, _ = cv2.findContours(inside.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return Image.fromarray(cv2.drawContours(np.ascontiguousarray(shown), outlines, -1, (220, 30, 30), 1))
