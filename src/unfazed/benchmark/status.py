"""How a long run stands: what is done, what is left, whether someone is at it, and how long it will take."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unfazed.locks import is_held

from .card import read_card
from .layout import LOCK, MANIFEST, ROWS, row_path
from .rows import counts, finished_sources, read_rows

# The pace is that of the last so many sources: the first ones of a run also load and compile.
_RECENT = 50


@dataclass(frozen=True)
class Standing:
    """Sources done of all, rows by status, pace in sources a second and seconds left (None where not known)."""

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
        return {**asdict(self), "root": str(self.root)}


def standing(path: str | Path) -> Standing:
    """How the benchmark in `path` stands; nothing is changed by asking."""
    root = Path(path).expanduser()
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
    running = is_held(root / LOCK)
    pace = _pace(root, ids) if running else None
    left = (total - len(ids)) / pace if pace else None
    name = str(card["recipe"]["name"])
    complete = finished and len(ids) == total
    return Standing(root, "build", name, len(ids), total, counts(rows), running, complete, pace, left)


def _pace(root: Path, ids: set[str]) -> float | None:
    """Sources a second, from when the last row files were written."""
    times = sorted((root / row_path(one)).stat().st_mtime for one in ids if (root / ROWS).is_dir())[-_RECENT:]
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 2 and times[-1] > times[0] else None
