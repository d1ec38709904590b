"""Which runs may write into one benchmark at the same time: either one run of the whole build, or shards of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from unswayed.errors import UserError
from unswayed.files.locks import alone, held_locks

from .layout import LOCK


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
