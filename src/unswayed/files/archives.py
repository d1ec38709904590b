"""Archives from outside, read without unpacking them: zip files, and tar files with or without compression.

with open_archive("ImageNet-E.zip") as archive:
    for member in archive.members:
        data = archive.read(member)

The name of a member is never used as a path. Names that climb out of the archive, and archives that hold far more than
their size allows, are refused before anything is read.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import lzma
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from unswayed.errors import UserError

from .whole import check_regular

KINDS = "a .zip, .tar, .tar.gz, .tar.bz2 or .tar.xz file"
# Pictures hardly shrink in an archive: one that unpacks to a hundred times its size holds none.
RATIO, ROOM = 100, 64 << 20
_LONGEST_HEADER = 1 << 20  # bytes
_LONG_NUMBER = re.compile(rb"[0-9]{100}")
_COMPRESSED: dict[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}


@dataclass(frozen=True)
class Member:
    """A file in an archive: its name with `/`, its size in bytes, and where its bytes are."""

    name: str
    size: int
    start: Any


@dataclass(frozen=True)
class Archive:
    """An open archive; `read` may be called from several threads."""

    members: Sequence[Member]
    read: Callable[[Member], bytes]
    path: Path


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive, whatever its name ends in; a compressed tar is decompressed into a temporary file."""
    with contextlib.ExitStack() as open_files:
        with _readable(path):
            if zipfile.is_zipfile(path):
                packed = open_files.enter_context(zipfile.ZipFile(path))
                files = [info for info in packed.infolist() if not info.is_dir()]
                _refuse_bomb(path, sum(info.file_size for info in files))
                members = [Member(info.filename, info.file_size, info) for info in files]
                archive = Archive(members, _readable(path)(lambda member: packed.read(member.start)), path)
            else:
                plain = _decompressed(path, open_files)
                archive = Archive(_tar_members(plain), _readable(path)(functools.partial(_part_of, plain)), path)
        for member in archive.members:
            parts = PurePosixPath(member.name.replace("\\", "/")).parts
            if ".." in parts or member.name.startswith(("/", "\\")) or ":" in (parts or ("",))[0]:
                raise UserError(
                    f"{path} has a member {member.name!r}, which climbs out of the archive",
                    allowed="an archive whose names stay inside it",
                )
        yield archive


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    check_regular(path)
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # what a damaged archive raises depends on where it is damaged
        reason = str(error).partition(":")[0] or type(error).__name__
        raise UserError(f"{path} is not a readable archive: {reason[:200]}", allowed=KINDS) from None


def _tar_members(plain: Path) -> list[Member]:
    members, last = [], -1
    with open(plain, "rb") as file, tarfile.open(fileobj=_Headers(file), mode="r:") as tar:  # type: ignore[call-overload]
        for header in tar:
            # A negative size leads back to an earlier member, and reading would never end.
            if header.size < 0 or header.offset <= last:
                raise tarfile.ReadError(f"the member {header.name[:100]!r} has {header.size} bytes")
            last = header.offset
            if header.isfile():
                members.append(Member(header.name, header.size, header.offset_data))
    return members


def _part_of(plain: Path, member: Member) -> bytes:
    with open(plain, "rb") as file:
        file.seek(member.start)
        return file.read(member.size)


class _Headers:
    """The headers of a tar as tarfile reads them, with bounds: it searches a long header in quadratic time."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.seek, self.tell = file, file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header has {size} bytes")
        data = self.file.read(size)
        if size > tarfile.BLOCKSIZE and _LONG_NUMBER.search(data):
            raise tarfile.ReadError("a header has a number of a hundred digits")
        return data


def _decompressed(path: Path, open_files: contextlib.ExitStack) -> Path:
    """The path of the plain tar: the file itself, or a temporary copy without its compression."""
    with open(path, "rb") as file:
        start = file.read(6)
    opener = next((opener for magic, opener in _COMPRESSED.items() if start.startswith(magic)), None)
    if opener is None:
        return path
    plain = Path(open_files.enter_context(tempfile.TemporaryDirectory())) / "plain.tar"
    with opener(path) as packed, open(plain, "wb") as copy:
        while block := packed.read(1 << 20):
            _refuse_bomb(path, copy.tell() + len(block))
            copy.write(block)
    return plain


def _refuse_bomb(path: Path, unpacked: int) -> None:
    packed = path.stat().st_size
    if unpacked > RATIO * packed + ROOM:
        raise UserError(
            f"{path} ({packed:,} bytes) unpacks to {unpacked:,} bytes or more, which no archive of pictures does",
            allowed=f"at most {RATIO} times its own size",
        )
