"""A lock that one process at a time can hold, so that two runs never write into one place.

On a local file system it is a file lock, which ends with its process at once. Where file locks are unreliable, which
is on network file systems and in object storage, it is a lease: a small file or object that its holder renews.

Whoever creates the file first holds the lease, and a thread renews it every few seconds. A lease that did not change
for `DEAD` seconds of the observer's own steady clock is taken over, so no clock is compared with that of another
machine and one that jumps does no harm. Of several observers the one that gets a lease on the takeover replaces it.

A holder that was paused for longer than that, and then continues, finds the lease changed and no longer renews it.
Both then work at once, which costs time and no data: they write the same bytes to the same files, each whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import stat
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from unswayed.errors import UserError

from . import objects
from .storage import address_of
from .whole import explained, make_folder, needs_leases


class Lock:
    """A lock that ends with its process, and whose file is removed when it is released."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock, self._lease = path, _file_lock(path), Lease(Slot(path))

    def take(self) -> bool:
        """Whether this process has the lock now: False where another process has it."""
        if address_of(self.path) is None:
            make_folder(self.path.parent)
        with explained(self.path), contextlib.suppress(Timeout):
            if _is_lease(self.path):
                return self._lease.take()
            self._lock.acquire()
            return True
        return False

    def release(self) -> None:
        """Let other processes take the lock; does nothing if this process does not have it."""
        self._lease.release()
        if self._lock.is_locked:
            # The file goes first: a process that has opened it meanwhile sees that it is gone and tries again.
            with contextlib.suppress(PermissionError):  # Windows removes no open file; there filelock does it
                self.path.unlink(missing_ok=True)
            self._lock.release()


