"""How an evaluation stands: which models are finished, failed or unfinished in a folder of predictions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as parquet

from unswayed.errors import UserError
from unswayed.files.records import read_object

from .storage import FAILED, PARTS


@dataclass(frozen=True)
class ModelStanding:
    """One model, how many predictions of it are stored, and why it failed."""

    model: str
    state: Literal["finished", "unfinished", "failed"]
    predictions: int
    reason: str | None = None


def model_standings(folder: str | Path) -> list[ModelStanding]:
    """Return the models of a folder of predictions; changes nothing."""
    return [*_finished(Path(folder)), *_failed(Path(folder)), *_unfinished(Path(folder))]


def _finished(folder: Path) -> Iterator[ModelStanding]:
    for path in sorted(folder.glob("*.parquet")):
        card = path.with_suffix(".json")
        with contextlib.suppress(UserError):
            if card.is_file():
                yield ModelStanding(str(read_object(card, {"model": str})["model"]), "finished", _rows(path))


def _failed(folder: Path) -> Iterator[ModelStanding]:
    for path in sorted(folder.glob(f"*{FAILED}")):
        with contextlib.suppress(UserError):
            record = read_object(path, {"model": str, "error": str})
            yield ModelStanding(record["model"], "failed", 0, record["error"])


def _unfinished(folder: Path) -> Iterator[ModelStanding]:
    for parts in sorted((folder / PARTS).glob("*-*-*")):
        if parts.is_dir():
            rows = sum(_rows(path) for path in parts.glob("*-*.parquet"))
            yield ModelStanding(parts.name.rsplit("-", 2)[0], "unfinished", rows)


def _rows(path: Path) -> int:
    try:
        return int(parquet.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):  # damaged, or just removed
        return 0
