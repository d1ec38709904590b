"""`confidence.csv`: how far each mask that `unswayed masks` made can be trusted."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from unswayed.errors import UserError
from unswayed.files.locks import alone
from unswayed.files.records import read_object
from unswayed.files.storage import refresh
from unswayed.files.tables import Column
from unswayed.files.text_tables import csv_text, read_csv
from unswayed.files.whole import remove_file, write_bytes, write_json

from .mask_confidence import Confidence

if TYPE_CHECKING:
    import pyarrow as pa

FILE = "confidence.csv"
MEASURES = ("confidence", "agreement", "edge", "size")
_NOTE = ".confidence-{}.json"  # one for each mask that is not in the table yet
_LOCK = ".confidence.lock"


def read_confidences(path: Path) -> pa.Table:
    """The rows of the table: picture and MEASURES, each in [0, 1]; the last three may be missing."""
    columns = {name: Column("number", nulls=name != "confidence", lowest=0, highest=1) for name in MEASURES}
    columns["picture"] = Column("text", nulls=False)
    return read_csv(path, columns, required=("picture", "confidence"), run="unswayed masks FOLDER -o MASKS")


def mask_path(masks: Path, picture: str) -> Path:
    """Where the mask of a picture lies in the folder of masks."""
    return masks / PurePosixPath(picture).with_suffix(".png")


def note_confidence(masks: Path, picture: str, found: Confidence) -> None:
    """Keep the confidence of a mask that is about to be written, so that it is not lost with a run that is killed."""
    digest = hashlib.blake2b(picture.encode(), digest_size=8).hexdigest()
    values = dict(zip(MEASURES, (found.value, found.agreement, found.edge, found.size), strict=True))
    write_json(masks / _NOTE.format(digest), {"picture": picture, **values})


@contextlib.contextmanager
def only_writer(masks: Path) -> Iterator[None]:
    """A block in which no other process writes the table of these masks or what is made from it."""
    with alone(masks / _LOCK, UserError(f"another run holds {masks / _LOCK}", run="the same command again"), wait=60):
        refresh(masks)
        yield


def has_notes(masks: Path) -> bool:
    """Whether there are masks whose confidences are not in the table yet, such as those of a run that was killed."""
    refresh(masks)
    return any(masks.glob(_NOTE.format("*")))


def merge_confidences(masks: Path) -> dict[str, dict[str, Any]]:
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
            write_bytes(masks / FILE, csv_text(ordered).encode())
        for note in notes:
            remove_file(note)
    return {row["picture"]: row for row in ordered.to_dicts()}


def confidence_rows(masks: Path) -> dict[str, dict[str, Any]]:
    """The rows of the table in a folder of masks, by picture; none if there is no table."""
    path = masks / FILE
    return {row["picture"]: row for row in read_confidences(path).to_pylist()} if path.is_file() else {}
