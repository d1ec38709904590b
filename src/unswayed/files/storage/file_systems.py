"""Which folders lie on a file system whose locks end with their process and are seen by every machine that uses it."""

from __future__ import annotations

import errno
import functools
import os
from pathlib import Path

from unswayed.errors import unknown

# Types of network file systems in /proc; `fuse.` stands for sshfs, s3fs, gcsfuse, glusterfs and the like.
_NETWORK = "9p afs beegfs ceph cifs coda fuse. glusterfs gpfs lustre ncpfs nfs nfs4 orangefs panfs smb3 smbfs wekafs"
_MOUNTS = Path("/proc/self/mountinfo")
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
KINDS = ("auto", "flock", "lease")


def needs_leases(folder: str | Path) -> bool:
    """Whether leases are used in this folder instead of file locks.

    They are on a network file system, whose locks other machines may not see, and on one without locks; $UNSWAYED_LOCKS
    set to `lease` or `flock` decides for every folder.
    """
    chosen = os.environ.get("UNSWAYED_LOCKS") or "auto"
    if chosen not in KINDS:
        raise unknown("kind of locks (UNSWAYED_LOCKS)", chosen, KINDS)
    if chosen != "auto":
        return chosen == "lease"
    try:
        return _is_network(os.stat(folder).st_dev) or not _offers_locks(folder)
    except OSError:
        return False


def _offers_locks(folder: str | Path) -> bool:
    """Whether files in this folder can be locked; True if that cannot be found out."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _NO_LOCKS
    finally:
        os.close(handle)
    return True


@functools.lru_cache(maxsize=64)
def _is_network(device: int) -> bool:
    """Whether the device of a mounted file system is on a network, by the table of mounts; False without a table."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        mount, _, kind = line.partition(" - ")
        if mount.split()[2] == number:
            return kind.split()[0] in _NETWORK.split() or kind.startswith("fuse.")
    return False
