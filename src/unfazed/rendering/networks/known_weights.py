"""Known network files: where they are, their size and hash, what their tensors do not tell; and how to fetch them.

path = fetch("256x256_diffusion_uncond")      # ~/.cache/unfazed/256x256_diffusion_uncond.pt
"""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unfazed.errors import UserError, unknown
from unfazed.files import cache_folder, check_writable, explained, sha256

_OPENAI = "https://openaipublic.blob.core.windows.net/diffusion/jul-2021"
_HEADS_64 = {"num_head_channels": 64, "qkv_order": "legacy", "beta_schedule": "linear"}


@dataclass(frozen=True)
class Known:
    """One file: url, size in bytes and sha256 (None where no agreed value is known here), facts for adm.settle."""

    url: str
    size: int | None = None
    sha256: str | None = None
    kind: str = "network"
    summary: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


KNOWN: dict[str, Known] = {
    "256x256_diffusion_uncond": Known(
        f"{_OPENAI}/256x256_diffusion_uncond.pt",
        2_211_383_297,
        "a37c32fffd316cd494cf3f35b339936debdc1576dad13fe57c42399a5dbc78b1",
        summary="guided-diffusion, ImageNet, unconditional: the paper's",
        facts={**_HEADS_64, "image_size": 256},
    ),
    "256x256_diffusion": Known(
        f"{_OPENAI}/256x256_diffusion.pt",
        summary="guided-diffusion, ImageNet, class-conditional",
        facts={**_HEADS_64, "image_size": 256},
    ),
    "512x512_diffusion_uncond_finetune_008100": Known(
        "https://huggingface.co/lowlevelware/512x512_diffusion_unconditional_ImageNet/resolve/main/"
        "512x512_diffusion_uncond_finetune_008100.pt",
        sha256="9c111ab89e214862b76e1fa6a1b3f1d329b1a88281885943d2cdbe357ad57648",
        summary="ADM fine-tuned without classes, 512×512",
        facts={**_HEADS_64, "image_size": 512},
    ),
    "512x512_diffusion": Known(
        f"{_OPENAI}/512x512_diffusion.pt", summary="class-conditional, 512×512", facts={**_HEADS_64, "image_size": 512}
    ),
    "128x128_diffusion": Known(
        f"{_OPENAI}/128x128_diffusion.pt",
        summary="class-conditional, 128×128",
        facts={"num_heads": 4, "qkv_order": "legacy", "beta_schedule": "linear", "image_size": 128},
    ),
    "64x64_diffusion": Known(
        f"{_OPENAI}/64x64_diffusion.pt",
        summary="class-conditional, 64×64",
        facts={"num_head_channels": 64, "qkv_order": "new", "beta_schedule": "cosine", "image_size": 64},
    ),
    "256x256_classifier": Known(
        f"{_OPENAI}/256x256_classifier.pt",
        kind="guide",
        summary="guided-diffusion's noisy classifier, an adversarial guide",
        facts={"num_head_channels": 64, "qkv_order": "legacy"},
    ),
}


def place_of(name: str) -> Path:
    return cache_folder() / Path(find(name).url).name


def find(name: str) -> Known:
    if name not in KNOWN:
        raise unknown("network", name, KNOWN, run="unfazed weights")
    return KNOWN[name]


def cached(name: str) -> Path:
    """Where the fetched file lies; an error that says how to get it, if it does not."""
    path = place_of(name)
    if not path.exists():
        raise UserError(f"{name} is not in {path.parent}", run=f"unfazed weights fetch {name}")
    return path


