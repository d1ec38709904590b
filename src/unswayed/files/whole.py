"""Files that appear whole or not at all: write to a temporary file, fsync, rename."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from unswayed.errors import CannotWrite, UserError, check_known

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from .storage import PART, upload
from .storage import remove_file as remove_file
from .storage import remove_folder as remove_folder

Json = dict[str, Any]  # an object of a JSON file, by its fields
if TYPE_CHECKING:
    import pyarrow

MOST_TEXT = 64 * 2**20  # bytes of a JSON or text file
MOST_PICTURE = 2**30  # bytes of a picture file
DEEPEST = 100  # lists and objects inside each other
_MANY_DIGITS = re.compile(r"[0-9]{19}")
_REMEDY = "df -h, or choose another -o"


@contextlib.contextmanager
def whole(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that replaces `path` when the block succeeds, and is removed when it does not."""
    path = Path(path)
    part = None
    try:
        with explained(path):
            part, file = _taken(path) or _new_beside(path)
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if fcntl is None:
                    file.close()  # Windows renames no open file
                upload(part, path)
                os.replace(part, path)
                part = None
    finally:
        if part is not None:
            with contextlib.suppress(OSError):
                os.unlink(part)


def _taken(path: Path) -> tuple[Path, IO[bytes]] | None:
    """The file `.NAME.part` beside `path`, empty and locked; None if another process is writing it, or could be
    without being seen: a lock on a network file system may hold for one machine only.

    Its name is always the same, so that what a killed process left there is used and renamed by the next one.
    """
    part = path.with_name(f".{path.name[:100]}{PART}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if fcntl is None or needs_leases(path.parent):
        return None
    try:
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ELOOP, errno.ENXIO):  # a folder, a link or a socket of that name
            return None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # a pipe or a device
        os.close(handle)
        return None
    file = os.fdopen(handle, "wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The process that had the lock may have renamed the file meanwhile: then it is complete and not ours.
        ours = os.path.samestat(os.fstat(file.fileno()), os.stat(part, follow_symlinks=False))
    except OSError:
        ours = False
    if not ours:
        file.close()
        return None
    file.truncate()
    return part, file


def _new_beside(path: Path) -> tuple[Path, IO[bytes]]:
    """A new file `.NAME.….part` beside `path`."""
    part = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}{PART}")
    return part, open(part, "xb")  # unlike the files of tempfile, which only their owner can read, by the umask


@contextlib.contextmanager
def explained(path: str | Path, run: str = _REMEDY) -> Iterator[None]:
    """A block in which a full disk, a missing permission and the like become a CannotWrite that names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in _CAUSES:
            raise CannotWrite(f"cannot write {path}: {_CAUSES[error.errno]}", run=run) from error
        raise


def cause_of(error: OSError) -> str | None:
    """What a person has to know of an error that the names and rights of files can have; None for any other."""
    expected = error.filename is not None and error.errno not in (errno.ENOENT, errno.EEXIST)
    return _CAUSES.get(error.errno or 0) if expected else None


def check_writable(path: str | Path, run: str = _REMEDY) -> None:
    """Raises UserError, before any work is done, if a file could not be written."""
    with explained(path, run):
        if os.path.isdir(path):
            raise UserError(f"the output {path} is a folder", allowed="a file")
        folder = next(folder for folder in Path(path).absolute().parents if folder.exists())
        tempfile.TemporaryFile(dir=folder).close()


def make_folder(path: str | Path) -> Path:
    with explained(path):
        Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


def write_bytes(path: str | Path, data: bytes) -> None:
    with whole(path) as file:
        file.write(data)


def write_json(path: str | Path, value: object) -> None:
    """`value` as indented JSON with sorted keys, so that two equal records are equal bytes."""
    write_bytes(path, (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode())


def write_parquet(path: str | Path, table: pyarrow.Table) -> None:
    """`table` as a Parquet file; equal tables are equal bytes."""
    import pyarrow.parquet as parquet

    with whole(path) as file:
        parquet.write_table(table, file, compression="zstd")


def write_records(path: str | Path, columns: pyarrow.Schema, records: Iterable[Mapping[str, object]]) -> None:
    """Records by column as a Parquet file, mappings and lists in them as JSON text."""
    import pyarrow

    write_parquet(path, pyarrow.Table.from_pylist(list(map(flat_record, records)), schema=columns))


def flat_record(record: Mapping[str, object]) -> dict[str, object]:
    """The values of a record with mappings and lists as JSON text."""
    return {name: canonical(value) if isinstance(value, dict | list) else value for name, value in record.items()}


def parquet_columns(columns: str) -> pyarrow.Schema:
    """The columns of a Parquet file, written as `name:type` and separated by spaces; without a type a column is text.

    >>> parquet_columns("model n:int64").types
    [DataType(string), DataType(int64)]
    """
    import pyarrow

    named = (column.partition(":") for column in columns.split())
    return pyarrow.schema([pyarrow.field(name, kind or "string") for name, _, kind in named])


def check_regular(path: str | Path, most: int | None = None) -> None:
    """Raise UserError unless `path` is a file of at most `most` bytes: a pipe or a device could be read for ever."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # no permission, a name that is too long or contains NUL
        raise UserError(f"{str(path)[:300]!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path} is {'a folder' if stat.S_ISDIR(status.st_mode) else 'no file'}", allowed="a file")
    if most is not None and status.st_size > most:
        raise UserError(f"{path} has {status.st_size:,} bytes", allowed=f"at most {most:,}")


