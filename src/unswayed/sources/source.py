"""A source: an ordered, lazy collection of scenes that share a label space."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, overload

from unswayed.errors import BadPicture, UserError, unknown
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

    spec: what opened it; labels: the label space; entries: in order; load: a picklable function of one entry;
    has_masks: False if pictures can be classified but not edited; remarks: what a person should know about how it
    was read, such as files that were left out.
    """

    spec: str
    labels: LabelSpace
    entries: tuple[Entry, ...]
    load: Callable[[Entry], Scene]
    has_masks: bool = True
    remarks: tuple[str, ...] = ()
    _positions: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        positions = {entry.id: position for position, entry in enumerate(self.entries)}
        if len(positions) != len(self.entries):
            raise ValueError(f"the scene ids of {self.spec} are not unique")
        object.__setattr__(self, "_positions", positions)

    def __repr__(self) -> str:
        return f"Source('{self.spec}': {len(self)} scenes, labels {self.labels.name})"

    @property
    def ids(self) -> tuple[str, ...]:
        """Every scene's id, in order."""
        return tuple(self._positions)

    def __len__(self) -> int:
        return len(self.entries)

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
            wanted = set(choose(self.labels, classes)) if len(self.labels) else _no_classes(self.spec)
            entries = tuple(entry for entry in entries if entry.label in wanted)
            if not entries:
                raise UserError(f"no scene of '{self.spec}' has one of the classes {classes}", allowed=self._present())
        remarks: tuple[str, ...] = ()
        if given:
            wanted_count = counts[given[0]] or 0
            if wanted_count < 1:
                raise UserError(f"the {given[0].replace('_', '-')} is {wanted_count}", allowed="1 or more")
            if limit is not None:
                remarks = self._of_one_class(entries, limit)
                entries = entries[:limit]
            else:
                chosen = _drawn(entries, wanted_count, seed, each=per_class is not None)
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

    def _present(self) -> str:
        present = sorted({entry.label for entry in self.entries if entry.label is not None})
        names = [self.labels.classes[label] for label in present]
        return ", ".join(names[:40]) + (f", … ({len(names)} in total)" if len(names) > 40 else "") or "none has a label"


def _drawn(entries: Sequence[Entry], count: int, seed: int, each: bool) -> set[str]:
    """The ids of `count` scenes, evenly over the classes, or of `count` scenes of each class."""

    def place(entry: Entry) -> bytes:
        return hashlib.blake2b(f"{seed}/{entry.id}".encode(), digest_size=8).digest()

    by_class: dict[int | None, list[str]] = {}
    for entry in sorted(entries, key=place):
        by_class.setdefault(entry.label, []).append(entry.id)
    if each:
        return {one for ids in by_class.values() for one in ids[:count]}
    # The first of every class, then the second of every class, and so on.
    turns = itertools.zip_longest(*by_class.values())
    return set([one for turn in turns for one in turn if one is not None][:count])


def _no_classes(spec: str) -> set[int]:
    raise UserError(f"the scenes of '{spec}' have no labels, so no classes can be chosen")
