"""The plan: everything that determines the content of a benchmark, passed to every worker."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unswayed.edits.recipes import Item, Recipe
from unswayed.errors import UserError
from unswayed.files.records import versions
from unswayed.files.whole import canonical
from unswayed.rendering.backgrounds import Removal
from unswayed.rendering.layers import Renderer
from unswayed.rendering.settings import guide_of, removal_of
from unswayed.sources import Source

from .card import Card, edit_entry, ids_hash
from .rows import FAILED, ORIGINAL_EDIT, SOURCE_EDIT, Row
from .settings import BuildSettings


def picture_seed(
    seed: int, source_id: str, edit: str, parameters: Mapping[str, Any], run: int, attempt: int = 0
) -> int:
    """Return an integer in [0, 2⁶⁴) that does not depend on the order, batch size, number of workers or machine.

    blake2b over the canonical JSON of (benchmark seed, source_id, edit name and parameters, run), and of the attempt
    where an earlier picture was left out as invalid.

    >>> picture_seed(7, "dog", "size-0.05", {"rate": 0.05}, 0) == picture_seed(7, "dog", "size-0.05", {"rate": 0.05}, 1)
    False
    """
    again = [attempt] if attempt else []
    record = canonical([seed, source_id, {"edit": edit, "parameters": dict(parameters)}, run, *again])
    return int.from_bytes(hashlib.blake2b(record.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Planned:
    """One picture of one source: an item of the recipe, a run, and its seed."""

    item: Item
    run: int
    seed: int


@dataclass(frozen=True)
class Plan:
    """What a build makes.

    root: the benchmark's folder; source: the selected scenes; recipe: the opened `settings.recipe`.
    """

    root: Path
    source: Source
    recipe: Recipe
    settings: BuildSettings = BuildSettings()

    def __post_init__(self) -> None:
        if not self.source.has_masks:
            raise UserError(
                f"'{self.source.spec}' has no masks, so its objects cannot be edited",
                run=f"unswayed masks {self.source.spec.partition(':')[2]} -o MASKS",
            )
        if any(item.name == SOURCE_EDIT for item in self.recipe.items):
            raise UserError(f"an edit of the recipe is named '{SOURCE_EDIT}', which is reserved for the source files")
        if not any(item.name == ORIGINAL_EDIT for item in self.recipe.items):
            raise UserError(f"the recipe has no edit '{ORIGINAL_EDIT}', which every drop is compared with")

    @property
    def has_network(self) -> bool:
        return self.settings.has_network

    def has_draws(self, item: Item) -> bool:
        """Return whether an edit has a random part: the network's noise, a position, an angle, another scene."""
        return any(edit.random or (self.has_network and edit.blends_from > 0) for edit in item.chain)

    @property
    def borrows(self) -> bool:
        """Return whether an edit uses other scenes' backgrounds, so that one removal serves several scenes."""
        return any(edit.borrows for item in self.recipe.items for edit in item.chain)

    def pictures(self, source_id: str) -> Iterator[Planned]:
        """Yield every planned picture of one source, with several runs only if they would differ."""
        for item in self.recipe.items:
            for run in range(self.settings.runs if self.has_draws(item) else 1):
                yield Planned(item, run, picture_seed(self.settings.seed, source_id, item.name, item.parameters, run))

    def missing(self, source_id: str, rows: Sequence[Row]) -> int:
        """How many pictures of a source are still to be made: they failed, or were not planned when it was finished."""
        there = {(row.edit, row.run, row.seed) for row in rows if row.status != FAILED}
        planned = {(picture.item.name, picture.run, picture.seed) for picture in self.pictures(source_id)}
        return len(planned - there) or sum(row.status == FAILED for row in rows)

    @property
    def starts(self) -> list[float]:
        """The share of the noise schedule at which each item of the recipe starts."""
        return [max((edit.blends_from for edit in item.chain), default=0.0) for item in self.recipe.items]

    def on(self, device: str) -> Plan:
        """The same plan for one device."""
        return replace(self, settings=replace(self.settings, device=device))

    def open_renderer(self) -> Renderer:
        """Load the renderer."""
        from unswayed.rendering import open_renderer

        return open_renderer(replace(self.settings, guide=self.guide), batch_size=self.settings.batch_size)

    @property
    def guide(self) -> str | None:
        """Return the classifier that adversarial backgrounds attack."""
        return guide_of(self.settings, (edit for item in self.recipe.items for edit in item.chain), self.source.labels)

    def open_removal(self) -> Removal:
        """Load the removal method."""
        return removal_of(self.settings)

    def card(self, renderer: Renderer, removal: Removal) -> Card:
        """Return the content of `benchmark.json`, which does not depend on the time, batch size or workers."""
        described = renderer.describe()
        # The renderer's description contains the network's facts; a removal's does not.
        facts, removal_spec = self.settings.network_facts, self.settings.removal
        network_facts = {"network_facts": dict(facts)} if facts and self.settings.shares_network else {}
        return {
            "format": 1,
            "kind": "build",
            "source": {"spec": self.source.spec, "scenes": len(self.source), "ids_sha256": ids_hash(self.source.ids)},
            "recipe": {"name": self.recipe.name, "edits": [edit_entry(item.name, item) for item in self.recipe.items]},
            **self.settings.on_card(),
            "removal": {"spec": removal_spec, "name": getattr(removal, "name", removal_spec), **network_facts},
            "renderer": {name: value for name, value in described.items() if name != "batch_size"},
            "device": described.get("device"),
            "guide": self.guide,
            "labels": self.source.labels.to_json(),
            "versions": versions(),
        }
