"""Recipes: named lists of edits, sweeps of one attribute and grids of several.

imagenet-e                                 a recipe by name
original,size-0.05,direction               edits of the named recipes, one by one
size=0.02:0.5:12                           a sweep: twelve levels, spaced as the attribute declares
lighting(where=both)=-2,0,2                a list of levels, with another parameter fixed
size=0.05,0.1 x direction=0,20,40          a grid: every level of one with every level of the other
FILE.toml                                  any of these, and chains written out
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from unswayed.errors import UserError, unknown
from unswayed.files.whole import read_toml

from . import edit_from
from .expressions import expression, single
from .items import CONTROLS, ORIGINAL, Item, Recipe

__all__ = ["RECIPES", "Item", "Recipe", "named_items", "open_recipe"]


def _named(text: str) -> tuple[Item, ...]:
    """Return the items of a line in recipes.toml: `original`, a control, `name: expression` or an expression."""
    name, colon, written = text.partition(": ")
    if colon:
        return (single(name, written),)
    return (_FIXED[text],) if text in _FIXED else expression(text)


_FIXED = {ORIGINAL.name: ORIGINAL, **CONTROLS}
_TABLE = tomllib.loads(resources.files("unswayed.data").joinpath("recipes.toml").read_text(encoding="utf-8"))
RECIPES = {
    name: Recipe(name, tuple(item for text in entry["items"] for item in _named(text)), entry["explains"])
    for name, entry in _TABLE.items()
}


def named_items() -> dict[str, Item]:
    """Return every item of the named recipes, by name."""
    return {item.name: item for recipe in RECIPES.values() for item in recipe.items}


def open_recipe(spec: str) -> Recipe:
    """Return the recipe of a name, an expression or a TOML file (see the top of this module).

    >>> [item.name for item in open_recipe("size=0.05,0.1 x direction=-20,20").items][2:]
    ['size-0.05-direction-20', 'size-0.05-direction+20', 'size-0.1-direction-20', 'size-0.1-direction+20']
    """
    spec = spec.strip()
    if spec in RECIPES:
        return RECIPES[spec]
    if spec.endswith(".toml"):
        return _from_file(Path(spec))
    items = named_items()
    if "=" in spec:
        _refuse_mixture(spec, {*items, *RECIPES})
        return _complete(spec, expression(spec))
    names = [name.strip() for name in spec.split(",") if name.strip()]
    for name in names:
        if name not in items:
            raise unknown("recipe or edit", name, [*RECIPES, *items, "attribute=low:high:count"], run="unswayed edits")
    if not names:
        raise UserError("the recipe is empty", allowed=", ".join(RECIPES), run="unswayed edits")
    return _complete(spec, [items[name] for name in names])


def _refuse_mixture(spec: str, names: set[str]) -> None:
    """Refuse a text that has named edits or recipes beside a sweep; a TOML file may have both."""
    parts = [part for part in re.split(r"[,;\s]+", spec) if part]
    mixed = [part for part in parts if part in names]
    if mixed:
        rest = ",".join(part for part in parts if part not in names and part not in ("x", "×"))
        listed = ", ".join(f'"{text}"' for text in (rest, *mixed))
        raise UserError(
            f"the recipe '{spec}' has a sweep and the edit {', '.join(mixed)}",
            allowed=f"a sweep or grid, or a list of edits; for both, a file such as mine.toml with edits = [{listed}]",
            run="unswayed build … --recipe mine.toml",
        )


def _complete(name: str, items: Iterable[Item]) -> Recipe:
    """Return a recipe with the original first and the controls of its items."""
    items = list(items)
    wanted = [ORIGINAL, *(CONTROLS[c] for c in dict.fromkeys(item.control for item in items) if c is not None)]
    first = {item.name for item in wanted}
    return Recipe(name, (*wanted, *(item for item in items if item.name not in first)))


def _from_file(path: Path) -> Recipe:
    """Return the recipe of a TOML file: `edits` (a list of expressions), `[[item]]` tables with `name` and `chain`."""
    content = read_toml(path, "recipe")
    known = ("name", "explains", "edits", "item")
    for key in content:
        if key not in known:
            raise unknown(f"entry of the recipe {path.name}", key, known)
    items: list[Item] = []
    expressions = content.get("edits", [])
    if not isinstance(expressions, list) or not all(isinstance(text, str) for text in expressions):
        raise UserError(f"{path}: edits is {expressions!r}", allowed='a list of texts, such as ["size=0.02:0.5:12"]')
    for text in expressions:
        items += open_recipe(text).items
    tables = content.get("item", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UserError(f"{path}: item is {str(tables)[:60]}", allowed="[[item]] tables with a name and a chain")
    items += [_written_out(path, table) for table in tables]
    if not items:
        raise UserError(
            f"{path} contains no edits", allowed='edits = ["size=0.02:0.5:12", "direction"] or [[item]] tables'
        )
    distinct = {item.name: item for item in items}
    if any(distinct[item.name] != item for item in items):
        twice = sorted({item.name for item in items if distinct[item.name] != item})
        raise UserError(f"{path} uses the name {', '.join(twice)} for different edits")
    recipe = _complete(str(content.get("name", path.stem)), distinct.values())
    return replace(recipe, explains=str(content.get("explains", "")))


def _written_out(path: Path, table: dict[str, Any]) -> Item:
    """Return the item of a table, such as name = "small-left", chain = [{edit = "size", rate = 0.05}, …]."""
    for key in table:
        if key not in ("name", "chain"):
            raise unknown(f"entry of an item in {path.name}", key, ("name", "chain"))
    name, chain = str(table.get("name", "")), table.get("chain", [])
    written_out = isinstance(chain, list) and all(isinstance(step, dict) for step in chain)
    if not re.fullmatch(r"[\w+-][\w.+-]{0,199}", name) or not written_out:
        raise UserError(
            f"{path} has an item named '{name}'",
            allowed="letters, digits and . + - _, without a dot at the start, and a chain",
        )
    edits = tuple(map(edit_from, chain))
    return Item(name, edits, tuple((edit.name, edit.level) for edit in edits))
