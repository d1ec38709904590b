"""A lock that one process at a time can hold, so that two runs never write into one place.

On a local file system it is a file lock, which ends with its process at once. Where file locks are unreliable, which
is on network file systems and in object storage, it is a lease (`storage.leases`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from unswayed.errors import UserError

from .storage.addresses import address_of
from .storage.file_systems import needs_leases
from .storage.leases import Lease, are_renewed, slot_of, slots_in
from .whole import explained, make_folder


class Lock:
    """A lock that ends with its process, and whose file is removed when it is released."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A soft lock would outlive a killed process, so there is no falling back to one.
        self._lock = FileLock(path, blocking=False, thread_local=False, fallback_to_soft=False)
        self._lease = Lease(slot_of(path))

    def take(self) -> bool:
        """Whether this process has the lock now: False where another process has it."""
        if address_of(self.path) is None:
            make_folder(self.path.parent)
        with explained(self.path):
            if _is_lease(self.path):
                return self._lease.take()
            try:
                self._lock.acquire()
            except Timeout:
                return False
            return True

    def release(self) -> None:
        """Let other processes take the lock; does nothing if this process does not have it."""
        self._lease.release()
        if self._lock.is_locked:
            # The file goes first: a process that has opened it meanwhile sees that it is gone and tries again.
            self.path.unlink(missing_ok=True)
            self._lock.release()


@contextlib.contextmanager
def alone(path: Path, refusal: UserError, wait: float = 0.0) -> Iterator[None]:
    """A block that one process at a time runs; raises `refusal` where another still does after `wait` seconds."""
    lock, patience = Lock(path), time.monotonic() + wait
    while not lock.take():
        if time.monotonic() >= patience:
            raise refusal
        time.sleep(0.02)
    try:
        yield
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Whether a process holds the lock at that path; a file that nobody holds stays as it is."""
    if _is_lease(path):
        return are_renewed({path.name: slot_of(path)})[path.name]
    lock = FileLock(path, blocking=False, thread_local=False, fallback_to_soft=False)
    try:
        if path.exists():
            with lock:
                pass
    except Timeout:
        return True
    except OSError:
        pass
    return False


def held_locks(folder: Path, prefix: str, but: str | None = None) -> set[str]:
    """The names of the locks in a folder that begin with `prefix` and that a process holds, of leases all at once.

    but: a name that is left out, such as that of the caller's own lock.
    """
    if not _is_lease(folder / prefix):
        return {path.name for path in folder.glob(f"{prefix}*") if path.name != but and is_held(path)}
    slots = {name: slot for name, slot in slots_in(folder, prefix).items() if name != but}
    return {name for name, renewed in are_renewed(slots).items() if renewed}


def _is_lease(path: Path) -> bool:
    return address_of(path) is not None or needs_leases(path.parent)
