"""What a recipe is made of: items, each a chain of edits under a name that is also its folder's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unfazed.edits import make_edit
from unfazed.errors import UserError
from unfazed.scene import Scene

from .composition import Composition, Pool
from .edit import Edit, Level, Need
from .parameters import as_json


@dataclass(frozen=True)
class Item:
    """One edit of a recipe: a chain under a name that is also its folder's.

    levels: (attribute, level) of what is varied.
    """

    name: str
    chain: tuple[Edit, ...] = ()
    levels: tuple[tuple[str, Level], ...] = ()

    @property
    def control(self) -> str | None:
        """The item that makes the same picture without changing the attribute; None for the controls themselves.

        A chain has the first control in the order of CONTROLS that one of its edits declares.
        """
        if any(self.chain == control.chain for control in CONTROLS.values()):
            return None
        declared = {edit.control for edit in self.chain}
        return next((name for name in CONTROLS if name in declared), None)

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

    @property
    def needs(self) -> frozenset[Need]:
        """What has to be there to make the pictures of this item."""
        return frozenset(need for edit in self.chain for need in edit.needs)

    @property
    def seeded_by(self) -> tuple[str, dict[str, Any]]:
        """The name and the parameters that enter the seed: an edit that was renamed keeps the seeds it had."""
        name, chain = self.name, self.parameters["chain"]
        for edit, step in zip(self.chain, chain, strict=True):
            if edit.former_name is not None:
                name, step["edit"] = name.replace(edit.name, edit.former_name), edit.former_name
        return name, {"chain": chain}

    def describe(self) -> str:
        """What the chain does, in a few words."""
        return "; ".join(edit.describe() for edit in self.chain)

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
    "inversion": Item("inversion", (make_edit("background", kind="inversion"),), (("background", 0.0),)),
    "reinsertion": Item("reinsertion", (make_edit("reinsertion"),), (("reinsertion", "reinsertion"),)),
}
