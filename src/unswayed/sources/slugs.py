"""Scene ids: unique, path-safe slugs made from file names."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from unswayed.errors import UserError

_LONGEST = 100
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}


def slug(name: str) -> str:
    """`name` without its suffix, made only of letters, digits, `_` and `-`; folders are joined by `--`.

    There are no dots, because `<id>.run1.png` is the second run of `<id>`.

    >>> slug("dog/001.jpg"), slug("../Zürich Zoo (2).JPEG")
    ('dog--001', 'Zurich_Zoo_2')
    """
    parts = PurePosixPath(name).with_suffix("").parts if PurePosixPath(name).name else ()
    return "--".join(filter(None, map(_safe, parts)))[:_LONGEST] or "scene"


def unique_slugs(names: Sequence[str]) -> tuple[str, ...]:
    """One slug per name, in order; slugs that differ only in case get a hash of their name.

    >>> unique_slugs(["cat/001.jpg", "Cat/001.jpg", "dog/001.jpg"])
    ('cat--001-683477cd', 'Cat--001-90068bed', 'dog--001')
    """
    if len(set(names)) != len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise UserError(f"two scenes have the same name, {twice}", allowed="distinct names")
    slugs = [slug(name) for name in names]
    counts = Counter(one.lower() for one in slugs)
    taken = {one for one, count in counts.items() if count == 1}
    answer = []
    for name, one in zip(names, slugs, strict=True):
        if counts[one.lower()] > 1 or one.lower() in _RESERVED:
            one = _hashed(one, name, taken)
            taken.add(one.lower())
        answer.append(one)
    return tuple(answer)


def _safe(part: str) -> str:
    ascii_only = unicodedata.normalize("NFKD", part).encode("ascii", "ignore").decode()
    return re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", ascii_only)).strip("_-")


def _hashed(one: str, name: str, taken: set[str]) -> str:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape")).hexdigest()
    for length in range(8, len(digest), 4):
        candidate = f"{one}-{digest[:length]}"
        if candidate.lower() not in taken:
            return candidate
    raise AssertionError("two names share a whole hash")
