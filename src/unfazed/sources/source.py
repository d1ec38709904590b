"""A source: an ordered, lazy collection of scenes that share a label space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, overload

from unfazed.errors import BadPicture, UserError, unknown
from unfazed.labels import LabelSpace, choose
from unfazed.scene import Scene

NO_LABELS = LabelSpace("none", ())


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

    >>> from unfazed.sources import open_source
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

    def select(self, limit: int | None = None, classes: str | Sequence[int | str] | None = None) -> Source:
        """The first `limit` scenes of the given classes: `imagenet-e`, "a,b", or a list of names, WNIDs, indices."""
        entries = self.entries
        if classes is not None:
            wanted = set(choose(self.labels, classes)) if len(self.labels) else _no_classes(self.spec)
            entries = tuple(entry for entry in entries if entry.label in wanted)
            if not entries:
                raise UserError(f"no scene of '{self.spec}' has one of the classes {classes}", allowed=self._present())
        if limit is not None:
            if limit < 1:
                raise UserError(f"the limit is {limit}", allowed="1 or more")
            entries = entries[:limit]
        return replace(self, entries=entries)

    @property
    def class_counts(self) -> dict[str, int]:
        """How many scenes each class has, by name in the order of the label space; scenes without a label left out."""
        counts = Counter(entry.label for entry in self.entries if entry.label is not None)
        return {self.labels.classes[label]: counts[label] for label in sorted(counts)}

    def _present(self) -> str:
        present = sorted({entry.label for entry in self.entries if entry.label is not None})
        names = [self.labels.classes[label] for label in present]
        return ", ".join(names[:40]) + (f", … ({len(names)} in total)" if len(names) > 40 else "") or "none has a label"


def _no_classes(spec: str) -> set[int]:
    raise UserError(f"the scenes of '{spec}' have no labels, so no classes can be chosen")
