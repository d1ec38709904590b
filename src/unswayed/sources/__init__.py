"""Sources of scenes: `open_source("sample")`, `open_source("folder:PATH")`, …; each kind is one file here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from unswayed.errors import UserError, unknown
from unswayed.specs import Spec

from .source import Entry, Source

__all__ = ["SOURCES", "Entry", "Source", "Spec", "open_source"]

# kind -> module of this room with a function `open_scenes(spec: Spec) -> Source`
SOURCES: dict[str, str] = {
    "sample": "sample",
    "folder": "folder",
    "images": "images",
    "imagenet-s": "imagenet_s",
    "cutouts": "cutouts",
    "coco": "coco",
    "rival10": "rival10",
    "oxford-pet": "oxford_pet",
    "voc": "voc",
}
ENTRY_POINTS = "unswayed.sources"


def open_source(spec: str, limit: int | None = None, classes: str | Sequence[int | str] | None = None) -> Source:
    """The scenes that `spec` names, listed but not decoded.

    >>> open_source("sample", limit=2).ids
    ('bison', 'cat')
    """
    parsed = Spec.parse(spec)
    opener = _opener(parsed)
    source = opener(parsed)
    if not len(source):
        raise UserError(f"'{spec}' holds no pictures")
    return source.select(limit, classes)


def _opener(spec: Spec) -> Callable[[Spec], Source]:
    """The function that opens this kind of source: a built-in one, or one from an installed package."""
    if spec.kind in SOURCES:
        opener: Callable[[Spec], Source] = import_module(f"{__name__}.{SOURCES[spec.kind]}").open_scenes
        return opener
    others = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if spec.kind in others:
        loaded: Callable[[Spec], Source] = others[spec.kind].load()
        return loaded
    if Path(spec.text).expanduser().exists():
        raise UserError(f"'{spec.text}' is a path, not a source", allowed=f"folder:{spec.text}, images:{spec.text}, …")
    raise unknown("source", spec.kind, [*SOURCES, *others])
