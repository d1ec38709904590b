"""A source: an ordered, lazy collection of scenes that share a label space."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, overload

from unswayed.errors import BadPicture, UserError, some, unknown
from unswayed.files.whole import sha256
from unswayed.labels import LabelSpace, choose
from unswayed.scene import Scene

NO_LABELS = LabelSpace("none", ())
FEW = 5  # scenes that are tried before a network is loaded


@dataclass(frozen=True, slots=True)
class Entry:
    """The location of one scene, known without decoding anything.

    id: slug; image: the picture's file; mask: the mask's file, or None; label: index, or None;
    problem: why this scene cannot be loaded, if the listing already shows it;
    detail: what else the source's own loader needs (an annotation, a class id).
    """

    id: str
    image: str
    mask: str | None = None
    label: int | None = None
    problem: str | None = None
    detail: Any = None


@dataclass(frozen=True, eq=False)
class Source:
    """Scenes by position, id or slice, decoded on access and not kept.

    >>> from unswayed.sources import open_source
    >>> source = open_source("sample")
    >>> len(source), source["panda"].image.shape, source[:3].ids
    (20, (426, 640, 3), ('bison', 'cat', 'chameleon'))

    spec: what opened it; labels: the label space; entries: in order, as are their ids; load: a picklable function of
    one entry; has_masks: False if pictures can be classified but not edited; remarks: what a person should know about
    how it was read, such as files that were left out.
    """

    spec: str
    labels: LabelSpace
    entries: tuple[Entry, ...]
    load: Callable[[Entry], Scene]
    has_masks: bool = True
    remarks: tuple[str, ...] = ()
    ids: tuple[str, ...] = field(init=False, repr=False)
    _positions: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        positions = {entry.id: position for position, entry in enumerate(self.entries)}
        if len(positions) != len(self.entries):
            raise ValueError(f"the scene ids of {self.spec} are not unique")
        object.__setattr__(self, "ids", tuple(positions))
        object.__setattr__(self, "_positions", positions)

    def __repr__(self) -> str:
        return f"Source('{self.spec}': {len(self)} scenes, labels {self.labels.name})"

    def __len__(self) -> int:
        return len(self.entries)

    def require_masks(self, why: str) -> None:
        """Raise UserError if there are no masks; why: what they are needed for, as the end of the sentence."""
        if not self.has_masks:
            run = f"unswayed masks {self.spec.partition(':')[2]} -o MASKS"
            raise UserError(f"'{self.spec}' has no masks{why}", run=run)

    def check_usable(self) -> None:
        """Raise UserError, before any network is loaded, if there are only a few scenes and none can be read."""
        reasons = []
        for scene_id in self.ids if len(self) <= FEW else ():
            try:
                self[scene_id]
                return
            except BadPicture as error:
                reasons.append(error.given)
        if reasons:
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            raise UserError(f"no scene of {self.spec} can be used: {reasons[0]}{more}")

    def __contains__(self, scene_id: object) -> bool:
        return scene_id in self._positions

    def __iter__(self) -> Iterator[Scene]:
        """Every scene in turn; a bad picture raises, so a run that must continue loads scenes one by one."""
        return (self[position] for position in range(len(self)))

    @overload
    def __getitem__(self, key: int | str) -> Scene: ...
    @overload
    def __getitem__(self, key: slice) -> Source: ...
    def __getitem__(self, key: int | str | slice) -> Scene | Source:
        if isinstance(key, slice):
            return replace(self, entries=self.entries[key])
        entry = self.entry(key)
        if entry.problem is not None:
            raise BadPicture(f"{entry.image}: {entry.problem}")
        return self.load(entry)

    def entry(self, key: int | str) -> Entry:
        """The scene's entry, by id or position."""
        if isinstance(key, str):
            if key not in self._positions:
                raise unknown(f"scene in {self.spec}", key, self.ids)
            return self.entries[self._positions[key]]
        return self.entries[key]

    def label_of(self, key: int | str) -> int | None:
        """The scene's label, without decoding it."""
        return self.entry(key).label

    def file_name(self, key: int | str) -> str:
        """The name of the scene's picture file, without its folder."""
        return PurePath(self.entry(key).image).name

    def select(
        self,
        limit: int | None = None,
        classes: str | Sequence[int | str] | None = None,
        *,
        sample: int | None = None,
        per_class: int | None = None,
        seed: int = 0,
    ) -> Source:
        """Some scenes of the given classes: `imagenet-e`, "a,b", or a list of names, WNIDs, indices.

        limit: the first so many; sample: so many, drawn evenly over the classes; per_class: so many of each class. The
        draws follow from the seed alone, and a larger one holds the smaller one.
        """
        counts = {"limit": limit, "sample": sample, "per_class": per_class}
        given = [name for name, value in counts.items() if value is not None]
        if len(given) > 1:
            raise UserError(f"{' and '.join(given)} are given", allowed="one of limit, sample and per_class")
        entries = self.entries
        if classes is not None:
            if not len(self.labels):
                raise UserError(f"the scenes of '{self.spec}' have no labels, so no classes can be chosen")
            wanted = set(choose(self.labels, classes))
            entries = tuple(entry for entry in entries if entry.label in wanted)
            if not entries:
                present = some(self.class_counts, 40) or "none has a label"
                raise UserError(f"no scene of '{self.spec}' has one of the classes {classes}", allowed=present)
        remarks: tuple[str, ...] = ()
        for name in given:
            count = counts[name] or 0
            if count < 1:
                raise UserError(f"the {name.replace('_', '-')} is {count}", allowed="1 or more")
            if name == "limit":
                remarks = self._of_one_class(entries, count)
                entries = entries[:count]
            else:
                chosen = _drawn(entries, count, seed, each=name == "per_class")
                entries = tuple(entry for entry in entries if entry.id in chosen)
        return replace(self, entries=entries, remarks=(*self.remarks, *remarks))

    def _of_one_class(self, entries: Sequence[Entry], limit: int) -> tuple[str, ...]:
        """A remark where the first scenes are of one class though the source has more."""
        first = {entry.label for entry in entries[:limit]}
        if limit == 1 or len(first) > 1 or len({entry.label for entry in entries}) < 2:
            return ()
        (label,) = first
        name = "no class" if label is None else f"the class '{self.labels.classes[label]}'"
        return (f"the first {limit} scenes are all of {name}; --sample {limit} draws them from all classes",)

    @property
    def class_counts(self) -> dict[str, int]:
        """How many scenes each class has, by name in the order of the label space; scenes without a label left out."""
        counts = Counter(entry.label for entry in self.entries if entry.label is not None)
        return {self.labels.classes[label]: counts[label] for label in sorted(counts)}


