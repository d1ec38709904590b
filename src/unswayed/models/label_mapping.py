"""Mapping from a model's classes to a benchmark's: by identity, by WNID or name, as a subset, or many to one."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unswayed.errors import UserError, some, unknown
from unswayed.files.records import fits
from unswayed.files.whole import read_json, read_names
from unswayed.labels import (
    OBJECT_SPACES,
    RIVAL10,
    LabelSpace,
    imagenet,
    object_concepts,
    object_named,
    object_space,
    own,
    plain,
)

if TYPE_CHECKING:
    import torch

# The classes of a benchmark, each with classes of a model by name, WNID or index.
Groups = Mapping[str, Sequence[str | int]]
GROUPINGS: dict[str, Groups] = {"rival10": RIVAL10}


@dataclass(frozen=True)
class LabelMapping:
    """The model's classes that correspond to each of the benchmark's: `members[b]` are indices into the model's space.

    The model cannot predict a class without members. kind: identity, names, subset or groups.
    """

    target: LabelSpace
    members: tuple[tuple[int, ...], ...]
    classes: int
    kind: str

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """(N, model's classes) logits -> (N, benchmark's classes); a group's logit is the log-sum-exp of its members.

        Softmax over the result then is the probability among the benchmark's classes; those that the model cannot
        predict get minus infinity.
        """
        import torch

        if self.kind == "identity":
            return logits
        if all(len(group) == 1 for group in self.members):
            return logits[:, [group[0] for group in self.members]]
        columns = [
            torch.logsumexp(logits[:, list(group)], 1) if group else torch.full_like(logits[:, 0], float("-inf"))
            for group in self.members
        ]
        return torch.stack(columns, 1)

    @functools.cached_property
    def firsts(self) -> dict[int, int]:
        """The first of the benchmark's classes that each of the model's may mean."""
        return {index: at for at, group in reversed([*enumerate(self.members)]) for index in group}

    @functools.cached_property
    def targets(self) -> dict[int, int]:
        """The benchmark's class that each of the model's means, without those that mean more than one."""
        claims = Counter(index for group in self.members for index in group)
        return {index: at for at, group in enumerate(self.members) for index in group if claims[index] == 1}

    def to_json(self) -> dict[str, object]:
        used = sum(len(group) for group in self.members)
        counts = {"model_classes": self.classes, "used": used, "answers": len(self.target.classes)}
        members = {} if self.kind == "identity" else {"members": list(map(list, self.members))}
        return {"kind": self.kind, **counts, **members}


def map_labels(
    model: LabelSpace, target: LabelSpace, needed: Iterable[int], groups: Groups | None = None
) -> LabelMapping:
    """The mapping from `model` to `target`; refused if a class in `needed` (those that occur) has no counterpart.

    Classes are matched by WNID, then by name; `groups` (or a published grouping of that name, such as rival10)
    maps several of the model's classes to one.
    """
    if model == target:
        count = len(model.classes)
        return LabelMapping(target, tuple((index,) for index in range(count)), count, "identity")
    if groups is None:
        groups = GROUPINGS.get(target.name)
    else:
        _check_groups(model, target, groups)
    members = _by_groups(model, target, groups) if groups else _by_names(model, target)
    missing = [target.classes[index] for index in sorted(set(needed)) if not members[index]]
    if missing:
        raise _no_counterpart(model, missing)
    used = {index for group in members for index in group}
    kind = "groups" if any(len(group) > 1 for group in members) else "subset" if len(used) < len(model) else "names"
    return LabelMapping(target, tuple(members), len(model), kind)


def map_objects(
    model: LabelSpace, target: LabelSpace, needed: Iterable[int], groups: Groups | None = None
) -> LabelMapping:
    """The same mapping for a model that is asked about objects, or in words: one of its classes may mean several of the
    benchmark's, and pictures of classes that it does not have are not counted; refused if it has none of `needed`.

    Classes of COCO, VOC and ImageNet are matched by what they mean: a Labrador retriever is a dog, unless the model
    knows Labrador retrievers.
    """
    if model == target:
        return map_labels(model, target, needed)
    if groups is not None:
        _check_groups(model, target, groups)
    named = {} if groups is None else {plain(name): group for name, group in groups.items()}
    members, known = _by_names(model, target), object_concepts(model)
    for index, (name, concept) in enumerate(zip(target.classes, object_concepts(target), strict=True)):
        if concept is not None:
            meant = [at for at, other in enumerate(known) if other == concept]
            if object_named(name) != concept:  # a kind of it: the same kind, or else what is of any kind
                general = [at for at in meant if object_named(model.classes[at]) == concept]
                meant = [at for at in members[index] if known[at] in (None, concept)] or general
            members[index] = tuple(meant)
        elif target == imagenet():  # whose kite is a bird, and COCO's is not
            members[index] = tuple(at for at in members[index] if known[at] is None)
        if plain(name) in named:
            members[index] = tuple(model.index(label) for label in named[plain(name)])
    missing = [target.classes[index] for index in sorted(set(needed)) if not members[index]]
    if missing and not any(members[index] for index in needed):
        raise _no_counterpart(model, missing)
    return LabelMapping(target, tuple(members), len(model), "objects")


def _no_counterpart(model: LabelSpace, missing: Sequence[str]) -> UserError:
    return UserError(
        f"the model's label space {model.name!r} ({len(model)} classes, as {some(model.classes)}) has no "
        f"counterpart for {len(missing)} of the benchmark's classes: {some(missing)}",
        allowed="a model whose classes have the benchmark's names or WNIDs; or ?labels=FILE with the names in the "
        "order of the model's outputs; or --groups FILE with {class: [the model's classes]}",
    )


def labels_from(
    options: Mapping[str, str], default: LabelSpace | None = None, outputs: int | None = None
) -> LabelSpace | None:
    """The label space that `?labels=` names: `imagenet-1k`, or a file of class names in the order of the outputs.

    outputs: the model's number of outputs, if known; a list of another length is refused.
    """
    if "labels" not in options:
        return default
    space = read_labels(options["labels"])
    if outputs is not None and len(space) != outputs:
        raise UserError(
            f"labels={options['labels']} names {len(space)} classes, but the model has {outputs} outputs",
            allowed=f"{outputs} names in the order of the outputs",
        )
    return space


def read_labels(value: object) -> LabelSpace:
    """A label space from `imagenet-1k`, `coco-80`, `coco-91`, `voc-20`, a list of names, a JSON list or label space, or
    a file of one name per line."""
    if value in ("imagenet-1k", "imagenet"):
        return imagenet()
    if value in OBJECT_SPACES:
        return object_space(str(value))
    if isinstance(value, Mapping):
        return LabelSpace.from_json(dict(value))
    if isinstance(value, list):
        return _listed(map(str, value))
    path = Path(str(value)).expanduser()
    if not os.path.isfile(path):
        raise UserError(
            f"there is no file of labels {str(value)[:200]}",
            allowed=f"imagenet-1k, {', '.join(OBJECT_SPACES)}, a .json list, or a text file with one name per line",
        )
    if path.suffix == ".json":
        inside = read_json(path)
        if not fits(inside, list[str] | dict[str, object]):
            raise UserError(f"{path} is not a list of class names", allowed='["cat", "dog", …] or a label space')
        return read_labels(inside)
    return _listed(read_names(path, "file of labels"))


def _listed(names: Iterable[str]) -> LabelSpace:
    """Classes in the order of the outputs; an output without a name, as `???` in lists of COCO's, has a placeholder."""
    return own(f"class {at}" if plain(name) in ("", "n a") else name for at, name in enumerate(names))