def read_file(path: str | Path, most: int) -> bytes:
    """The content of a file of at most `most` bytes; UserError if it cannot be read."""
    check_regular(path, most)
    try:
        with open(path, "rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def read_json(path: str | Path, most: int = MOST_TEXT) -> Any:
    """The value in a JSON file; UserError if it is larger than `most` bytes or not JSON."""
    return parse_json(read_file(path, most), str(path))


def parse_json(data: bytes | str, where: str) -> Any:
    """The value of a JSON text; UserError, which names `where`, also for one that is nested too deeply."""
    try:
        text = data if isinstance(data, str) else data.decode(json.detect_encoding(data), "surrogatepass")
        # What does not fit into 64 bits is no label, count or seed, and no table can hold it.
        value = json.loads(text, parse_int=_bounded if _MANY_DIGITS.search(text) else None)
        if _is_deep(value):
            raise RecursionError
        # Half of a surrogate pair is valid in JSON, but no file and no terminal can show it.
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError:
        raise UserError(f"{where} is not readable JSON: it is nested too deeply") from None
    except ValueError as error:
        raise UserError(f"{where} is not readable JSON: {error}") from None


def _bounded(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:
        raise ValueError(f"the whole number {digits[:20]}… does not fit into 64 bits")
    return int(digits)


def _is_deep(value: object) -> bool:
    """Whether lists and objects are nested more than DEEPEST deep, which functions that follow them could not do."""
    level = [value]
    for _ in range(DEEPEST + 1):
        holders = [item for item in level if isinstance(item, (dict, list))]
        if not holders:
            return False
        level = [item for holder in holders for item in (holder.values() if isinstance(holder, dict) else holder)]
    return True


def read_toml(path: str | Path, what: str) -> Json:
    """The content of a TOML file; `what` is what an error calls the file."""
    import tomllib

    text = "\n".join(read_lines(path, what))
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not TOML: {error}") from None


def read_lines(path: str | Path, what: str) -> list[str]:
    """The lines of a text file, without a byte-order mark; `what` is what an error calls the file."""
    try:
        return read_file(os.path.expanduser(path), MOST_TEXT).decode("utf-8-sig").splitlines()
    except UserError as error:
        raise UserError(f"the {what} {error.given}", allowed=error.allowed) from None
    except UnicodeDecodeError as error:
        raise UserError(f"the {what} {path} cannot be read as text ({error})") from None


def read_names(path: str | Path, what: str) -> list[str]:
    """The names in a text file, one on each line; empty lines are left out."""
    return [line.strip() for line in read_lines(path, what) if line.strip()]


def sha256(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical(value: object) -> str:
    """JSON that is identical for equal values: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def hash_values(values: Iterable[object], digits: int = 64) -> list[str]:
    """The SHA-256 of the canonical JSON of each value, or its first digits."""
    return [hashlib.sha256(canonical(value).encode()).hexdigest()[:digits] for value in values]


_CAUSES = {
    errno.ENOENT: "there is no such folder, and it cannot be created",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EROFS: "the file system is read-only",
    errno.EEXIST: "a part of that path is a file, not a folder",
    errno.ENOTDIR: "a part of that path is a file, not a folder",
    errno.EISDIR: "it is a folder",
    errno.ELOOP: "its links lead in a circle",
}

# Types of network file systems in /proc; `fuse.` stands for sshfs, s3fs, gcsfuse, glusterfs and the like.
_NETWORK = "9p afs beegfs ceph cifs coda fuse. glusterfs gpfs lustre ncpfs nfs nfs4 orangefs panfs smb3 smbfs wekafs"
_MOUNTS = Path("/proc/self/mountinfo")
KINDS = ("auto", "flock", "lease")


def needs_leases(folder: str | Path) -> bool:
    """Whether leases are used in this folder instead of file locks.

    They are on a network file system, whose locks other machines may not see, and on one without locks; $UNSWAYED_LOCKS
    set to `lease` or `flock` decides for every folder.
    """
    chosen = os.environ.get("UNSWAYED_LOCKS") or "auto"
    if chosen != "auto":
        check_known("kind of locks (UNSWAYED_LOCKS)", [chosen], KINDS)
        return chosen == "lease"
    try:
        if fcntl is None or _is_network(os.stat(folder).st_dev):
            return fcntl is not None
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
    finally:
        os.close(handle)
    return False


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
