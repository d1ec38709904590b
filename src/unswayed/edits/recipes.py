"""Recipes: named lists of edits, sweeps of one attribute and grids of several.

imagenet-e                                 a recipe by name
original,size-0.05,direction               edits of the named recipes, one by one
size=0.02:0.5:12                           a sweep: twelve levels, spaced as the attribute declares
lighting(where=both)=-2,0,2                a list of levels, with another parameter fixed
size=0.05,0.1 x direction=0,20,40          a grid: every level of one with every level of the other
FILE.toml                                  any of these, and chains written out
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np

from unswayed.errors import UserError, check_known, unknown
from unswayed.files.records import fits
from unswayed.files.whole import Json, read_toml
from unswayed.scene import Scene

from . import EDITS, edit_from, make_edit, parse_edit
from .background import Background, ObjectWords
from .composition import Composition, Pool
from .edit import Allowed, Edit, Level, Need, Range, allowed, as_json
from .position import Reinsertion

MOST_ITEMS = 10_000
LONGEST = 60  # characters of a value in an item's name


@dataclass(frozen=True)
class Item:
    """One item of a recipe: a chain of edits with a name that is also its folder's name.

    levels: (attribute, level) of what is varied.
    """

    name: str
    chain: tuple[Edit, ...] = ()
    levels: tuple[tuple[str, Level], ...] = ()

    @property
    def control(self) -> str | None:
        """Return the item that makes the same picture without changing the attribute, the first in the order of
        CONTROLS that an edit of the chain declares; None for controls."""
        if any(self.chain == control.chain for control in CONTROLS.values()):
            return None
        declared = {edit.compared_with for edit in self.chain}
        return next((name for name in CONTROLS if name in declared), None)

    @property
    def attribute(self) -> str | None:
        """Return what is varied: `size`, or `size x direction` in a grid."""
        return " x ".join(name for name, _ in self.levels) or None

    @property
    def level(self) -> Level | None:
        """Return its level: a number or word, or `0.05 x 20` in a grid."""
        if len(self.levels) == 1:
            return self.levels[0][1]
        return " x ".join(f"{level:g}" if isinstance(level, float) else level for _, level in self.levels) or None

    @property
    def parameters(self) -> Json:
        """Return all parameters as JSON, which are part of every picture's seed."""
        return {"chain": [as_json(edit) for edit in self.chain]}

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset(need for edit in self.chain for need in edit.needs)

    def describe(self) -> str:
        return "; ".join(edit.describe() for edit in self.chain)

    def compose(self, framed: Scene, rng: np.random.Generator, pool: Pool) -> Composition:
        """Apply the whole chain to the framed scene; raises Impossible, with the reason, if that is not possible."""
        composition = Composition.of(framed, pool.classes)
        for edit in self.chain:
            composition = edit.apply(composition, rng, pool)
        return composition


# The share of the noise schedule at which a picture starts, and whether its own background is regenerated.
Start = tuple[float, bool]


@dataclass(frozen=True)
class Recipe:
    """Items with distinct names, the `original` first."""

    name: str
    items: tuple[Item, ...]
    explains: str = ""

    def __post_init__(self) -> None:
        if len(self.items) > MOST_ITEMS:
            raise UserError(f"recipe {self.name[:60]} has {len(self.items):,} edits", allowed=f"at most {MOST_ITEMS:,}")
        twice = sorted(name for name, count in Counter(item.name for item in self.items).items() if count > 1)
        if twice:
            raise UserError(f"recipe {self.name} has the edit {', '.join(twice)} more than once")

    def records(self) -> list[Json]:
        """Return the items as a benchmark's card lists them."""
        names = ("name", "parameters", "attribute", "level", "control")
        return [{name: getattr(item, name) for name in names} for item in self.items]

    def draws(self, noise: bool) -> dict[str, bool]:
        """Return whether each item has a random part: a position, an angle, another scene; noise: or a network's."""
        return {
            item.name: any(edit.random or (noise and edit.blends_from > 0) for edit in item.chain)
            for item in self.items
        }

    @functools.cached_property
    def starts(self) -> dict[str, Start]:
        return {
            item.name: (max((edit.blends_from for edit in item.chain), default=0.0), "network" in item.needs)
            for item in self.items
        }


ORIGINAL = Item("original")
CONTROLS = {
    "inversion": Item("inversion", (Background(kind="inversion"),), (("background", 0.0),)),
    "reinsertion": Item("reinsertion", (Reinsertion(),), (("reinsertion", "reinsertion"),)),
    "object-inversion": Item("object-inversion", (ObjectWords(),), (("object-words", "as it is"),)),
}


