"""Items written as text: `size=0.02:0.5:12`, `lighting(where=both)=-2,0,2`, `size=0.05,0.1 x direction=0,20,40`."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from unfazed.edits import find_edit, parse_edit
from unfazed.errors import UserError

from .items import Item
from .parameters import Allowed, Range, allowed


def single(name: str, text: str) -> Item:
    """The one item of an expression under another name, its last attribute what is varied."""
    (only,) = expression(text)
    return Item(name, only.chain, only.levels[-1:])


def _fixed(inside: str) -> dict[str, str]:
    """The parameters written `name=value, name=value`."""
    pairs = [part.partition("=") for part in inside.split(",") if part.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise UserError(f"'({inside})' is not a list of parameters", allowed="(parameter=value, …)")
    return {key.strip(): given.strip() for key, _, given in pairs}


def expression(text: str) -> tuple[Item, ...]:
    """The items of a sweep or a grid."""
    axes = [_axis(part) for part in re.split(r"\s+[x×]\s+", text)]
    return tuple(
        Item(
            "-".join(item.name for item in chosen),
            tuple(edit for item in chosen for edit in item.chain),
            tuple(level for item in chosen for level in item.levels),
        )
        for chosen in itertools.product(*axes)
    )


def _axis(text: str) -> list[Item]:
    """One item a level of `attribute=levels`; parameters that are fixed become part of the attribute's name."""
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\(([^)]*)\))?\s*=\s*(.+?)\s*", text)
    if match is None:
        raise UserError(f"'{text}' is not a sweep", allowed="attribute=low:high:count or attribute=value,value,…")
    name, inside, levels = match.groups()
    kind = find_edit(name)
    fixed = _fixed(inside or "")
    attribute = "-".join([name, *map(_slug, fixed.values())])
    space = allowed(kind, kind.axis)
    items = []
    for value in _levels(name, levels, space):
        edit = parse_edit(name, value, **fixed)
        numeric = _is_number(value) and isinstance(space, Range)
        label = space.name(float(value)) if numeric else f"-{_slug(value)}"  # type: ignore[union-attr]
        items.append(Item(attribute + label, (edit,), ((attribute, float(value) if numeric else edit.level),)))
    return items


def _levels(name: str, text: str, space: Allowed) -> list[str]:
    """The levels of `low:high:count` or `value,value,…`, as they are written."""
    parts = text.split(":")
    if len(parts) != 3 or not all(map(_is_number, parts)):
        return [value.strip() for value in text.split(",") if value.strip()]
    example = f"{name}=low:high:count with {space.describe()} and a count of 2 to 1000"
    if not isinstance(space, Range):
        raise UserError(f"'{name}={text}' is not a sweep", allowed=space.describe())
    first, last = (float(space.checked(name, part)) for part in parts[:2])
    if not parts[2].strip().isdigit() or not 2 <= int(parts[2]) <= 1000 or first == last:
        raise UserError(f"'{name}={text}' is not a sweep", allowed=example)
    return [f"{value:g}" for value in space.levels(first, last, int(parts[2]))]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _slug(text: str) -> str:
    """A value as part of a file's name."""
    return re.sub(r"[^\w.+-]+", "-", Path(text).stem if Path(text).suffix[1:].isalpha() else text).strip("-")
