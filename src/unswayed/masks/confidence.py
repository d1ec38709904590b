"""How far a mask that nobody drew can be trusted: agreement of two segmenters, contrast at its edge, plausible size.

`confidence.csv` in a folder of masks holds these numbers, and a contact sheet shows the least trusted masks.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageDraw

from unswayed.files.locks import alone
from unswayed.files.records import read_object
from unswayed.files.storage import refresh
from unswayed.files.text_tables import csv_text
from unswayed.files.whole import Json, remove_file, write_bytes, write_json
from unswayed.sources.folder import CONFIDENCES, MEASURES, read_confidences
from unswayed.sources.pictures import read_mask, read_picture

NO_EDGE = 0.2  # edge contrast below which an outline follows nothing: loose but right masks have 0.35, blank walls 0
SHEET = "worst.jpg"
SIDE, COLUMNS, MOST = 200, 6, 30
_TEXT = 16
_NOTE = ".confidence-{}.json"  # one for each mask that is not in the table yet
_LOCK = ".confidence.lock"


class Confidence(NamedTuple):
    """How far a mask can be trusted, and the three parts of it, each in [0, 1], in the order of MEASURES."""

    value: float
    agreement: float
    edge: float
    size: float


def mask_confidence(image: np.ndarray, mask: np.ndarray, agreement: float) -> Confidence:
    """The confidence of a mask (H, W) in [0, 1] of an image (H, W, 3) uint8, given its agreement with another."""
    edge, size = edge_contrast(image, mask), plausible_size(mask)
    return Confidence(agreement * (0.5 + 0.5 * edge) * size, agreement, edge, size)


def edge_contrast(image: np.ndarray, mask: np.ndarray) -> float:
    """How much the picture changes across the mask's outline compared with elsewhere, in [0, 1]; 0.5 is no more.

    The share of pixel pairs (one on the outline, one anywhere) in which the outline has the stronger gradient.
    """
    shape = (mask > 0.5).astype(np.uint8)
    ring = cv2.dilate(shape, np.ones((3, 3), np.uint8)) - cv2.erode(shape, np.ones((3, 3), np.uint8))
    if not ring.any() or ring.all():
        return 0.0
    gray = cv2.GaussianBlur(image, (0, 0), 1.0).astype(np.float32).mean(axis=2)
    strength = np.hypot(cv2.Sobel(gray, cv2.CV_32F, 1, 0), cv2.Sobel(gray, cv2.CV_32F, 0, 1))
    everywhere = np.sort(strength[ring == 0])
    return float((np.searchsorted(everywhere, strength[ring > 0]) / len(everywhere)).mean())


def plausible_size(mask: np.ndarray, least: float = 0.01, most: float = 0.9) -> float:
    """1 for a mask that covers a usual share of the picture, falling to 0 where it covers almost nothing or all of it.

    >>> plausible_size(np.zeros((10, 10))), plausible_size(np.eye(10))
    (0.0, 1.0)
    """
    share = float((mask > 0.5).mean())
    return float(min(share / least, 1.0) * np.clip((1 - share) / (1 - most), 0.0, 1.0))


def mask_path(masks: Path, picture: str) -> Path:
    """Where the mask of a picture lies in the folder of masks."""
    return masks / PurePosixPath(picture).with_suffix(".png")


def note_confidence(masks: Path, picture: str, confidence: Confidence) -> None:
    """Keep the confidence of a mask that is about to be written, so that it is not lost with a run that is killed."""
    digest = hashlib.blake2b(picture.encode(), digest_size=8).hexdigest()
    write_json(masks / _NOTE.format(digest), {"picture": picture, **dict(zip(MEASURES, confidence, strict=True))})


@contextlib.contextmanager
def only_writer(masks: Path) -> Iterator[None]:
    """A block in which no other process writes the table of these masks or what is made from it."""
    with alone(masks / _LOCK, run="the same command again", wait=60):
        refresh(masks)
        yield


def has_notes(masks: Path) -> bool:
    """Whether there are masks whose confidences are not in the table yet, such as those of a run that was killed."""
    refresh(masks)
    return any(masks.glob(_NOTE.format("*")))


def merge_confidences(masks: Path) -> dict[str, Json]:
    """The rows of the table by picture, after the notes of all masks that exist were moved into it.

    Masks without a row are those that a person made or approved, so none is computed for them.
    """
    import polars as pl

    refresh(masks)
    if not any(masks.glob(".confidence*")):  # neither a note nor the lock of a run that was killed
        return confidence_rows(masks)
    with only_writer(masks):
        notes = {note: read_object(note) for note in sorted(masks.glob(_NOTE.format("*")))}
        notes = {note: row for note, row in notes.items() if mask_path(masks, row["picture"]).is_file()}
        rows = confidence_rows(masks) | {row["picture"]: row for row in notes.values()}
        table = pl.DataFrame(list(rows.values()), dict.fromkeys(MEASURES, pl.Float64) | {"picture": pl.String})
        ordered = table.select("picture", pl.col(MEASURES).round(4)).sort("confidence", "picture")
        if notes:
            write_bytes(masks / CONFIDENCES, csv_text(ordered).encode())
        for note in notes:
            remove_file(note)
    return {row["picture"]: row for row in ordered.to_dicts()}


def confidence_rows(masks: Path) -> dict[str, Json]:
    """The rows of the table in a folder of masks, by picture; none if there is no table."""
    path = masks / CONFIDENCES
    return {row["picture"]: row for row in read_confidences(path).to_pylist()} if path.is_file() else {}


def mask_sheet(pictures: Path, masks: Iterable[tuple[str, Path, float]], most: int = MOST) -> bytes:
    """A JPEG of the `most` least trusted masks as outlines on their photographs, each with its name and confidence.

    pictures: the folder of the photographs, or one of them; masks: for each the picture's name, its file and its
    confidence.
    """
    worst = sorted(masks, key=lambda mask: mask[2])[:most]
    root = pictures.parent if pictures.is_file() else pictures
    columns = max(1, min(COLUMNS, len(worst)))
    rows = -(-len(worst) // columns)
    sheet = Image.new("RGB", (columns * SIDE, max(rows, 1) * (SIDE + _TEXT)), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (picture, mask, confidence) in enumerate(worst):
        left, top = number % columns * SIDE, number // columns * (SIDE + _TEXT)
        tile = Image.fromarray(_tile(read_picture(root / picture), read_mask(mask)))
        sheet.paste(tile, (left + (SIDE - tile.width) // 2, top + (SIDE - tile.height) // 2))
        draw.text((left + 3, top + SIDE + 1), f"{confidence:.2f} {Path(picture).stem[:24]}", fill="black")
    buffer = io.BytesIO()
    sheet.save(buffer, "JPEG", quality=88)
    return buffer.getvalue()


def write_sheet(pictures: Path, masks: Path) -> None:
    """Write `worst.jpg` of all masks in the table of confidences whose photographs are in `pictures`."""
    root = pictures.parent if pictures.is_file() else pictures
    with only_writer(masks):
        made = [
            (name, mask_path(masks, name), row["confidence"])
            for name, row in confidence_rows(masks).items()
            if (root / name).is_file() and mask_path(masks, name).is_file()
        ]
        write_bytes(masks / SHEET, mask_sheet(pictures, made))


def _tile(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The photograph with what is not object faded, and the outline in red."""
    factor = (SIDE - 4) / max(image.shape[:2])
    size = max(1, round(image.shape[1] * factor)), max(1, round(image.shape[0] * factor))
    small, inside = cv2.resize(image, size, interpolation=cv2.INTER_AREA), cv2.resize(mask, size) > 0.5
    shown = np.where(inside[..., None], small, (small * 0.35 + 160).clip(0, 255)).astype(np.uint8)
    outlines, _ = cv2.findContours(inside.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(np.ascontiguousarray(shown), outlines, -1, (220, 30, 30), 1)
