"""What a recipe is made of: items, each a chain of edits under a name that is also its folder's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unfazed.edits import make_edit
from unfazed.errors import UserError
from unfazed.scene import Scene

from .background import Background
from .composition import Composition, Edit, Pool
from .parameters import as_json

Level = float | str
GEOMETRIC = {"size", "position", "direction", "reinsertion"}


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
        """The item whose drop is not this attribute's doing, to be measured against; None for the controls."""
        if any(self.chain == control.chain for control in CONTROLS.values()):
            return None
        names = {step["edit"] for step in self.parameters["chain"]}
        if "background" in names:
            return "inversion"
        return "reinsertion" if names & GEOMETRIC else None

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
    "inversion": Item("inversion", (Background("inversion"),), (("background", 0.0),)),
    "reinsertion": Item("reinsertion", (make_edit("reinsertion"),), (("reinsertion", "reinsertion"),)),
}