def imagenet_or(name: str, classes: Sequence[str]) -> LabelSpace:
    """ImageNet-1k if most of the names, or one of the synonyms in each, are ImageNet's in its order, or if they are a
    thousand that say nothing (`LABEL_7`); else a label space called `name`."""
    space = imagenet()
    if len(classes) == len(space):
        synonyms = [{plain(part) for part in names.split(",")} for names in classes]
        same = sum(plain(ours) in theirs for ours, theirs in zip(space.classes, synonyms, strict=True))
        if same > 500 or all(names.startswith("LABEL_") for names in classes):
            return space
    return LabelSpace(name, tuple(classes))


def unnamed(count: int) -> LabelSpace:
    """The label space of a model that names none of its classes."""
    return LabelSpace(f"{count} unnamed classes", tuple(f"class {index}" for index in range(count)))


def read_groups(path: str | Path) -> dict[str, list[str | int]]:
    """A many-to-one grouping from JSON: {benchmark's class: [the model's classes by name, WNID or index]}."""
    value = read_json(path)
    if not fits(value, dict[str, list[str | int]]):
        raise UserError(f"{path} is not a grouping", allowed='{"dog": ["Labrador Retriever", "n02099601", 207], …}')
    return value


def _check_groups(model: LabelSpace, target: LabelSpace, groups: Groups) -> None:
    """Refuse groups that the benchmark has no class for, and members that the model has no class for."""
    wanted, own_names = {plain(name) for name in target.classes}, {plain(name) for name in model.classes}
    for name, group in groups.items():
        if plain(name) not in wanted:
            raise unknown("class of the benchmark named in --groups:", name, target.classes)
        missing = []
        for label in group:
            try:
                model.index(label)
            except UserError:
                missing.append(label)
        # A model with the group's own name needs none of the members.
        if missing and (plain(name) not in own_names or len(missing) < len(group)):
            raise unknown(f"class of the model for the group '{name}':", str(missing[0]), model.classes)


