"""A lock file that one process at a time can hold, so that two runs never write into one place."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from .errors import UserError
from .files import explained, make_folder

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class Lock:
    """A lock that ends with its process, and whose file is removed when it is released.

    On a file system that offers no locks, every process gets the lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # A soft lock would outlive a killed process, so there is no falling back to one.
        self._lock = FileLock(path, blocking=False, thread_local=False, fallback_to_soft=False)

    def take(self) -> bool:
        """Whether this process has the lock now: False where another process has it."""
        make_folder(self.path.parent)
        try:
            with explained(self.path):
                self._lock.acquire()
        except Timeout:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return True

    def release(self) -> None:
        """Let other processes take the lock; does nothing if this process does not have it."""
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
