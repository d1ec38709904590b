"""Addresses of object storage, and where the working copy of each is: s3://bucket/x is CACHE/remote/s3/bucket/x.

A path alone tells whether it lies in a working copy and to which object it belongs, so that any process can tell.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from unswayed.errors import UserError

# Scheme -> the package that opens it, which is the extra of the same name; None needs no package.
SCHEMES: dict[str, str | None] = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "memory": None}
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
    found = _ADDRESS.fullmatch(str(given))
    if found is None:
        return Path(given)
    scheme, rest = found.groups()
    if scheme == "file":
        return Path("/") / rest
    parts = [part for part in rest.split("/") if part]
    if parts and "@" in parts[0]:
        raise UserError(
            f"a {scheme}:// address contains '@', as if it held credentials",
            allowed="credentials in the environment or in the files of the storage's own tools",
        )
    if not parts or any(not is_plain(part) for part in parts):
        raise UserError(f"{scheme}://{rest} is not an address", allowed=f"{scheme}://BUCKET/FOLDER")
    return copies_folder().joinpath(scheme, *parts)


def is_plain(part: str) -> bool:
    """Whether one part of an object's name can be a file name on this machine."""
    return part not in ("", ".", "..") and not set(part) & {"\0", "\\"}


def address_of(path: str | Path) -> str | None:
    """The address of a path in a working copy; None for any other path."""
    root, place = f"{copies_folder()}{os.sep}", os.path.abspath(path)
    if not place.startswith(root):
        return None
    scheme, _, rest = Path(place[len(root) :]).as_posix().partition("/")
    return f"{scheme}://{rest}" if scheme in SCHEMES and rest else None


def address(path: str | Path) -> str:
    """A path as it is shown to the user and written into cards: the address of a working copy, any other as it is."""
    return address_of(path) or str(path)


def shown(text: str) -> str:
    """A message with addresses instead of the paths of working copies."""
    return re.sub(rf"{re.escape(str(copies_folder()))}/({'|'.join(SCHEMES)})/", r"\1://", text)
