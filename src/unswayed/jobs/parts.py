"""Tables on disk: part files while they are made, from which a stopped run resumes, then one Parquet file and its card.

FOLDER/<name>.parquet, <name>.json      the rows, complete or absent, and then the card, which marks them as complete
FOLDER/parts/<name>/…                   rows of an unfinished table of items
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from unswayed.errors import UserError
from unswayed.files.records import read_object, versions
from unswayed.files.tables import array_of, read_checked, stored_text
from unswayed.files.whole import Json, canonical, read_json, remove_folder, write_json, write_parquet

# What cards say about numbers that are not exactly the same in every run.
FLOATS = (
    "the last digits of probabilities and scores depend on the kind of device and, for models that another runtime "
    "executes (ONNX, OpenVINO, TensorFlow Lite), on the number of threads"
)
SECONDS = 20.0  # between two part files of a table of items
KEY = "key"


def write_table(path: Path, table: pa.Table, card: Mapping[str, object], mark: str) -> None:
    """Write a finished table, then its card; both state the fingerprint, which is the field `mark` of the card."""
    write_parquet(path, table.replace_schema_metadata({f"unswayed.{mark}": card[mark]}))
    write_json(path.with_suffix(".json"), card)


def finished_card(path: Path, mark: str, fingerprint: str) -> Json | None:
    """The card of a finished table with this fingerprint; None without one.

    A run that is killed between the two files leaves the card of earlier settings, or none.
    """
    with contextlib.suppress(UserError):  # one of them is missing or damaged
        card = read_object(path.with_suffix(".json"))
        if card.get(mark) == fingerprint == stored_text(path, f"unswayed.{mark}".encode()):
            return card
    return None


class Parts:
    """The rows of an unfinished table in small Parquet files, written every few seconds, and notes beside them.

    Several processes may add different rows: every file has a name of its own, which is the numbers of its first and
    last batch or, for rows without a number, the prefix and a new id. done: the numbers of the batches in files.
    """

    def __init__(self, folder: Path, every: float = 0.0, prefix: str = "") -> None:
        self.folder, self.every, self.prefix, self.last = folder, every, prefix, time.monotonic()
        self.buffer: list[tuple[int | None, pa.Table]] = []
        self.unreadable: dict[str, str] = {}
        self.done: set[int] = set()
        for path in self.files() if not prefix else ():
            first, last = map(int, path.stem.split("-"))
            self.done |= set(range(first, last + 1))

    def files(self) -> list[Path]:
        return sorted(self.folder.glob(f"{self.prefix or '*-'}*.parquet"))

    def add(self, table: pa.Table, number: int | None = None, unreadable: Mapping[str, str] | None = None) -> None:
        """Add rows; they are written when enough time has passed, or before a gap in the numbers of batches.

        unreadable: items of the batch without rows, with the reasons.
        """
        if self.buffer and number is not None and self.buffer[-1][0] != number - 1:
            self.flush()
        self.unreadable |= unreadable or {}
        self.buffer.append((number, table))
        if time.monotonic() - self.last >= self.every:
            self.flush()

    def flush(self) -> None:
        if self.buffer:
            (first, _), (last, _) = self.buffer[0], self.buffer[-1]
            if self.unreadable:
                self.write_note("unreadable", self.unreadable, first or 0)
            # A new name for every part without numbers: process ids repeat, in containers always.
            name = f"{self.prefix}{uuid.uuid4().hex}" if first is None else f"{first:06}-{last:06}"
            table = pa.concat_tables([table for _, table in self.buffer], promote_options="permissive")
            write_parquet(self.folder / f"{name}.parquet", table)
            self.done |= {number for number, _ in self.buffer if number is not None}
            self.buffer, self.unreadable = [], {}
        self.last = time.monotonic()

    def notes(self) -> dict[str, Json]:
        """The contents of the small JSON files beside the parts by their names; those of equal names are one."""
        notes: dict[str, dict[str, object]] = defaultdict(dict)
        for path in sorted(self.folder.glob("*.*.json")):
            notes[path.name.partition(".")[0]] |= read_json(path)
        return notes

    def write_note(self, name: str, value: Mapping[str, object], first: int = 0) -> None:
        """Write a small JSON file; first: the number of the batch from which on it is about the items."""
        write_json(self.folder / f"{name}.{first:06}.json", value)

    def remove(self) -> None:
        remove_folder(self.folder)


@dataclass(frozen=True, eq=False)
class ItemTable:
    """A table with rows for every item of `ids`, each with its id in `id_column`.

    settings: everything that the rows depend on; rows of an earlier run with equal settings are kept, also those of
    items that are not among the ids.
    """

    path: Path
    settings: Json
    ids: Sequence[str]
    schema: pa.Schema
    id_column: str = "source_id"

    @property
    def key(self) -> str:
        return hashlib.sha256(canonical(self.settings).encode()).hexdigest()[:16]

    @property
    def folder(self) -> Path:
        return self.path.parent / "parts" / self.path.stem

    def parts(self) -> Parts:
        return Parts(self.folder, SECONDS, f"{self.key}-")

    def rows(self) -> pa.Table:
        """The rows of earlier runs with equal settings; those with other settings or other columns are ignored."""
        tables, seen = [self.schema.empty_table()], set[str]()
        for file in (*self.parts().files(), self.path):
            with contextlib.suppress(UserError):  # a damaged file is made again
                if file == self.path and stored_text(file, f"unswayed.{KEY}".encode()) != self.key:
                    continue
                table = read_checked(file, {})
                if not table.schema.equals(self.schema):
                    continue
                names = table[self.id_column].to_pylist()
                # An item that two processes measured is kept once.
                tables.append(table.filter(array_of([name not in seen for name in names], pa.bool_())))
                seen |= set(names)
        return pa.concat_tables(tables)

    def is_finished(self) -> bool:
        """Whether the file has rows of every item, or its card the reason why it has none."""
        card = finished_card(self.path, KEY, self.key)
        if card is None:
            return False
        stored = set(read_checked(self.path, {})[self.id_column].to_pylist())
        failures = card.get("failures")
        return stored | set(failures if isinstance(failures, dict) else ()) >= set(self.ids)

    def merge(self, failures: Mapping[str, str]) -> None:
        """Write the file and its card from the rows of all parts; UserError if those of an item are lost."""
        rows, position = self.rows(), {item: index for index, item in enumerate(self.ids)}
        order = [(position.get(item, len(position)), row) for row, item in enumerate(rows[self.id_column].to_pylist())]
        table = rows.take(array_of([row for _, row in sorted(order)], pa.int64()))  # those of other items at the end
        if not len(table):
            reasons = "; ".join(dict.fromkeys(failures.values())) or "the source is empty"
            raise UserError(f"no picture could be measured: {reasons[:500]}")
        measured = set(table[self.id_column].to_pylist())
        lost = set(self.ids) - measured - failures.keys()
        if lost:
            raise UserError(
                f"{len(lost)} of {len(self.ids)} pictures have no rows in {self.folder}, for example {min(lost)}: a "
                "part was deleted or damaged",
                run="the same command again, without --shard",
            )
        stated = {"settings": self.settings, KEY: self.key, "pictures": len(measured), "failures": dict(failures)}
        write_table(self.path, table, {**stated, "floats": FLOATS, "versions": versions()}, KEY)
        remove_folder(self.folder)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()
