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
from .rows import LOCK, MANIFEST, ROWS, counts, finished_sources, read_rows, row_path


@contextlib.contextmanager
def only_run(root: Path, shard: str | None) -> Iterator[None]:
    """A block for one run: a shard refuses a second run of itself and one of the whole build, which refuses all."""
    busy = UserError(f"another run is building in {root}", run=f"unswayed status {root}")
    own = root / _lock(shard)
    with alone(own, busy):
        if any(None in (shard, _shard(other)) for other in held_locks(root, LOCK, but=own.name)):
            raise busy
        yield


def running(root: Path) -> bool:
    """Whether a run is building in this folder."""
    return bool(held_locks(root, LOCK))


def _lock(shard: str | None) -> str:
    return LOCK if shard is None else f"{LOCK}.{shard.replace('/', '-of-')}"


def _shard(lock: str) -> str | None:
    return lock.removeprefix(LOCK) or None


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
    pace: float | None
    left: float | None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "root": address(self.root)}


def standing(path: str | Path) -> Standing:
    """Return the status of the benchmark in `path`; changes nothing."""
    root = local_copy(path).expanduser()
    card = read_card(root)
    total = int(card["source"]["scenes"])
    finished = (root / MANIFEST).is_file()
    if card.get("kind") == "import":
        from .folder import Benchmark

        statuses = Benchmark(root).manifest.column("status").to_pylist() if finished else []
        by_status = {status: statuses.count(status) for status in ("ok", "skipped", "failed")}
        return Standing(root, "import", "imported", total, total, by_status, False, finished, None, None)
    ids = finished_sources(root)
    rows = [row for one in sorted(ids) for row in read_rows(root, one)]
    active = running(root)
    pace = _pace(root, ids) if active else None
    left = (total - len(ids)) / pace if pace else None
    name = str(card["recipe"]["name"])
    complete = finished and len(ids) == total
    return Standing(root, "build", name, len(ids), total, counts(rows), active, complete, pace, left)


def _pace(root: Path, ids: set[str]) -> float | None:
    """Return sources per second, from the times at which the last row files were written."""
    times = sorted((root / row_path(one)).stat().st_mtime for one in ids if (root / ROWS).is_dir())[-_RECENT:]
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 2 and times[-1] > times[0] else None
