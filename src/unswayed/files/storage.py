"""Folders in object storage: commands work on a copy below the cache folder, and each written file is uploaded.

The working copy of s3://bucket/x is CACHE/remote/s3/bucket/x, so a path alone tells whether it lies in a working copy
and to which object it belongs.

Storage is the truth. A file is uploaded before it appears in the working copy, and removed there before it disappears
here, so a process that is killed at any moment leaves nothing in the copy that storage does not have. Pictures are
downloaded only when they are needed; every other file when the folder is opened, unless it has not changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath

from unswayed.errors import UserError

from . import objects
from .objects import SCHEMES, Entry

# pathlib turns s3://bucket into s3:/bucket.
_ADDRESS = re.compile(rf"({'|'.join(SCHEMES)}|file):/+(.*)", re.DOTALL)


def cache_folder() -> Path:
    """$UNSWAYED_CACHE, else `unswayed` in the user's cache folder."""
    if "UNSWAYED_CACHE" in os.environ:
        return Path(os.environ["UNSWAYED_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "unswayed"


def copies_folder() -> Path:
    """The folder of all working copies: $UNSWAYED_COPIES, else `remote` in the cache folder."""
    return Path(os.path.realpath(os.environ.get("UNSWAYED_COPIES") or cache_folder() / "remote"))


def is_address(given: str | Path) -> bool:
    """Whether a path given by the user is an address such as s3://bucket/bench."""
    return _ADDRESS.fullmatch(str(given)) is not None


def place_of(given: str | Path) -> Path:
    """The local path of what the user gave: the working copy of an address, and any other path as it is.

    >>> place_of("bench"), place_of("file:///data/bench"), place_of("s3://bucket/bench").relative_to(copies_folder())
    (PosixPath('bench'), PosixPath('/data/bench'), PosixPath('s3/bucket/bench'))
    """
    address = _ADDRESS.fullmatch(str(given))
    if address is None:
        return Path(given)
    scheme, rest = address.groups()
    if scheme == "file":
        return Path("/") / rest
    parts = [part for part in rest.split("/") if part]
    if parts and "@" in parts[0]:
        raise UserError(
            f"a {scheme}:// address contains '@', as if it held credentials",
            allowed="credentials in the environment or in the files of the storage's own tools",
        )
    if not parts or not _is_inside("/".join(parts)):
        raise UserError(f"{scheme}://{rest} is not an address", allowed=f"{scheme}://BUCKET/FOLDER")
    return copies_folder().joinpath(scheme, *parts)


def address_of(path: str | Path) -> str | None:
    """The address of a path in a working copy; None for any other path."""
    root, full = f"{copies_folder()}{os.sep}", os.path.abspath(path)
    scheme, _, rest = Path(full.removeprefix(root)).as_posix().partition("/")
    return f"{scheme}://{rest}" if full.startswith(root) and scheme in SCHEMES and rest else None


def address(path: str | Path) -> str:
    """A path as it is shown to the user and written into cards: the address of a working copy, any other as it is."""
    return address_of(path) or str(path)


def shown(text: str) -> str:
    """A message with addresses instead of the paths of working copies."""
    return re.sub(rf"{re.escape(str(copies_folder()))}/({'|'.join(SCHEMES)})/", r"\1://", text)


PICTURES = ("images", "masks")
SCRATCH = ".cache"  # a folder of intermediate results, which stays on its machine
PART = ".part"
_NO_RESULT = re.compile(r"(.*/)?(\.[^/]*lock[^/]*|[^/]*\.lock|\.[^/]*\.part)")  # locks and temporary files
_MANIFEST = "manifest.parquet"
_AT_ONCE = 16  # transfers


def local_copy(given: str | Path) -> Path:
    """The folder or file on this machine for a path or an address; what an address has is downloaded, less pictures."""
    if is_address(given):
        refresh(place_of(given))
    return place_of(given)


def reachable_copy(given: str | Path) -> Path:
    """As `local_copy`, but the working copy as it was left where the storage cannot be reached now."""
    with contextlib.suppress(UserError):
        return local_copy(given)
    return place_of(given)


def refresh(root: Path) -> None:
    """Make a working copy equal to its storage again, less pictures; does nothing for any other folder."""
    remote = address_of(root)
    if remote is None:
        return
    # Listed in this order: a file that another process writes meanwhile is in both lists or only in the second.
    here = set(_names(root, pictures=False))
    there = _usable(objects.listed(remote, (*PICTURES, SCRATCH)))
    for name in here - there.keys():
        (root / name).unlink(missing_ok=True)
    known = _known(remote)[1].get(_MANIFEST)
    replaced = _MANIFEST in here & there.keys() and not _is_same(root / _MANIFEST, there[_MANIFEST], known)
    _download(root, remote, there)
    if replaced:  # the pictures may be others now, with the same names
        for name in _names(root, pictures=True):
            (root / name).unlink(missing_ok=True)
    if not there:
        for folder in {PurePath(name).parts[0] for name in here} | set(PICTURES):
            shutil.rmtree(root / folder, ignore_errors=True)


def fetch_pictures(root: Path, only: Iterable[str] | None = None) -> None:
    """Download the pictures and masks of a working copy that are missing or not the same in storage.

    only: their paths relative to the folder; all if None. Does nothing for any other folder.
    """
    remote = address_of(root)
    if remote is None:
        return
    there = {
        f"{folder}/{name}": entry
        for folder in PICTURES
        for name, entry in _usable(objects.listed(f"{remote}/{folder}")).items()
    }
    wanted = set(_names(root, pictures=True)) | there.keys() if only is None else set(only)
    for name in wanted - there.keys():
        if _is_inside(name):
            (root / name).unlink(missing_ok=True)
    _download(root, remote, {name: entry for name, entry in there.items() if name in wanted})


def fetch_missing(path: str | Path) -> bool:
    """Download one file of a working copy if it is not there; whether it was downloaded."""
    remote = address_of(path)
    return remote is not None and not os.path.exists(path) and _get(remote, Path(path))


def upload(part: Path, path: Path) -> None:
    """Upload a complete temporary file as the object of `path`, if `path` lies in a working copy."""
    if (remote := _object_of(path)) is not None:
        with objects.opened("write", remote) as files:
            files.put_file(str(part), remote)


def remove_file(path: Path) -> None:
    """Remove a file, if it exists, and its object if it lies in a working copy."""
    if (remote := _object_of(path)) is not None:
        objects.remove(remote)
    path.unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    """Remove a folder of intermediate files as far as possible, and its objects if it lies in a working copy."""
    if (remote := _object_of(path)) is not None:
        with contextlib.suppress(UserError), objects.opened("remove", remote) as files:
            files.rm(remote, recursive=True)
    shutil.rmtree(path, ignore_errors=True)


def _object_of(path: Path) -> str | None:
    remote = address_of(path)
    return None if remote is None or SCRATCH in remote.split("/") else remote


def _usable(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The objects that belong to a folder: no locks and no names that would lead out of the working copy."""
    return {name: entry for name, entry in entries.items() if _is_inside(name) and not _NO_RESULT.fullmatch(name)}


def _is_inside(name: str) -> bool:
    """Whether the name of an object can be that of a file in its folder on this machine."""
    return not set(name) & {"\0", "\\"} and (not name or not {"", ".", ".."} & set(name.split("/")))


def _names(root: Path, pictures: bool) -> Iterator[str]:
    """The relative names of the files of a working copy: of its folders of pictures, or of all else."""
    for folder, folders, files in os.walk(root):
        inside = Path(folder).relative_to(root)
        if inside == Path("."):
            folders[:] = [name for name in folders if name != SCRATCH and (name in PICTURES) == pictures]
            files = [] if pictures else files
        yield from ((inside / name).as_posix() for name in files if not _NO_RESULT.fullmatch(name))


def _download(root: Path, remote: str, entries: Mapping[str, Entry]) -> None:
    """Download every entry that the working copy does not have in this state."""
    index, known = _known(remote)

    def settle(name: str) -> list[object] | None:
        path, entry = root / name, entries[name]
        same = _is_same(path, entry, known.get(name))
        if not same and not _get(f"{remote}/{name}" if name else remote, path):
            return None
        try:
            if not same and entry.written is not None:
                os.utime(path, (entry.written, entry.written))
            status = path.stat()
        except FileNotFoundError:
            return None
        if status.st_size == entry.size:
            return [entry.token, status.st_size, status.st_mtime_ns]
        if (now := objects.listed(f"{remote}/{name}" if name else remote).get("")) is None:
            return None
        if now.token == entry.token:  # nobody has written another one meanwhile
            path.unlink(missing_ok=True)
            short = f"only {status.st_size:,} of its {entry.size:,} bytes arrived"
            raise UserError(f"cannot read {remote}/{name}: {short}", run="the same command again")
        return None

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="download") as pool:
        now = dict(zip(entries, pool.map(settle, entries), strict=True))
    if any(known.get(name) != record for name, record in now.items()):
        kept = {name: record for name, record in {**known, **now}.items() if record is not None}
        index.parent.mkdir(parents=True, exist_ok=True)
        part = _part(index)
        part.write_text(json.dumps(kept))
        os.replace(part, index)


def _known(remote: str) -> tuple[Path, dict[str, list[object]]]:
    """The file of what was known when the copy was last compared, and that: name -> token in storage, size and time
    here."""
    index = copies_folder() / ".known" / f"{hashlib.sha256(remote.encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(index.read_bytes())
        return index, known if isinstance(known, dict) else {}
    return index, {}


def _is_same(path: Path, entry: Entry, known: object) -> bool:
    """Whether a file has the content of the object, from what is known about it or else by its MD5."""
    with contextlib.suppress(OSError):
        status = path.stat()
        if status.st_size != entry.size or known == [entry.token, status.st_size, status.st_mtime_ns]:
            return status.st_size == entry.size
        with open(path, "rb") as file:
            return entry.md5 is not None and hashlib.file_digest(file, "md5").hexdigest() == entry.md5
    return False


def _get(remote: str, path: Path) -> bool:
    """Download one object, which appears whole; False if it does not exist any more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _part(path)
    try:
        if not objects.get(remote, part):
            return False
        os.replace(part, path)
        return True
    finally:
        part.unlink(missing_ok=True)


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}{PART}")
