"""Predictions on disk: the columns, and part files from which a stopped run resumes.

PREDICTIONS/<model>.parquet, <model>.json     written once every picture is classified
PREDICTIONS/<model>.failed.json     why the model could not be evaluated
PREDICTIONS/.parts/<model>-<fingerprint>-<batch size>/000000-000007.parquet     batches 0 to 7, while it runs
PREDICTIONS/.parts/<model>.lock     held by the process that evaluates the model, or merges the parts of shards
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from unswayed.errors import UserError
from unswayed.files.tables import read_checked
from unswayed.files.whole import read_json, remove_folder, write_json, write_parquet

from .model_cards import FINGERPRINT, PARTS, SCHEMA, Picture, stored_fingerprint


def make_table(
    model: str, rows: Sequence[Picture], scores: dict[str, np.ndarray], survives: np.ndarray, order: Sequence[int]
) -> pa.Table:
    """Return the predictions of one batch; `order` is each row's overall position, kept until the parts are merged."""
    labels = [row.label for row in rows]
    known = np.array([label is not None for label in labels], bool)
    truth = np.array([-1 if label is None else label for label in labels], np.int64)
    columns = {
        "model": [model] * len(rows),
        "sample_id": [row.sample_id for row in rows],
        "source_id": [row.source_id for row in rows],
        "file_name": [row.file_name for row in rows],
        "edit": [row.edit for row in rows],
        "run": [row.run for row in rows],
        "label": labels,
        "predicted": scores["predicted"],
        "probability": scores["probability"],
        "true_probability": pa.array(scores["true_probability"], pa.float32(), mask=~known),
        "correct": pa.array(scores["predicted"] == truth, pa.bool_(), mask=~known),
        "rank": pa.array(scores["rank"].astype(np.int32), pa.int32(), mask=~known),
        "top5": scores["top"].astype(np.int32).tolist(),
        "top5_probabilities": scores["top_probabilities"].astype(np.float32).tolist(),
        "energy": scores["energy"],
        "object_survives": pa.array(survives.astype(np.float32), pa.float32(), mask=np.isnan(survives)),
        "picture": [row.picture for row in rows],
        "subset_correct": pa.array(scores["subset"] == truth, pa.bool_(), mask=~known | (scores["subset"] < 0)),
    }
    arrays = [_array(columns[field.name], field.type) for field in SCHEMA]
    table = pa.Table.from_arrays(arrays, schema=SCHEMA)
    return table.append_column("order", pa.array(list(order), pa.int64()))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, kind)


class Parts:
    """One model's unfinished predictions: batches are added, and files are written every few seconds.

    Several processes may add different batches; every file that they write has a name of its own.
    """

    def __init__(self, folder: Path, slug: str, fingerprint: str, size: int, every: float = 0.0) -> None:
        # Parts depend on the batch size: those of another one would not fit together.
        self.folder = folder / PARTS / f"{slug}-{fingerprint[:12]}-{size}"
        self.every, self.last = every, time.monotonic()
        self.buffer: list[tuple[int, pa.Table]] = []
        self.unreadable: dict[str, str] = {}
        self.done: set[int] = set()
        for path in sorted(self.folder.glob("*-*.parquet")):
            first, last = (int(number) for number in path.stem.split("-"))
            self.done |= set(range(first, last + 1))

    def add(self, index: int, table: pa.Table, unreadable: Sequence[tuple[str, str]]) -> None:
        """Add batch `index`; it is written when enough time has passed, or before a gap in the numbers."""
        if self.buffer and self.buffer[-1][0] + 1 != index:
            self.flush()
        self.unreadable |= dict(unreadable)
        self.buffer.append((index, table))
        if time.monotonic() - self.last >= self.every:
            self.flush()

    def flush(self) -> None:
        if self.buffer:
            first, last = self.buffer[0][0], self.buffer[-1][0]
            if self.unreadable:
                self.write_note("unreadable", self.unreadable, first)
            table = pa.concat_tables([table for _, table in self.buffer], promote_options="permissive")
            write_parquet(self.folder / f"{first:06}-{last:06}.parquet", table)
            self.done |= {index for index, _ in self.buffer}
            self.buffer, self.unreadable = [], {}
        self.last = time.monotonic()

    def note(self, name: str) -> dict[str, Any]:
        """Return the contents of all small JSON files with this name next to the parts; empty if there are none."""
        notes = [read_json(path) for path in sorted(self.folder.glob(f"{name}.*.json"))]
        return {key: value for one in notes for key, value in one.items()}

    def write_note(self, name: str, value: dict[str, Any], first: int = 0) -> None:
        """Write a small JSON file; first: the number of the batch from which on it is about the pictures."""
        write_json(self.folder / f"{name}.{first:06}.json", value)

    def merged(self) -> pa.Table:
        """Return all parts as one table in the order of the pictures; one that was made twice is in it once."""
        try:
            tables = [read_checked(path, {}) for path in sorted(self.folder.glob("*-*.parquet"))]
        except UserError:
            self.remove()  # the next run makes them again
            raise
        table = pa.concat_tables(tables, promote_options="permissive")
        _, rows = np.unique(table["order"].to_numpy(), return_index=True)
        table = table.take(pa.array(rows))
        # Dictionaries are made again, since those of the parts depend on how the batches were divided.
        columns = [
            table[field.name].cast(pa.string()).cast(field.type)
            if pa.types.is_dictionary(field.type)
            else table[field.name].cast(field.type)
            for field in SCHEMA
        ]
        return pa.Table.from_arrays([column.combine_chunks() for column in columns], schema=SCHEMA)

    def remove(self) -> None:
        remove_folder(self.folder)


def parts_of(folder: Path, slug: str) -> list[Path]:
    """Return the folders of all unfinished runs of a model, also those with earlier settings."""
    pattern = re.compile(re.escape(slug) + r"-[0-9a-f]{12}-\d+")
    return [path for path in (folder / PARTS).glob("*-*-*") if pattern.fullmatch(path.name)]


def begun_size(folder: Path, slug: str, fingerprint: str) -> int | None:
    """Return the batch size of an unfinished run with the same fingerprint, or None."""
    for path in sorted((folder / PARTS).glob(f"{slug}-{fingerprint[:12]}-*")):
        size = path.name.rpartition("-")[2]
        if size.isdigit():
            return int(size)
    return None


def write_predictions(table: pa.Table, path: Path, fingerprint: str) -> None:
    """Write the table, with the fingerprint of everything that determines it."""
    write_parquet(path, table.replace_schema_metadata({FINGERPRINT: fingerprint}))


def is_finished(folder: Path, slug: str, fingerprint: str) -> bool:
    """Return whether `folder` contains the complete predictions with this fingerprint."""
    card, table = folder / f"{slug}.json", folder / f"{slug}.parquet"
    if not card.is_file() or not table.is_file():
        return False
    try:
        known = read_json(card)
        if known["fingerprint"] != fingerprint or stored_fingerprint(table) not in (None, fingerprint):
            return False
        return parquet.read_metadata(table).num_rows == known["rows"]
    except (UserError, KeyError, TypeError, OSError, pa.ArrowException):
        return False
