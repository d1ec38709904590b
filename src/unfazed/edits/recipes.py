"""Recipes: named lists of edits, sweeps of one attribute and grids of several.

imagenet-e                                 a recipe by name
original,size-0.05,direction               edits of the named recipes, one by one
size=0.02:0.5:12                           a sweep: twelve levels, spaced as the attribute declares
lighting(where=both)=-2,0,2                levels one by one, another parameter fixed
size=0.05,0.1 x direction=0,20,40          a grid: every level of one with every level of the other
FILE.toml                                  any of these, and chains written out
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unfazed.errors import UserError, unknown
from unfazed.scene import Scene

from . import EDITS, make_edit, parse_edit
from .background import Background
from .composition import Composition, Edit, Pool
from .parameters import Allowed, Range, allowed, as_json

Level = float | str


@dataclass(frozen=True)
class Item:
    """One edit of a recipe: a chain under a name that is also its folder's.

    control: the item whose drop is not this attribute's doing (`inversion`, `reinsertion`), or None;
    levels: (attribute, level) of what is varied.
    """

    name: str
    chain: tuple[Edit, ...] = ()
    levels: tuple[tuple[str, Level], ...] = ()

    @property
    def control(self) -> str | None:
        kinds = [type(edit).name for edit in self.chain]  # type: ignore[attr-defined]
        if self.chain in (CONTROLS["inversion"].chain, CONTROLS["reinsertion"].chain):
            return None
        if "background" in kinds:
            return "inversion"
        return "reinsertion" if {"size", "position", "direction", "reinsertion"} & set(kinds) else None

    @property
    def attribute(self) -> str | None:
        """What is varied: `size`, or `size x direction` in a grid."""
        return " x ".join(name for name, _ in self.levels) or None

    @property
    def level(self) -> Level | None:
        """Its level: a number or word, or `0.05 x 20` in a grid."""
        if len(self.levels) == 1:
            return self.levels[0][1]
        return " x ".join(f"{level:g}" if isinstance(level, float) else level for _, level in self.levels) or None

    @property
    def parameters(self) -> dict[str, Any]:
        """All that the edit depends on, as JSON: part of every picture's seed."""
        return {"chain": [as_json(edit) for edit in self.chain]}

    def compose(self, framed: Scene, rng: np.random.Generator, pool: Pool) -> Composition:
        """The framed scene under the whole chain; raises Impossible with the reason where it cannot be made."""
        composition = Composition.of(framed)
        for edit in self.chain:
            composition = edit.apply(composition, rng, pool)
        return composition


@dataclass(frozen=True)
class Recipe:
    """Items under distinct names, the `original` first."""

    name: str
    items: tuple[Item, ...]
    explains: str = ""

    def __post_init__(self) -> None:
        names = [item.name for item in self.items]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UserError(f"recipe {self.name} has the edit {', '.join(twice)} more than once")


ORIGINAL = Item("original")
CONTROLS = {
    "inversion": Item("inversion", (Background("inversion"),), (("background", "inversion"),)),
    "reinsertion": Item("reinsertion", (make_edit("reinsertion"),), (("reinsertion", "reinsertion"),)),
}


def _item(name: str, *parts: str) -> Item:
    """An item of parts `attribute=value`, its last one what is varied."""
    chain = tuple(_edit(part) for part in parts)
    return Item(name, chain, ((chain[-1].name, _level(chain[-1])),))


def _edit(text: str, value: str | None = None) -> Any:
    """The edit of `attribute(parameter=value, …)=value`."""
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\(([^)]*)\))?\s*(?:=(.*))?", text)
    if match is None:
        raise UserError(f"'{text}' is not an edit", allowed="attribute=value, attribute(parameter=value)=value")
    name, inside, own = match.groups()
    value = own if value is None else value
    fixed = _fixed(inside or "")
    return make_edit(name, **fixed) if value is None else parse_edit(name, value, **fixed)


def _fixed(inside: str) -> dict[str, str]:
    """The parameters written `name=value, name=value`."""
    pairs = [part.partition("=") for part in inside.split(",") if part.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise UserError(f"'({inside})' is not a list of parameters", allowed="(parameter=value, …)")
    return {key.strip(): given.strip() for key, _, given in pairs}


def _level(edit: Any) -> Level:
    """The level of an edit: the value of its axis; for a background its strength or kind."""
    if isinstance(edit, Background):
        return float(edit.strength or 0.0) if edit.kind in ("inversion", "simple", "complex") else edit.kind
    level: Level = getattr(edit, edit.axis)
    return level


def _expression(text: str) -> tuple[Item, ...]:
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
    if name not in EDITS:
        raise unknown("edit", name, EDITS, run="unfazed edits")
    fixed = _fixed(inside or "")
    attribute = "-".join([name, *map(_slug, fixed.values())])
    space = allowed(EDITS[name], EDITS[name].axis)
    items = []
    for value in _levels(name, levels, space):
        edit = parse_edit(name, value, **fixed)
        numeric = _is_number(value) and isinstance(space, Range)
        label = space.name(float(value)) if numeric else f"-{_slug(value)}"  # type: ignore[union-attr]
        items.append(Item(attribute + label, (edit,), ((attribute, float(value) if numeric else value),)))
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


_IMAGENET_E_BACKGROUND = (
    CONTROLS["inversion"],
    _item("background-simple", "background=simple"),
    _item("background-complex", "background=complex"),
    _item("background-adversarial", "background=adversarial"),
    _item("background-random", "background=random"),
)
_IMAGENET_E_SIZE = tuple(_item(f"size-{rate}", f"size={rate}") for rate in ("full", "0.1", "0.08", "0.05"))

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "imagenet-e",
            (
                ORIGINAL,
                *_IMAGENET_E_BACKGROUND,
                *_IMAGENET_E_SIZE,
                _item("position", "size=0.05", "position=random"),
                _item("direction", "direction=random"),
                _item("direction-small", "size=0.05", "direction=random"),
                CONTROLS["reinsertion"],
            ),
            "the eleven edits of ImageNet-E, the original, and the controls",
        ),
        Recipe(
            "imagenet-e-l",
            (ORIGINAL, *_IMAGENET_E_BACKGROUND, *_IMAGENET_E_SIZE, CONTROLS["reinsertion"]),
            "background and size, as in the larger set ImageNet-E-L",
        ),
        Recipe(
            "beyond",
            (
                ORIGINAL,
                *_expression("occlusion=0.2,0.4,0.6"),
                *_expression("lighting(where=object)=-3,-1.5,1.5"),
                *_expression("lighting(where=background)=-3,-1.5,1.5"),
                *_expression("lighting(where=both)=-3,-1.5,1.5"),
                *_expression("blur(where=background)=2,4,8"),
                *_expression("blur(where=object)=1,2,4"),
                *_expression("colour=60,120,180"),
                _item("colour-grey", "colour(saturation=0)=0"),
            ),
            "attributes that ImageNet-E does not have, at a few levels",
        ),
        Recipe(
            "textures",
            (
                ORIGINAL,
                _item("background-random", "background=random"),
                *_expression("background=leopard,checker,stripes,eight-diagrams"),
            ),
            "patterns drawn by code as backgrounds, beside a random one",
        ),
    )
}