def _by_names(model: LabelSpace, target: LabelSpace) -> list[tuple[int, ...]]:
    """The class of the model that each of the target's means: by WNID, by the name as written, or by a synonym."""
    written: dict[str, int] = {}
    spoken: dict[str, int] = {}
    for index, name in (*enumerate(model.wnids), *enumerate(model.classes)):
        written.setdefault(name, index)
    synonyms = [(index, synonym) for index, name in enumerate(model.classes) for synonym in name.split(",")]
    for index, name in (*enumerate(model.classes), *synonyms):
        spoken.setdefault(plain(name), index)
    spoken.pop("", None)  # of a name without letters
    # A folder named by WNID is a class named by WNID; its meaning is known from ImageNet's list.
    wnid_of = dict(zip(map(plain, imagenet().classes), imagenet().wnids, strict=True)) if not target.wnids else {}
    name_of = dict(zip(imagenet().wnids, imagenet().classes, strict=True))
    members: list[tuple[int, ...]] = []
    for name, wnid in zip(target.classes, target.wnids or target.classes, strict=True):
        forms = [name, *name.split(","), name_of.get(wnid, ""), wnid_of.get(plain(name), "")]
        same = [written.get(wnid), written.get(name), *(spoken.get(plain(form)) for form in forms)]
        members.append(tuple(index for index in same if index is not None)[:1])
    return members


def _by_groups(model: LabelSpace, target: LabelSpace, groups: Groups) -> list[tuple[int, ...]]:
    """The members by the groups whose classes the model has; by name for a model that has the groups' own names."""
    known = {plain(name) for name in model.classes} | set(model.wnids)
    named = {
        plain(name): [model.index(label) for label in group]
        for name, group in groups.items()
        if all(isinstance(label, int) or plain(label) in known or label in known for label in group)
    }
    direct = _by_names(model, target)
    members = [tuple(named.get(plain(name), direct[index])) for index, name in enumerate(target.classes)]
    claims = Counter(index for group in members for index in group)
    twice = [index for index, count in claims.items() if count > 1]
    if twice:
        raise UserError(f"the grouping uses {model.classes[min(twice)]!r} for more than one class")
    return members
