"""A file that one process at a time can hold, so that two runs never write into one place."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO

from .files import explained, make_folder

try:
    import fcntl
except ImportError:  # Windows: nobody is kept out
    fcntl = None  # type: ignore[assignment]

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class Lock:
    """A lock that ends with its process, and whose file is gone once it is let go.

    Where the file system locks nothing, nobody is kept out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def take(self) -> bool:
        """Whether it is ours now: False where another process has it."""
        if fcntl is None:
            return True
        make_folder(self.path.parent)
        with explained(self.path):
            file = open(self.path, "ab")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed the file between our opening and our locking it.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                self._file = file
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError as error:
            file.close()
            if error.errno in _NO_LOCKS:
                return True
            raise
        file.close()
        return False

    def release(self) -> None:
        if self._file is not None:
            self.path.unlink(missing_ok=True)
            self._file.close()
            self._file = None


def is_held(path: Path) -> bool:
    """Whether a process has the lock of that path."""
    if fcntl is None:
        return False
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