def named_items() -> dict[str, Item]:
    """Every item of the named recipes, by name."""
    return {item.name: item for recipe in RECIPES.values() for item in recipe.items}


def open_recipe(spec: str) -> Recipe:
    """The recipe of a name, an expression or a TOML file (see the top of this module).

    >>> [item.name for item in open_recipe("size=0.05,0.1 x direction=-20,20").items][2:]
    ['size-0.05-direction-20', 'size-0.05-direction+20', 'size-0.1-direction-20', 'size-0.1-direction+20']
    """
    spec = spec.strip()
    if spec in RECIPES:
        return RECIPES[spec]
    if spec.endswith(".toml"):
        return _from_file(Path(spec))
    if "=" in spec:
        return _complete(spec, _expression(spec))
    items = named_items()
    names = [name.strip() for name in spec.split(",") if name.strip()]
    for name in names:
        if name not in items:
            raise unknown("recipe or edit", name, [*RECIPES, *items, "attribute=low:high:count"], run="unfazed edits")
    if not names:
        raise UserError("the recipe is empty", allowed=", ".join(RECIPES), run="unfazed edits")
    return _complete(spec, [items[name] for name in names])


def _complete(name: str, items: Iterable[Item]) -> Recipe:
    """A recipe with the original first and the controls that its items are measured against."""
    items = list(items)
    present = {item.name for item in items}
    wanted = [ORIGINAL, *(CONTROLS[c] for c in dict.fromkeys(item.control for item in items) if c is not None)]
    return Recipe(name, (*(item for item in wanted if item.name not in present), *items))


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _from_file(path: Path) -> Recipe:
    """The recipe of a TOML file: `edits` (a list of expressions) and `[[item]]` tables with `name` and `chain`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"the recipe {path} is not there", allowed=", ".join([*RECIPES, "FILE.toml"])) from None
    except ValueError as error:
        raise UserError(f"{path} is not TOML: {error}") from None
    known = ("name", "explains", "edits", "item")
    for key in content:
        if key not in known:
            raise unknown(f"entry of the recipe {path.name}", key, known)
    items: list[Item] = []
    expressions = content.get("edits", [])
    if not isinstance(expressions, list) or not all(isinstance(text, str) for text in expressions):
        raise UserError(f"{path}: edits is {expressions!r}", allowed='a list of texts, as ["size=0.02:0.5:12"]')
    for text in expressions:
        items += open_recipe(text).items
    for table in content.get("item", []):
        items.append(_written_out(path, table))
    if not items:
        raise UserError(
            f"{path} names no edits", allowed='edits = ["size=0.02:0.5:12", "direction"] or [[item]] tables'
        )
    distinct = {item.name: item for item in items}
    if any(distinct[item.name] != item for item in items):
        twice = sorted({item.name for item in items if distinct[item.name] != item})
        raise UserError(f"{path} gives the name {', '.join(twice)} to different edits")
    recipe = _complete(str(content.get("name", path.stem)), distinct.values())
    return replace(recipe, explains=str(content.get("explains", "")))


def _written_out(path: Path, table: dict[str, Any]) -> Item:
    """The item of a table: name = "low-left", chain = [{edit = "size", rate = 0.05}, {edit = "position", x = 0}]."""
    for key in table:
        if key not in ("name", "chain"):
            raise unknown(f"entry of an item in {path.name}", key, ("name", "chain"))
    name, chain = str(table.get("name", "")), table.get("chain", [])
    if not re.fullmatch(r"[\w.+-]+", name) or not isinstance(chain, list) or not all(map(_is_table, chain)):
        raise UserError(f"{path} has an item named '{name}'", allowed="letters, digits and . + - _, and a chain")
    edits = []
    for step in chain:
        given = dict(step)
        edits.append(make_edit(str(given.pop("edit", "")), **given))
    return Item(name, tuple(edits), tuple((edit.name, _level(edit)) for edit in edits))
