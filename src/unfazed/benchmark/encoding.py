"""Pictures and masks as PNG files, and the rows that say where they are and what is on them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np

from unfazed.rendering.layers import Layers, Refused, Rendered

from .commit_files import Waiting, settle, write_beside
from .layout import mask_path, picture_path
from .quality import Evidence, judged
from .rows import Row, write_rows

# Level 1 takes half the time of zlib's default for files that are no larger: photographs hardly compress further.
_COMPRESSION = [cv2.IMWRITE_PNG_COMPRESSION, 1]


@dataclass(frozen=True)
class Written:
    """A row with its hashes, the files that wait to be settled, and the seconds spent on encoding, writing
    and measuring."""

    row: Row
    files: tuple[Waiting, ...] = ()
    encode: float = 0.0
    write: float = 0.0
    judge: float = 0.0


def png(picture: np.ndarray) -> bytes:
    """A picture (H, W, 3) uint8 RGB or a mask (H, W) uint8 as PNG; the same pixels give the same bytes."""
    swapped = picture if picture.ndim == 2 else cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
    done, encoded = cv2.imencode(".png", swapped, _COMPRESSION)
    assert done
    return encoded.tobytes()


def mask_levels(mask: np.ndarray) -> np.ndarray:
    """A mask in [0, 1] as it is written: (S, S) uint8."""
    return np.rint(np.clip(mask, 0, 1) * 255).astype(np.uint8)


def written_rate(levels: np.ndarray) -> float:
    """The pixel rate of a mask as written: the share above one half."""
    return float((levels > 127).mean())


def write_picture(
    root: Path, row: Row, layers: Layers, answer: Rendered | Refused, evidence: Evidence | None = None
) -> Written:
    """The picture and its mask written beside their places, or the renderer's refusal in the row.

    evidence: what the picture's validity is measured with, unless the row holds it already.
    """
    if isinstance(answer, Refused):
        return Written(replace(row, status=answer.status, reason=answer.reason))
    began = time.perf_counter()
    if evidence is not None and row.validity is None:
        row = judged(row, layers, answer, evidence)
    started = time.perf_counter()
    levels = mask_levels(layers.mask)
    picture, mask = png(answer.image), png(levels)
    encoded = time.perf_counter()
    path, beside = picture_path(row.edit, row.source_id, row.run), mask_path(row.edit, row.source_id, row.run)
    files = write_beside(root / path, picture), write_beside(root / beside, mask)
    done = replace(
        row,
        path=path,
        sha256=_hash(picture),
        mask_path=beside,
        mask_sha256=_hash(mask),
        pixel_rate=written_rate(levels),
        measures=dict(answer.measures),
    )
    return Written(done, files, encoded - started, time.perf_counter() - encoded, started - began)


def write_file(root: Path, row: Row, data: bytes) -> Written:
    """A file kept as it is, written beside its place."""
    assert row.path is not None
    started = time.perf_counter()
    waiting = write_beside(root / row.path, data)
    return Written(replace(row, sha256=_hash(data)), (waiting,), write=time.perf_counter() - started)


def finish(root: Path, source_id: str, rows: Sequence[Row], files: Iterable[Waiting]) -> float:
    """All of a source's files in their places and then its row file, which makes them count; seconds it took."""
    started = time.perf_counter()
    settle(files)
    write_rows(root, source_id, rows)
    return time.perf_counter() - started


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
