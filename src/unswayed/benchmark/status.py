"""Which runs build in a folder, and the status of a build: what is done, what is left, and the remaining time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unswayed.errors import UserError
from unswayed.files.locks import alone, held_locks
from unswayed.files.storage import address, local_copy

from .card import read_card
from .rows import LOCK, MANIFEST, counts, finished_sources, read_manifest, read_rows, row_path


@contextlib.contextmanager
def only_run(root: Path, shard: str | None) -> Iterator[None]:
    """A block for one run: a shard refuses a second run of itself and one of the whole build, which refuses all."""
    busy = UserError(f"another run is building in {root}", run=f"unswayed status {root}")
    own = LOCK if shard is None else f"{LOCK}.{shard.replace('/', '-of-')}"
    with alone(root / own, busy):
        others = held_locks(root, LOCK, but=own)
        if others and (shard is None or LOCK in others):
            raise busy
        yield


# The pace is measured over this many recent sources, because the first ones of a run include loading and compiling.
_RECENT = 50


@dataclass(frozen=True)
class Standing:
    """Sources done and in total, rows by status, pace in sources per second and seconds left (None if unknown)."""

    root: Path
    kind: str
    recipe: str
    done: int
    total: int
    counts: dict[str, int]
    running: bool
    finished: bool
    pace: float | None = None
    left: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "root": address(self.root)}


def standing(path: str | Path) -> Standing:
    """Return the status of the benchmark in `path`; changes nothing."""
    root = local_copy(path).expanduser()
    card = read_card(root)
    total = int(card["source"]["scenes"])
    finished = (root / MANIFEST).is_file()
    if card.get("kind") == "import":
        statuses = read_manifest(root)["status"].to_pylist() if finished else []
        return Standing(root, "import", "imported", total, total, counts(statuses), False, finished)
    ids = finished_sources(root)
    by_status = counts(row.status for source_id in ids for row in read_rows(root, source_id))
    active = bool(held_locks(root, LOCK))
    # The times at which the last row files were written.
    times = sorted((root / row_path(source_id)).stat().st_mtime for source_id in ids)[-_RECENT:] if active else []
    pace = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 2 and times[-1] > times[0] else None
    left = (total - len(ids)) / pace if pace else None
    recipe, complete = str(card["recipe"]["name"]), finished and len(ids) == total
    return Standing(root, "build", recipe, len(ids), total, by_status, active, complete, pace, left)
