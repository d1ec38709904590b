"""The items of a recipe, each a chain of edits with a name that is also its folder's name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from unswayed.errors import UserError
from unswayed.scene import Scene

from . import make_edit
from .composition import Composition, Pool
from .edit import Edit, Level, Need
from .parameters import as_json

MOST_ITEMS = 10_000


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
        """Return the item that makes the same picture without changing the attribute; None for controls.

        A chain has the first control in the order of CONTROLS that one of its edits declares.
        """
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
    def parameters(self) -> dict[str, Any]:
        """Return all parameters as JSON, which are part of every picture's seed."""
        return {"chain": [as_json(edit) for edit in self.chain]}

    @property
    def needs(self) -> frozenset[Need]:
        """Return what the edits of this item need."""
        return frozenset(need for edit in self.chain for need in edit.needs)

    @property
    def seeded_by(self) -> tuple[str, dict[str, Any]]:
        """Return the name and parameters that enter the seed; a renamed edit keeps its seeds."""
        name, chain = self.name, self.parameters["chain"]
        for edit, step in zip(self.chain, chain, strict=True):
            if edit.former_name is not None:
                name, step["edit"] = name.replace(edit.name, edit.former_name), edit.former_name
        return name, {"chain": chain}

    def describe(self) -> str:
        """Return a short description of the chain."""
        return "; ".join(edit.describe() for edit in self.chain)

    def compose(self, framed: Scene, rng: np.random.Generator, pool: Pool) -> Composition:
        """Apply the whole chain to the framed scene; raises Impossible, with the reason, if that is not possible."""
        composition = Composition.of(framed)
        for edit in self.chain:
            composition = edit.apply(composition, rng, pool)
        return composition


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


ORIGINAL = Item("original")
CONTROLS = {
    "inversion": Item("inversion", (make_edit("background", kind="inversion"),), (("background", 0.0),)),
    "reinsertion": Item("reinsertion", (make_edit("reinsertion"),), (("reinsertion", "reinsertion"),)),
}