@contextlib.contextmanager
def alone(path: Path, busy: str | None = None, run: str | None = None, wait: float = 0.0) -> Iterator[None]:
    """A block that one process at a time runs; raises UserError where another still does after `wait` seconds.

    busy, run: what the error says, by default that another run holds the lock, and what to run.
    """
    lock, patience = Lock(path), time.monotonic() + wait
    while not lock.take():
        if time.monotonic() >= patience:
            raise UserError(busy or f"another run holds {path}", run=run)
        time.sleep(0.02)
    try:
        yield
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Whether a process holds the lock at that path; a file that nobody holds stays as it is."""
    return path.name in held_locks(path.parent, path.name)


def _file_lock(path: Path) -> FileLock:
    # A soft lock would outlive a killed process, so there is no falling back to one.
    return FileLock(path, blocking=False, thread_local=False, fallback_to_soft=False)


def held_locks(folder: Path, prefix: str, but: str | None = None) -> set[str]:
    """The names of the locks in a folder that begin with `prefix` and that a process holds, of leases all at once.

    but: a name that is left out, such as that of the caller's own lock.
    """
    address = address_of(folder)
    paths = folder.glob(f"{prefix}*") if address is None else map(folder.joinpath, objects.names_in(address, prefix))
    others = [path for path in paths if path.name != but]
    if _is_lease(folder / prefix):
        return {slot.path.name for slot in _renewed(map(Slot, others))}
    held = set()
    for path in others:
        try:
            if path.exists():
                with _file_lock(path):
                    pass
        except Timeout:
            held.add(path.name)
        except OSError:
            pass
    return held


def _is_lease(path: Path) -> bool:
    return address_of(path) is not None or needs_leases(path.parent)


BEAT, DEAD, LOOK = 4.0, 20.0, 0.5  # seconds between renewals, until a lease counts as dead, between two looks
QUIET = 1.0  # seconds after which a wait is reported
_MOST = 2**16  # bytes of a lease


@dataclass(frozen=True)
class Slot:
    """A place for one small file that can be created exclusively: a file, or an object if it lies in a working copy."""

    path: Path

    def __str__(self) -> str:
        return self.address or str(self.path)

    @property
    def address(self) -> str | None:
        return address_of(self.path)

    def create(self, data: bytes) -> bool:
        if self.address is not None:
            return objects.create(self.address, data)
        with contextlib.suppress(FileExistsError), open(self.path, "xb") as file:
            file.write(data)
            return True
        return False

    def read(self) -> bytes | None:
        if self.address is not None:
            return objects.read(self.address)
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(self.path).st_mode):  # a pipe would be waited for without end
                raise UserError(f"the lock {self.path} is no file", run=f"rm -r {self.path}")
            with open(self.path, "rb") as file:
                return file.read(_MOST)
        return None

    def write(self, data: bytes) -> None:
        if self.address is not None:
            objects.write(self.address, data)
        else:
            # In place: a renewal must not create the folder again after somebody removed it.
            with open(self.path, "r+b") as file:
                file.write(data)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())

    def remove(self) -> None:
        if self.address is not None:
            objects.remove(self.address)
        else:
            self.path.unlink(missing_ok=True)

    def beside(self, suffix: str) -> Slot:
        return Slot(self.path.with_name(f"{self.path.name.removesuffix('.lock')}.{suffix}.lock"))


class Lease:
    """The right of one process to work on something, until it is released or its holder stops renewing it."""

    def __init__(self, slot: Slot) -> None:
        self.slot, self.holder, self.beats = slot, uuid.uuid4().hex, 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self) -> bool:
        """Whether this process holds the lease now. Takes up to `DEAD` seconds where the last holder was killed, and
        says so on stderr."""
        while not self.slot.create(self._record()):
            seen = self.slot.read()
            if seen is None:
                continue
            # Most leases are held for a moment only, so that one look is often enough.
            changed = _changed({self.slot: seen}, 0)
            if not changed:
                _say(f"waiting at most {DEAD:g} s: another run holds {self.slot}; this one continues if it was killed")
                changed = _changed({self.slot: seen}, DEAD - LOOK)
            if not changed:
                return self._take_over(seen)
            if changed[self.slot] is not None:
                return False
        self._hold()
        return True

    def _take_over(self, dead: bytes) -> bool:
        claim = Lease(self.slot.beside(hashlib.sha256(dead).hexdigest()[:16]))
        if not claim.take():
            return False
        try:
            if self.slot.read() != dead:
                return False
            self.slot.write(self._record())
        finally:
            claim.release()
        self._hold()
        return True

    def release(self) -> None:
        """Let others take the lease; does nothing if this process does not hold it."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        with contextlib.suppress(OSError, UserError):
            if self._is_ours():
                self.slot.remove()

    def _hold(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._renew, daemon=True, name="lease")
        self._thread.start()

    def _renew(self) -> None:
        while not self._stop.wait(BEAT):
            with contextlib.suppress(OSError, UserError):  # tried again at the next beat
                if not self._is_ours():
                    return
                self.beats += 1
                self.slot.write(self._record())

    def _is_ours(self) -> bool:
        return self.holder.encode() in (self.slot.read() or b"")

    def _record(self) -> bytes:
        facts = {"beats": self.beats, "holder": self.holder, "machine": platform.node(), "process": os.getpid()}
        return (json.dumps(facts) + "\n").encode()


def _changed(seen: Mapping[Slot, bytes], seconds: float) -> dict[Slot, bytes | None]:
    """The leases that are renewed within that time, as they are then: None if one is gone, as it was released."""
    changed: dict[Slot, bytes | None] = {}
    started, waited = time.monotonic(), -1.0
    while len(changed) < len(seen) and waited < seconds:
        time.sleep(LOOK)
        waited = time.monotonic() - started  # before the look, so that a pause of this process is not the holder's
        waiting = [slot for slot in seen if slot not in changed]
        changed |= {slot: now for slot in waiting if (now := slot.read()) != seen[slot]}
    return changed


def _renewed(slots: Iterable[Slot]) -> list[Slot]:
    """Those leases that somebody holds, as far as two beats can tell; says on stderr if that takes long."""
    seen = {slot: data for slot in slots if (data := slot.read()) is not None}
    changed = _changed(seen, min(QUIET, 2 * BEAT))
    waiting = {slot: data for slot, data in seen.items() if slot not in changed}
    if waiting and QUIET < 2 * BEAT:
        names = ", ".join(map(str, waiting))
        _say(f"waiting at most {2 * BEAT:g} s to see whether another run still holds {names}")
        changed |= _changed(waiting, 2 * BEAT - QUIET)
    return [slot for slot, now in changed.items() if now is not None]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