def fetch(
    name: str,
    *,
    url: str | None = None,
    expected: str | None = None,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
    attempts: int = 3,
) -> Path:
    """The file in the cache, complete and verified; a broken-off download goes on where it stopped.

    url: a mirror; expected: the SHA-256 to hold it to where the table knows none; progress(bytes so far, of all).
    """
    known = find(name)
    path, address = place_of(name), url or known.url
    wanted = known.sha256 or expected
    if path.exists():
        if wanted is not None:
            _check(path, wanted, f"remove {path} and fetch again")
        return path
    if wanted is None:
        raise UserError(
            f"no SHA-256 of {name} is known here, so a download could not be checked",
            allowed="--sha256 HEX from a source you trust, or download it yourself and give its path",
        )
    if not re.fullmatch("[0-9a-fA-F]{64}", wanted):
        raise UserError(f"the SHA-256 is '{wanted}'", allowed="64 hexadecimal digits")
    if not address.startswith(("https://", "http://", "file://")):
        raise UserError(f"the address is '{address}'", allowed="https://…, http://… or file://…")
    part = path.with_name(path.name + ".part")
    remedy = f"df -h, or UNFAZED_CACHE=FOLDER unfazed weights fetch {name}, with a folder to write in"
    check_writable(part, run=remedy)
    part.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(attempts):
        try:
            _download(address, part, progress, remedy)
            break
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500 or attempt == attempts - 1:
                raise _unreachable(name, address, path, part, error) from None
    _check(part, wanted, f"unfazed weights fetch {name}", remove=True)
    os.replace(part, path)
    return path


def _download(url: str, part: Path, progress: Callable[[int, int | None], None], remedy: str) -> None:
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        response = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        if error.code == 416 and done:  # nothing is left to send: the file is whole, and its hash will tell
            return
        raise
    with response:
        resumed = response.status == 206
        done = done if resumed else 0
        length = response.headers.get("Content-Length")
        # A server that says no number is taken for one that says nothing: the hash tells in the end.
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


def _check(path: Path, wanted: str, remedy: str, remove: bool = False) -> None:
    found = sha256(path)
    if found != wanted.lower():
        if remove:
            path.unlink()
        raise UserError(
            f"{path.name} is not what it should be: its SHA-256 is {found}, expected {wanted}"
            + ("; the download was removed" if remove else ""),
            run=remedy,
        )


def recognised(path: Path) -> str:
    """The file's SHA-256; refused where the file bears the name of a known one and is not it."""
    found, _ = verify(path)
    known = KNOWN.get(path.stem)
    if known is not None and known.sha256 not in (None, found):
        raise UserError(
            f"{path} bears the name of a known network and is another file: its SHA-256 is {found}, expected "
            f"{known.sha256}",
            allowed="the known file; or a network of your own under another name, what its tensors do not tell in a "
            "sidecar NAME.json or as --network-fact",
            run=f"unfazed weights fetch {path.stem}",
        )
    return found


def verify(path: str | Path) -> tuple[str, str | None]:
    """(SHA-256 of the file, the known name it belongs to or None)."""
    if not Path(path).is_file():
        raise UserError(f"the file {path} is not there")
    found = sha256(path)
    return found, next((name for name, known in KNOWN.items() if known.sha256 == found), None)


def listing() -> list[dict[str, Any]]:
    """What can be asked for, one row each: name, kind, summary, url, size and sha256 as they should be, and the path
    if it is here, with size_here. The hash of a file that is here is not looked at: `verify` does that.
    """
    rows = [_embedded()]
    for name, known in KNOWN.items():
        path = place_of(name)
        here = path.is_file()
        row = {"name": name, "kind": known.kind, "summary": known.summary, "url": known.url, "size": known.size}
        row |= {"sha256": known.sha256, "here": str(path) if here else None}
        rows.append({**row, "size_here": path.stat().st_size if here else None})
    return rows


def _embedded() -> dict[str, Any]:
    from importlib import resources

    path = Path(str(resources.files("unfazed.data").joinpath("network", "network.safetensors")))
    here = path.exists()
    return {
        "name": "compact",
        "kind": "network",
        "summary": "the embedded default, 256×256, unconditional",
        "url": None,
        "size": path.stat().st_size if here else None,
        "sha256": sha256(path) if here else None,
        "here": str(path) if here else None,
        "size_here": path.stat().st_size if here else None,
    }


def _unreachable(name: str, url: str, path: Path, part: Path, error: Exception) -> UserError:
    kept = f"; {part.stat().st_size:,} bytes are kept and will be resumed" if part.exists() else ""
    return UserError(
        f"{url} cannot be reached: {getattr(error, 'reason', None) or error}{kept}",
        allowed=f"offline: download it elsewhere and put it at {path}, or use --network compact",
        run=f"unfazed weights fetch {name}",
    )
