"""Photographs that occur more than once: scenes of a benchmark that show the same one, and files of one content."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path

from unswayed.files.whole import sha256


def repeated_photographs(scenes: Iterable[tuple[str, Hashable, int | None]]) -> list[str]:
    """Warnings about photographs that occur more than once, given (scene, what identifies its picture and mask, class).

    >>> repeated_photographs([("cat/a", 1, 0), ("dog/a", 1, 1), ("b", 2, 1)])
    ['2 scenes show a photograph that also has another class, so no model is right about all of them: cat/a = dog/a']
    """
    alike: dict[Hashable, dict[str, int | None]] = defaultdict(dict)
    for scene, shown, label in scenes:
        alike[shown][scene] = label
    several = [group for group in alike.values() if len(group) > 1]
    found = []
    for mixed, meaning in (
        (True, "show a photograph that also has another class, so no model is right about all of them"),
        (False, "show a photograph that occurs more than once, and are counted as if they were different ones"),
    ):
        groups = [group for group in several if (len(set(group.values())) > 1) == mixed]
        if groups:
            found.append(f"{sum(map(len, groups))} scenes {meaning}: {_listed(groups)}")
    return found


def content_key(path: str | Path) -> int:
    """A number of 64 bits that stands for the content of a file: the start of its SHA-256."""
    return int(sha256(path)[:16], 16)


def same_files(paths: Iterable[str], others: Iterable[str]) -> set[str]:
    """Those of the paths whose files have the same content as one of the others; few files need to be read for that."""
    by_size: dict[int, set[str]] = defaultdict(set)
    for path in others:
        if os.path.isfile(path):
            by_size[os.path.getsize(path)].add(path)
    keys: dict[int, set[int]] = {}
    found = set()
    for path in paths:
        size = os.path.getsize(path) if os.path.isfile(path) else None
        if size is None or size not in by_size:
            continue
        if size not in keys:
            keys[size] = {content_key(one) for one in by_size[size]}
        if content_key(path) in keys[size]:
            found.add(path)
    return found


def _listed(groups: Sequence[Mapping[str, int | None]]) -> str:
    return ", ".join(" = ".join(list(group)[:3]) for group in groups[:3]) + (" …" if len(groups) > 3 else "")
