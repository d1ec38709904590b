"""The status of a long command: counted while it runs, shown by its progress line, and kept in a heartbeat file.

FOLDER/.heartbeat-<machine>-<process>.json      written every few seconds, and removed when the command ends
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from unswayed.errors import CannotWrite, UserError
from unswayed.files.records import read_object
from unswayed.files.storage import refresh
from unswayed.files.whole import Json, make_folder, remove_file, write_json

from .scheduling import WorkerState

EVERY = 5.0  # seconds between two heartbeats
STALE = 60.0  # seconds after which a process without a heartbeat is taken for dead
WAITS = 0.1  # the share of its time for which a worker that waits is mentioned
_NAME = ".heartbeat-{}-{}.json"


@dataclass(frozen=True)
class View:
    """What a long command has done: `done` of `total` units, of which `failed` ones; rate: units per second of this
    run; left: seconds; None if not known."""

    command: str
    unit: str
    done: int = 0
    total: int = 0
    failed: int = 0
    rate: float | None = None
    left: float | None = None
    note: str = ""
    workers: tuple[WorkerState, ...] = ()

    @property
    def remarks(self) -> list[str]:
        """What to say beside the numbers: failures, which workers do nothing or wait, and why."""
        reasons = {"starting": "is starting", "broken": "cannot be started", "ended": "is idle: no work is left"}
        remarks = [*([self.note] if self.note else []), *([f"{self.failed} failed"] if self.failed else [])]
        waits = []
        for worker in self.workers:
            if worker.state in reasons:
                remarks.append(f"{worker.name} {reasons[worker.state]}{f' ({worker.note})' * bool(worker.note)}")
            elif worker.waited >= WAITS:
                waits.append(f"{worker.name} waits for pictures {worker.waited:.0%} of the time (see --workers)")
        return remarks + waits


class Monitor:
    """A block in which a command counts what it has done; show: called with the view after every change.

    Heartbeats of processes that died in this folder are removed.
    A folder that is moved or deleted meanwhile is noticed at the next count, or where a file cannot be written to it.
    """

    def __init__(
        self, folder: Path, command: str, unit: str, show: Callable[[View], None] | None = None, every: float = EVERY
    ) -> None:
        self.folder, self.show, self.every = folder, show, every
        self.view = View(command, unit)
        self.made = False
        self.path = folder / _NAME.format(_machine(), os.getpid())
        self.begun: tuple[float, int] | None = None
        self.handle: int | None = None
        self.number, self.lock, self.ended = 0, threading.Lock(), threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True, name="heartbeat")

    def __enter__(self) -> Monitor:
        self.made = not self.folder.exists()
        make_folder(self.folder)
        with contextlib.suppress(OSError):  # Windows opens no folders
            self.handle = os.open(self.folder, os.O_RDONLY)
        for path, beat in _beats(self.folder).items():
            if _is_dead(beat) or path == self.path:
                remove_file(path)
        for path in self.folder.glob(f".{_NAME.format('*', '*')}.part"):
            machine, _, process = path.name.removesuffix(".json.part").removeprefix("..heartbeat-").rpartition("-")
            with contextlib.suppress(OSError):
                if _is_dead({"machine": machine, "process": process, "time": path.stat().st_mtime}):
                    path.unlink()  # of a process that was killed while it wrote
        self._write()
        self.thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.ended.set()
        self.thread.join()
        try:
            if isinstance(error, CannotWrite):
                self.check_folder()
        finally:
            with contextlib.suppress(OSError, UserError):
                remove_file(self.path)
                if self.made:
                    self.folder.rmdir()  # only if it is empty: the command was refused before it wrote anything
            if self.handle is not None:
                os.close(self.handle)

    def count(self, done: int, total: int, failed: int = 0, note: str = "") -> None:
        """Set what is done now; CannotWrite if the folder is gone."""
        self.check_folder()
        now = time.monotonic()
        self.begun = self.begun or (now, done)
        seconds, made = now - self.begun[0], done - self.begun[1]
        rate = made / seconds if made > 0 and seconds > 0 else None
        left = (total - done) / rate if rate else None
        self._change(done=done, total=total, failed=failed, note=note, rate=rate, left=left)

    def watch(self, workers: Sequence[WorkerState]) -> None:
        """Set what the workers do now; for `run_tasks`."""
        self._change(workers=tuple(workers))

    def check_folder(self, holding: str = "") -> None:
        """Raise CannotWrite if the folder, or the file `holding` in it, was moved or deleted since the block began.

        Whoever writes a file makes its folder, so one of the same name may be there: it is another folder.
        """
        if not self._is_there() or not (self.folder / holding).exists():
            raise CannotWrite(
                f"the folder {self.folder} was moved or deleted during the run of {self.view.command}",
                run="the same command again, with -o",
            )

    def _is_there(self) -> bool:
        if self.handle is None:
            return self.folder.is_dir()
        try:
            # The open handle keeps the number of the folder from being given to a new one.
            return os.path.samestat(os.fstat(self.handle), os.stat(self.folder))
        except OSError:
            return False

    def _change(self, **values: Any) -> None:
        with self.lock:
            self.view = replace(self.view, **values)
        if self.show is not None:
            self.show(self.view)

    def _beat(self) -> None:
        while not self.ended.wait(self.every):
            self._write()

    def _write(self) -> None:
        self.number += 1
        view = self.view
        beat = {"machine": _machine(), "process": os.getpid(), "number": self.number, "time": time.time()}
        # A folder that cannot be written to is reported by the command itself.
        with contextlib.suppress(OSError, UserError):
            if self._is_there():  # one that was moved or deleted must not be made again
                write_json(self.path, {**asdict(view), **beat, "remarks": view.remarks})


@dataclass(frozen=True)
class Heartbeat:
    """The last heartbeat of a process; alive: whether it has written one within the last minute."""

    alive: bool
    seconds_ago: float
    content: Json


def heartbeats(folder: Path, patience: float | None = None) -> list[Heartbeat]:
    """The processes that work, or worked until they were killed, in a folder.

    The clocks of two machines may differ. So if a heartbeat of another machine seems old, or to come from the future,
    it is read again after `patience` seconds, by default two heartbeats later: if its number has changed, the process
    is alive.
    """
    first = _beats(folder)
    age = {path: time.time() - float(beat.get("time") or 0) for path, beat in first.items()}
    foreign = [path for path, beat in first.items() if beat.get("machine") != _machine()]
    doubtful = [path for path in foreign if not 0 <= age[path] < STALE]
    if doubtful:
        time.sleep(2 * EVERY + 1 if patience is None else patience)
    again = _beats(folder) if doubtful else first
    last = []
    for path in (path for path in first if path in again):  # the others have just ended
        moved = again[path].get("number") != first[path].get("number")
        alive = moved or (path not in doubtful and not _is_dead(first[path]))
        last.append(Heartbeat(alive, 0.0 if moved else age[path], again[path]))
    return last


def _beats(folder: Path) -> dict[Path, Json]:
    refresh(folder)
    beats = {}
    for path in sorted(folder.glob(_NAME.format("*", "*"))):
        with contextlib.suppress(UserError):  # damaged, or its command has just ended
            beats[path] = read_object(path)
    return beats


def _machine() -> str:
    return re.sub(r"[^\w.-]+", "-", platform.node()) or "machine"


def _is_dead(beat: Json) -> bool:
    """Whether the process is known to have ended: it was on this machine, or its last heartbeat is old."""
    if beat.get("machine") == _machine() and os.name == "posix":  # on Windows this would send Ctrl-C
        try:
            os.kill(int(beat["process"]), 0)
        except ProcessLookupError:
            return True
        except (OSError, KeyError, TypeError, ValueError):
            pass
    return time.time() - float(beat.get("time") or 0) > STALE
