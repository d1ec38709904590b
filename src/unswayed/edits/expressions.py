"""Items written as text: `size=0.02:0.5:12`, `lighting(where=both)=-2,0,2`, `size=0.05,0.1 x direction=0,20,40`.

Any parameter can be swept inside the parentheses: `color(saturation=0,0.5,1)`.
"""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

from unswayed.errors import UserError

from . import find_edit, make_edit, parse_edit
from .items import MOST_ITEMS, Item
from .parameters import Allowed, Range, allowed


def single(name: str, text: str) -> Item:
    """Return the only item of an expression under another name; its last attribute is what varies."""
    (only,) = expression(text)
    return Item(name, only.chain, only.levels[-1:])


def _inside(inside: str) -> dict[str, str]:
    """Return the parameters written `name=value, name=value`; a value may be a list, `name=value,value`."""
    found: dict[str, list[str]] = {}
    key = ""
    for part in filter(None, (part.strip() for part in inside.split(","))):
        name, equals, value = part.partition("=")
        key = name.strip() if equals else key
        if not key:
            raise UserError(f"'({inside})' is not a list of parameters", allowed="(parameter=value, …)")
        found.setdefault(key, []).append(value.strip() if equals else part)
    return {name: ",".join(values) for name, values in found.items()}


def expression(text: str) -> tuple[Item, ...]:
    """Return the items of a sweep or a grid."""
    axes = [_axis(part) for part in re.split(r"\s+[x×]\s+", text)]
    if (count := math.prod(map(len, axes))) > MOST_ITEMS:
        raise UserError(f"'{text[:60]}' has {count:,} edits", allowed=f"at most {MOST_ITEMS:,}")
    return tuple(
        Item(
            "-".join(item.name for item in chosen),
            tuple(edit for item in chosen for edit in item.chain),
            tuple(level for item in chosen for level in item.levels),
        )
        for chosen in itertools.product(*axes)
    )


def _axis(text: str) -> list[Item]:
    """Return one item per level of `attribute=levels` or `attribute(parameter=levels)`.

    Parameters that are fixed, and one that is swept inside the parentheses, become part of the attribute's name.
    """
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\(([^)]*)\))?\s*(?:=\s*(.+?)\s*)?", text)
    if match is None or not (match[2] or match[3]):
        raise UserError(
            f"'{text}' is not a sweep",
            allowed="attribute=low:high:count, attribute=value,value,… or attribute(parameter=value,value,…)",
        )
    name, inside, levels = match.groups()
    kind = find_edit(name)
    given = _inside(inside or "")
    lists = [key for key, value in given.items() if "," in value or _is_range(value)]
    if levels is not None and lists:
        raise UserError(
            f"'{text}' sweeps {kind.axis} and {', '.join(lists)}", allowed="one parameter with several values"
        )
    if levels is None:
        if len(lists) > 1 or (not lists and len(given) > 1):
            raise UserError(f"'{text}' does not say which parameter is swept", allowed="one with several values")
        (swept,) = lists or list(given)
        return _swept(name, swept, given.pop(swept), given)
    fixed = given
    attribute = "-".join([name, *map(_slug, fixed.values())])
    space = allowed(kind, kind.axis)
    items = []
    for value in _levels(name, levels, space):
        edit = parse_edit(name, value, **fixed)
        numeric = _is_number(value) and isinstance(space, Range)
        label = space.name(float(value)) if numeric else f"-{_slug(value)}"  # type: ignore[union-attr]
        items.append(Item(attribute + label, (edit,), ((attribute, float(value) if numeric else edit.level),)))
    return items


def _swept(name: str, parameter: str, levels: str, fixed: dict[str, str]) -> list[Item]:
    """One item per level of one parameter, whichever it is."""
    space = allowed(find_edit(name), parameter)
    attribute = "-".join([name, parameter, *map(_slug, fixed.values())])
    items = []
    for value in _levels(f"{name}({parameter})", levels, space):
        edit = make_edit(name, **{parameter: value}, **fixed)
        numeric = _is_number(value) and isinstance(space, Range)
        label = space.name(float(value)) if numeric else f"-{_slug(value)}"  # type: ignore[union-attr]
        items.append(Item(attribute + label, (edit,), ((attribute, float(value) if numeric else value),)))
    return items


def _is_range(text: str) -> bool:
    parts = text.split(":")
    return len(parts) == 3 and all(map(_is_number, parts))


def _levels(name: str, text: str, space: Allowed) -> list[str]:
    """Return the levels of `low:high:count` or `value,value,…`, as they are written."""
    parts = text.split(":")
    if not _is_range(text):
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
    """Return a value as part of a file's name."""
    return re.sub(r"[^\w.+-]+", "-", Path(text).stem if Path(text).suffix[1:].isalpha() else text).strip("-")
