"""`TableJob`: items × models → rows, in shares of the items that worker processes make, and one table for each model.

A work says what an item is and makes the rows of a share; the job divides the items among devices and shards, isolates
what ends a process, and collects the replies until a table can be merged. The rows are in part files (`parts.py`), so a
stopped job resumes.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from unswayed.errors import UserError
from unswayed.files.locks import Lock
from unswayed.files.storage import refresh
from unswayed.files.whole import read_json, remove_file, write_json

from . import EngineSettings, engine_of, run_tasks
from .monitor import Monitor
from .scheduling import Outcome

MOST_POISONED = 20  # items of one share that may end the process that reads them
SHARES_EACH = 4  # for each worker process, so that none waits long for the last one
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Share:
    """A task: part `number` of `count` equal parts of the items, for each of the tables.

    skipped: items that end the process that reads them, with the reason. careful: one item and one model at a time,
    with a journal that says afterwards which of them ended the process.
    """

    tables: tuple[Hashable, ...]
    number: int = 0
    count: int = 1
    skipped: tuple[tuple[str, str], ...] = ()
    careful: bool = False

    def of(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items of this share.

        >>> [list(Share((), number, 2).of("abcde")) for number in (0, 1)]
        [['a', 'b'], ['c', 'd', 'e']]
        """
        return items[self.number * len(items) // self.count : (self.number + 1) * len(items) // self.count]


@dataclass(frozen=True, eq=False)
class Reply:
    """What became of one table in one share: a result that the work knows how to merge, or the reason of a failure."""

    table: Hashable
    result: Any = None
    error: str | None = None


class TableWork(Protocol):
    """Makes the rows of shares, also in another process, to which it is sent.

    counted: called with the number of new rows, as they are made.
    """

    counted: Callable[[int], None] | None

    def __call__(self, share: Share, device: str | None = None) -> list[Reply]:
        """What became of each table of the share; the rows are in part files."""

    def journal(self, share: Share) -> Path:
        """The file of the journal of a careful share."""


@dataclass(eq=False)
class TableJob:
    """One run over the tables; total: how many rows this run counts for the monitor."""

    engine: EngineSettings
    monitor: Monitor
    total: int
    done: int = 0
    failed: int = 0
    replies: dict[Hashable, list[Reply]] = field(default_factory=dict)
    expected: Counter[Hashable] = field(default_factory=Counter)

    @cached_property
    def devices(self) -> list[str]:
        return engine_of(self.engine).places(self.engine)

    def count(self, more: int) -> None:
        self.done = min(self.total, self.done + more)
        self.monitor.count(self.done, self.total, self.failed)

    def run(
        self, work: TableWork, groups: Sequence[Sequence[Hashable]], shares: int = 1, here: str | None = None
    ) -> Iterator[tuple[Hashable, list[Reply]]]:
        """Each table with its replies, once all its shares of this run are done; CannotWrite if the folder is gone.

        groups: tables whose rows are made together; shares: into how many each group is divided. here: the device of
        this process, which then does the work; otherwise also a single device has a process for itself, so that an
        item or a model that ends it fails alone.
        """
        number, of = self.engine.parts
        parts = range((number - 1) * shares, number * shares)
        tasks = [Share(tuple(group), part, of * shares) for group in groups for part in parts]
        self.expected.update(table for task in tasks for table in task.tables)
        broken = []
        for outcome in self._outcomes(work, tasks, self.devices if here is None else [here], here is None):
            if outcome.result is not None:
                yield from self._collected(outcome.result)
            elif here is None:
                broken.append(outcome.task)
            else:
                yield from self._collected([Reply(table, error=outcome.failure) for table in outcome.task.tables])
        for share in broken:
            yield from self._with_care(work, share)

    def merged(
        self,
        lock: Path,
        is_complete: Callable[[], bool],
        finished: Callable[[], Result | None],
        merge: Callable[[], Result],
    ) -> Result | None:
        """The result of a table of which all shares of this run are done; None if that is left to another shard.

        is_complete: whether the parts of all shards are there; finished: the result if another shard has merged them.
        """
        if self.engine.parts[1] == 1:
            return merge()
        refresh(self.monitor.folder)  # for parts that other machines have made
        result, merging = finished(), Lock(lock)
        if result is not None or not is_complete() or not merging.take():
            return result
        try:
            return finished() or merge()
        finally:
            merging.release()

    def _outcomes(
        self, work: TableWork, shares: Sequence[Share], devices: Sequence[str], apart: bool = True
    ) -> Iterator[Outcome]:
        engine, watch = self.engine if apart else None, self.monitor.watch
        return run_tasks(work, shares, 1, engine, devices=devices, apart=apart, watch=watch, counted=self.count)

    def _collected(self, replies: Sequence[Reply]) -> Iterator[tuple[Hashable, list[Reply]]]:
        for reply in replies:
            self.replies.setdefault(reply.table, []).append(reply)
            self.expected[reply.table] -= 1
            if not self.expected[reply.table]:
                self.monitor.check_folder()
                yield reply.table, self.replies.pop(reply.table)

    def _with_care(self, work: TableWork, share: Share) -> Iterator[tuple[Hashable, list[Reply]]]:
        """Repeat a share whose process died twice: the item or model that ends it fails, and the others are done."""
        failed = [table for table in share.tables if any(reply.error for reply in self.replies.get(table, []))]
        yield from self._collected([Reply(table, error="it failed in another part") for table in failed])
        share = replace(share, careful=True, tables=tuple(table for table in share.tables if table not in failed))
        while share.tables:
            _last_entry(work.journal(share))  # left by an earlier run
            outcome = next(iter(self._outcomes(work, [share], self.devices[:1])))
            if outcome.result is not None:
                yield from self._collected(outcome.result)
                return
            kind, name = _last_entry(work.journal(share))
            if kind == "picture" and len(share.skipped) < MOST_POISONED:
                share = replace(share, skipped=(*share.skipped, (name, f"{name}: {outcome.failure}")))
                continue
            guilty = [table for table in share.tables if kind == "model" and table == name] or share.tables
            yield from self._collected([Reply(table, error=outcome.failure) for table in guilty])
            share = replace(share, tables=tuple(table for table in share.tables if table not in guilty))


Journal = Callable[[str, str], None]


@contextlib.contextmanager
def journal_at(path: Path) -> Iterator[Journal]:
    """A function that writes what this process is about to do, to a file that the end of the block removes: a `picture`
    that is about to be read, or a `model` that is about to be used, and its name."""
    try:
        yield lambda kind, name: write_json(path, {"kind": kind, "name": name})
    finally:
        remove_file(path)


def _last_entry(path: Path) -> tuple[str, str]:
    """Return and delete the last entry of a process that died: a kind and a name, which are empty without one."""
    try:
        entry = read_json(path)
        return str(entry["kind"]), str(entry["name"])
    except (UserError, KeyError, TypeError):
        return "", ""
    finally:
        with contextlib.suppress(OSError):
            remove_file(path)