def _drawn(entries: Sequence[Entry], count: int, seed: int, each: bool) -> set[str]:
    """The ids of `count` scenes, evenly over the classes, or of `count` scenes of each class."""

    def draw(entry: Entry) -> bytes:
        return hashlib.blake2b(f"{seed}/{entry.id}".encode(), digest_size=8).digest()

    by_class: dict[int | None, list[str]] = {}
    for entry in sorted(entries, key=draw):
        by_class.setdefault(entry.label, []).append(entry.id)
    if each:
        return {scene_id for ids in by_class.values() for scene_id in ids[:count]}
    # The first of every class, then the second of every class, and so on.
    turns = itertools.zip_longest(*by_class.values())
    return set([scene_id for turn in turns for scene_id in turn if scene_id is not None][:count])


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
    counts = Counter(scene_id.lower() for scene_id in slugs)
    taken = {scene_id for scene_id, count in counts.items() if count == 1}
    for position, (name, scene_id) in enumerate(zip(names, slugs, strict=True)):
        if counts[scene_id.lower()] > 1 or scene_id.lower() in _RESERVED:
            digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape")).hexdigest()
            longer = (f"{scene_id}-{digest[:length]}" for length in range(8, len(digest), 4))
            slugs[position] = next(candidate for candidate in longer if candidate.lower() not in taken)
            taken.add(slugs[position].lower())
    return tuple(slugs)


def named(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The entries, whose ids are the names of their pictures, with the slugs of these names instead."""
    slugs = unique_slugs([entry.id for entry in entries])
    return tuple(replace(entry, id=scene_id) for entry, scene_id in zip(entries, slugs, strict=True))


def _safe(part: str) -> str:
    ascii_only = unicodedata.normalize("NFKD", part).encode("ascii", "ignore").decode()
    return re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", ascii_only)).strip("_-")


def repeated_photographs(scenes: Iterable[tuple[str, Hashable, int | None]]) -> list[str]:
    """Warnings about photographs that occur more than once, given (scene, what identifies its picture and mask, class).

    >>> repeated_photographs([("cat/a", 1, 0), ("dog/a", 1, 1), ("b", 2, 1)])
    ['2 scenes show a photograph that also has another class, so no model is right about all of them: cat/a = dog/a']
    """
    alike: dict[Hashable, dict[str, int | None]] = defaultdict(dict)
    for scene, shown, label in scenes:
        alike[shown][scene] = label
    several = [group for group in alike.values() if len(group) > 1]
    warnings = []
    for mixed, meaning in (
        (True, "show a photograph that also has another class, so no model is right about all of them"),
        (False, "show a photograph that occurs more than once, and are counted as if they were different ones"),
    ):
        groups = [group for group in several if (len(set(group.values())) > 1) == mixed]
        if groups:
            shown = some((" = ".join(list(group)[:3]) for group in groups), 3)
            warnings.append(f"{sum(map(len, groups))} scenes {meaning}: {shown}")
    return warnings


def content_key(path: str | Path) -> int:
    """A number of 64 bits that stands for the content of a file: the start of its SHA-256."""
    return int(sha256(path)[:16], 16)


def same_files(paths: Iterable[str], others: Iterable[str]) -> set[str]:
    """Those of the paths whose files have the same content as one of the others; few files need to be read for that."""
    by_size: dict[int, set[str]] = defaultdict(set)
    for path in filter(os.path.isfile, others):
        by_size[os.path.getsize(path)].add(path)

    @functools.cache
    def keys(size: int) -> set[int]:
        return {content_key(path) for path in by_size.get(size, ())}

    sizes = {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}
    return {path for path, size in sizes.items() if size in by_size and content_key(path) in keys(size)}