def _inside(inside: str) -> dict[str, str]:
    """Return the parameters written `name=value, name=value`; a value may be a list, `name=value,value`."""
    values: dict[str, str] = {}
    key = ""
    for part in filter(None, map(str.strip, inside.split(","))):
        name, equals, value = part.partition("=")
        key = name.strip() if equals else key
        if not key:
            raise UserError(f"'({inside})' is not a list of parameters", allowed="(parameter=value, …)")
        text = value.strip() if equals else part
        values[key] = f"{values[key]},{text}" if key in values else text
    return values


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
        forms = "attribute=low:high:count, attribute=value,value,… or attribute(parameter=value,value,…)"
        raise UserError(f"'{text}' is not a sweep", allowed=forms)
    name, inside, levels = match.groups()
    kind, fixed, swept = EDITS.load(name), _inside(inside or ""), None
    lists = [key for key, value in fixed.items() if "," in value or _is_range(value)]
    if levels is not None and lists:
        given = f"'{text}' sweeps {kind.axis} and {', '.join(lists)}"
        raise UserError(given, allowed="one parameter with several values")
    if levels is None:
        if len(lists) > 1 or (not lists and len(fixed) > 1):
            raise UserError(f"'{text}' does not say which parameter is swept", allowed="one with several values")
        (swept,) = lists or list(fixed)
        levels = fixed.pop(swept)
    space = allowed(kind, swept or kind.axis)
    attribute = "-".join([name, *filter(None, [swept]), *map(_slug, fixed.values())])
    items = []
    for value in _levels(name if swept is None else f"{name}({swept})", levels, space):
        edit = parse_edit(name, value, **fixed) if swept is None else make_edit(name, **{swept: value}, **fixed)
        label, level = f"-{_slug(value)}", edit.level if swept is None else value
        if isinstance(space, Range) and _is_number(value):
            label, level = space.name(float(value)), float(value)
        items.append(Item(attribute + label, (edit,), ((attribute, level),)))
    return items


def _levels(name: str, text: str, space: Allowed) -> list[str]:
    """Return the levels of `low:high:count` or `value,value,…`, as they are written."""
    if not _is_range(text):
        return [value.strip() for value in text.split(",") if value.strip()]
    if not isinstance(space, Range):
        raise UserError(f"'{name}={text}' is not a sweep", allowed=space.describe())
    *ends, count = text.split(":")
    first, last = (float(space.checked(name, end)) for end in ends)
    if not count.strip().isdigit() or not 2 <= int(count) <= 1000 or first == last:
        example = f"{name}=low:high:count with {space.describe()} and a count of 2 to 1000"
        raise UserError(f"'{name}={text}' is not a sweep", allowed=example)
    return [f"{value:g}" for value in space.levels(first, last, int(count))]


def _is_range(text: str) -> bool:
    return text.count(":") == 2 and all(map(_is_number, text.split(":")))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _slug(text: str) -> str:
    """Return a value as part of a file's name; the end of a long one becomes a hash."""
    slug = re.sub(r"[^\w.+-]+", "-", Path(text).stem if Path(text).suffix[1:].isalpha() else text).strip("-")
    return slug if len(slug) <= LONGEST else f"{slug[: LONGEST - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _named(text: str) -> tuple[Item, ...]:
    """Return the items of a line in recipes.toml: `original`, a control, `name: expression` or an expression."""
    name, colon, written = text.partition(": ")
    if colon:
        (only,) = expression(written)
        return (Item(name, only.chain, only.levels[-1:]),)
    return (_FIXED[text],) if text in _FIXED else expression(text)


_FIXED = {ORIGINAL.name: ORIGINAL, **CONTROLS}
_TABLE = tomllib.loads(resources.files("unswayed.data").joinpath("recipes.toml").read_text(encoding="utf-8"))
RECIPES = tuple(_TABLE)


@functools.cache
def named_recipe(name: str) -> Recipe:
    """Return one of `RECIPES`, whose edits are loaded for it."""
    entry = _TABLE[name]
    return Recipe(name, tuple(item for text in entry["items"] for item in _named(text)), entry["explains"])


