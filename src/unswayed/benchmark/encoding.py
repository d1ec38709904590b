"""Writing pictures and masks as PNG files, with their paths and hashes in the rows."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unswayed.edits.layers import Layers
from unswayed.rendering.layers import Refused, Rendered, mask_levels, png, written_rate

from .commit_files import Waiting, settle, write_beside
from .layout import mask_path, picture_path
from .quality import Evidence, judged
from .rows import Row, write_rows
from .spectrum import background_measures


@dataclass(frozen=True)
class Written:
    """A row with its hashes, its temporary files, and the seconds spent on encoding, writing and measuring."""

    row: Row
    files: tuple[Waiting, ...] = ()
    encode: float = 0.0
    write: float = 0.0
    judge: float = 0.0


def write_picture(
    root: Path, row: Row, layers: Layers, answer: Rendered | Refused, evidence: Evidence | None = None
) -> Written:
    """Write the picture and its mask to temporary files, or put the renderer's refusal into the row.

    evidence: what the picture's validity is measured with, unless the row already has it.
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
        measures={**answer.measures, **({} if evidence is None else background_measures(answer.image, layers.mask))},
    )
    return Written(done, files, encoded - started, time.perf_counter() - encoded, started - began)


def write_file(root: Path, row: Row, data: bytes) -> Written:
    """Write unchanged bytes to a temporary file."""
    assert row.path is not None
    started = time.perf_counter()
    waiting = write_beside(root / row.path, data)
    return Written(replace(row, sha256=_hash(data)), (waiting,), write=time.perf_counter() - started)


def finish(root: Path, source_id: str, rows: Sequence[Row], files: Iterable[Waiting]) -> float:
    """Rename all files of a source, then write its row file, which marks them as finished; return the seconds."""
    started = time.perf_counter()
    settle(files)
    write_rows(root, source_id, rows)
    return time.perf_counter() - started


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
