"""Objects of any storage that fsspec opens: list, get, put, remove and create exclusively, with errors in plain words.

An object appears whole or not at all. No message contains the text of another library's error, which may hold
credentials.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import logging
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from unswayed.errors import UserError, need

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

# Scheme -> the package that opens it, which is the extra of the same name; None needs no package.
SCHEMES: dict[str, str | None] = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "memory": None}
Result = TypeVar("Result")
_LOGGERS = ("adlfs", "azure", "gcsfs", "google", "s3fs")
PATIENCE = 5.0  # seconds until a storage that does not answer the first request counts as unreachable


@dataclass(frozen=True)
class Entry:
    """An object in a listing: its size in bytes, a token that changes with its content, its MD5 if it is known, and
    when it was written, in seconds since 1970."""

    size: int
    token: str
    md5: str | None
    written: float | None


def listed(address: str, without: tuple[str, ...] = ()) -> dict[str, Entry]:
    """Every object below an address by its relative name, except those in some of its folders; the object
    of that address itself is ""."""
    with opened("read", address) as files:
        try:
            entries = _answered(lambda: files.ls(address, detail=True), address)
        except FileNotFoundError:
            if _lacks_bucket(files, address):
                raise
            return {}
        for name in [entry["name"] for entry in entries if entry["type"] == "directory"]:
            if name.rstrip("/").rpartition("/")[2] not in without:
                entries += files.find(name, detail=True).values()
        root = str(files._strip_protocol(address)).rstrip("/")
        listed_files = [entry for entry in entries if entry["type"] != "directory"]
        return {entry["name"][len(root) :].lstrip("/"): _entry(entry) for entry in listed_files}


def names_in(address: str, prefix: str) -> list[str]:
    """The names of the objects directly in a folder that begin with `prefix`."""
    with opened("read", address) as files, contextlib.suppress(FileNotFoundError):
        names = [str(name).rpartition("/")[2] for name in files.ls(address, detail=False)]
        return [name for name in names if name.startswith(prefix)]
    return []


def get(address: str, path: Path) -> bool:
    """Download an object to a file; False if there is no such object."""
    with opened("read", address) as files:
        try:
            files.get_file(address, str(path))
        except FileNotFoundError:
            if _lacks_bucket(files, address):
                raise
            return False
    return True


def read(address: str) -> bytes | None:
    """The content of a small object; None if there is none."""
    with opened("read", address) as files, contextlib.suppress(FileNotFoundError):
        return bytes(files.cat_file(address))
    return None


def write(address: str, data: bytes) -> None:
    with opened("write", address) as files:
        files.pipe_file(address, data)


def create(address: str, data: bytes) -> bool:
    """Write an object unless it exists, which is one step for the storage; whether it was written."""
    with opened("write", address) as files, contextlib.suppress(FileExistsError):
        _answered(lambda: files.pipe_file(address, data, mode="create"), address)
        return True
    return False


def remove(address: str) -> None:
    with opened("remove", address) as files, contextlib.suppress(FileNotFoundError, KeyError):
        files.rm_file(address)


@contextlib.contextmanager
def opened(verb: str, address: str) -> Iterator[AbstractFileSystem]:
    """The file system of an address, opened once in each process; every error of a storage library in the block
    becomes a UserError that names the object and the cause."""
    scheme = address.partition("://")[0]
    package = SCHEMES[scheme]
    if package is not None:
        need(scheme, package)
    import fsspec

    for name in _LOGGERS if not logging.getLogger(_LOGGERS[0]).handlers else ():
        # Their errors would also be printed with a traceback in a program that has not set up logging.
        logging.getLogger(name).addHandler(logging.NullHandler())
    doing = "open"
    try:
        files = fsspec.filesystem(scheme, use_listings_cache=False)
        files.invalidate_cache()
        doing = verb
        yield files
    except UserError:
        raise
    except Exception as error:
        # adlfs without credentials, or with some that cannot be read, raises a ValueError when it is opened
        unusable = doing == "open" and isinstance(error, ValueError)
        cause = _NO_CREDENTIALS if unusable else _cause(error)
        raise UserError(f"cannot {doing} {address}: {cause}", run="the same command again") from error


def _lacks_bucket(files: AbstractFileSystem, address: str) -> bool:
    """Whether there is no such bucket, which most libraries report like a missing object.

    False if that cannot be found out, as with credentials for some folders only or in a bucket of very many objects.
    """
    scheme, _, rest = address.partition("://")
    try:
        _answered(lambda: files.ls(f"{scheme}://{rest.partition('/')[0]}"), address)
    except Exception as error:
        return isinstance(error, FileNotFoundError)
    return False


def _answered(call: Callable[[], Result], address: str) -> Result:
    """The result of a first request, or an error after a few seconds where a library would try for a minute."""
    future: Future[Result] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name="storage").start()
    try:
        return future.result(PATIENCE)
    except TimeoutError:
        if future.done():
            raise
        raise UserError(
            f"cannot reach {address}: no answer within {PATIENCE:g} seconds",
            run="the same command again, with a network",
        ) from None


def _entry(info: dict[str, Any]) -> Entry:
    token = str(next((info[name] for name in ("ETag", "etag", "md5Hash", "created", "mtime") if info.get(name)), ""))
    md5 = token.strip('"') if re.fullmatch(r'"?[0-9a-f]{32}"?', token) else None
    if info.get("md5Hash"):  # Google
        md5 = base64.b64decode(info["md5Hash"]).hex()
    stored = (info.get("content_settings") or {}).get("content_md5")  # Azure
    times = (info.get(name) for name in ("LastModified", "last_modified", "mtime", "created"))
    written = next((time.timestamp() for time in times if isinstance(time, datetime)), None)
    return Entry(int(info["size"]), token, bytes(stored).hex() if stored else md5, written)


def _cause(error: Exception) -> str:
    if getattr(error, "errno", None) == errno.ENOSPC:
        return "the disk of the cache folder is full"
    names = {kind.__name__ for cause in (error, error.__cause__) if cause is not None for kind in type(cause).__mro__}
    for cause, kinds in _CAUSES.items():
        if names & set(kinds.split()):
            return cause
    # The HTTP status in an error of gcsfs or of Azure's library; an OSError of gcsfs has no other sign than its text.
    forbidden = str(error).startswith("Forbidden: ")
    statuses = [403] if forbidden else [getattr(error, name, None) for name in ("status_code", "code")]
    for status, refusal in _REFUSALS.items():
        if status in statuses:
            return refusal
    # The short code that S3 or Azure gives an error, such as NoSuchBucket.
    response = getattr(error.__cause__, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else getattr(error, "error_code", None)
    code = str(getattr(code, "value", code))
    return code if re.fullmatch(r"\w{1,60}", code) and code != "None" else type(error).__name__


_NO_CREDENTIALS = "no credentials were found, or they are not accepted"
_NO_PERMISSION = "no permission with these credentials"
_REFUSALS = {401: _NO_CREDENTIALS, 403: _NO_PERMISSION}
# By the names of exceptions: the libraries that define them are installed only for the storage that is used.
_CAUSES = {
    _NO_CREDENTIALS: "NoCredentialsError PartialCredentialsError CredentialRetrievalError ProfileNotFound "
    "DefaultCredentialsError RefreshError ClientAuthenticationError",
    "there is no such bucket": "FileNotFoundError NoSuchBucket ResourceNotFoundError",
    _NO_PERMISSION: "PermissionError",
    "no network, or the storage does not answer": "ConnectionError HTTPClientError ClientConnectionError "
    "ServiceRequestError TransportError TimeoutError gaierror",
}