@functools.cache
def named_item(name: str) -> Item | None:
    """Return the item of the named recipes with this name; None if there is none."""
    for text in (text for entry in _TABLE.values() for text in entry["items"]):
        # An item's name begins with its own name or that of its attribute, so that few lines have to be read.
        if name.startswith(re.split(r"[:(=]", text)[0]):
            for item in _named(text):
                if item.name == name:
                    return item
    return None


def open_recipe(spec: str) -> Recipe:
    """Return the recipe of a name, an expression or a TOML file (see the top of this module).

    >>> [item.name for item in open_recipe("size=0.05,0.1 x direction=-20,20").items][2:]
    ['size-0.05-direction-20', 'size-0.05-direction+20', 'size-0.1-direction-20', 'size-0.1-direction+20']
    """
    spec = spec.strip()
    if spec in RECIPES:
        return named_recipe(spec)
    if spec.endswith(".toml"):
        return _from_file(Path(spec))
    if "=" not in spec:
        items = []
        for name in filter(None, map(str.strip, spec.split(","))):
            if (item := named_item(name)) is None:
                known = dict.fromkeys(item.name for recipe in map(named_recipe, RECIPES) for item in recipe.items)
                names = [*RECIPES, *known, "attribute=low:high:count"]
                raise unknown("recipe or edit", name, names, run="unswayed edits")
            items.append(item)
        if not items:
            raise UserError("the recipe is empty", allowed=", ".join(RECIPES), run="unswayed edits")
        return _complete(spec, items)
    try:
        return _complete(spec, expression(spec))
    except UserError:
        parts = [part for part in re.split(r"[,;\s]+", spec) if part]
        if not (mixed := [part for part in parts if part in RECIPES or named_item(part)]):
            raise
        rest = ",".join(part for part in parts if part not in (*mixed, "x", "×"))
        listed = ", ".join(f'"{text}"' for text in (rest, *mixed))
        raise UserError(
            f"the recipe '{spec}' has a sweep and the edit {', '.join(mixed)}",
            allowed=f"a sweep or grid, or a list of edits; for both, a file such as mine.toml with edits = [{listed}]",
            run="unswayed build … --recipe mine.toml",
        ) from None


def _complete(name: str, items: Iterable[Item]) -> Recipe:
    """Return a recipe with the original first and the controls of its items."""
    items = list(items)
    wanted = [ORIGINAL, *(CONTROLS[c] for c in dict.fromkeys(item.control for item in items) if c is not None)]
    first = {item.name for item in wanted}
    return Recipe(name, (*wanted, *(item for item in items if item.name not in first)))


def _from_file(path: Path) -> Recipe:
    """Return the recipe of a TOML file: `edits` (a list of expressions), `[[item]]` tables with `name` and `chain`."""
    content = read_toml(path, "recipe")
    check_known(f"entry of the recipe {path.name}", content, ("name", "explains", "edits", "item"))
    expressions, tables = content.get("edits", []), content.get("item", [])
    if not fits(expressions, list[str]):
        raise UserError(f"{path}: edits is {expressions!r}", allowed='a list of texts, such as ["size=0.02:0.5:12"]')
    items = [item for text in expressions for item in open_recipe(text).items]
    if not fits(tables, list[Json]):
        raise UserError(f"{path}: item is {str(tables)[:60]}", allowed="[[item]] tables with a name and a chain")
    items += [_written_out(path, table) for table in tables]
    if not items:
        forms = 'edits = ["size=0.02:0.5:12", "direction"] or [[item]] tables'
        raise UserError(f"{path} contains no edits", allowed=forms)
    distinct = {item.name: item for item in items}
    if twice := sorted({item.name for item in items if distinct[item.name] != item}):
        raise UserError(f"{path} uses the name {', '.join(twice)} for different edits")
    recipe = _complete(str(content.get("name", path.stem)), distinct.values())
    return replace(recipe, explains=str(content.get("explains", "")))


def _written_out(path: Path, table: Json) -> Item:
    """Return the item of a table, such as name = "small-left", chain = [{edit = "size", rate = 0.05}, …]."""
    check_known(f"entry of an item in {path.name}", table, ("name", "chain"))
    name, chain = str(table.get("name", "")), table.get("chain", [])
    if not re.fullmatch(r"[\w+-][\w.+-]{0,199}", name) or not fits(chain, list[Json]):
        form = "letters, digits and . + - _, without a dot at the start, and a chain"
        raise UserError(f"{path} has an item named '{name}'", allowed=form)
    edits = tuple(map(edit_from, chain))
    return Item(name, edits, tuple((edit.name, edit.level) for edit in edits))
