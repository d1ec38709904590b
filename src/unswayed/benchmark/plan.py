"""The plan: everything that determines the content of a benchmark, passed to every worker."""

from __future__ import annotations

import functools
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
from unswayed.rendering.settings import guide_of, open_renderer
from unswayed.sources import Source

from .card import Card, ids_hash
from .rows import FAILED, ORIGINAL_EDIT, SOURCE_EDIT, Row, kept_rows, template_row
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
class Plan:
    """What a build makes.

    root: the benchmark's folder; source: the selected scenes; recipe: the opened `settings.recipe`.
    """

    root: Path
    source: Source
    recipe: Recipe
    settings: BuildSettings

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

    @functools.cached_property
    def draws(self) -> dict[str, bool]:
        """Whether each edit has a random part, so that several runs of it differ."""
        return self.recipe.draws(self.settings.has_network)

    @functools.cached_property
    def templates(self) -> list[tuple[Item, Row]]:
        """The items of the recipe, each with what the rows of its pictures share."""
        return [
            (item, template_row(record)) for item, record in zip(self.recipe.items, self.recipe.records(), strict=True)
        ]

    def source_row(self, source_id: str) -> Row:
        """The row of the source's own file."""
        seed = picture_seed(self.settings.seed, source_id, SOURCE_EDIT, {}, 0)
        return Row(source_id, SOURCE_EDIT, seed=seed, label=self.source.label_of(source_id))

    def pictures(self, source_id: str) -> Iterator[tuple[Item, Row]]:
        """Every planned picture of one source with its row so far, several runs only if they would differ."""
        label = self.source.label_of(source_id)
        for item, row in self.templates:
            for run in range(max(self.settings.runs if self.draws[item.name] else 1, self.fills_of(item))):
                seed = picture_seed(self.settings.seed, source_id, row.edit, row.parameters, run)
                yield item, replace(row, source_id=source_id, run=run, seed=seed, label=label)

    def fills_of(self, item: Item) -> int:
        """Over how many fills of the object's old place an item is made: several only if it moves or resizes it."""
        return self.settings.fills if any(edit.compared_with == "reinsertion" for edit in item.chain) else 1

    def missing(self, source_id: str, rows: Sequence[Row]) -> int:
        """How many pictures of a source are still to be made: they failed, or were not planned when it was finished."""
        there = {row.key for row in rows if row.status != FAILED}
        planned = {row.key for _, row in self.pictures(source_id)}
        return len(planned - there) or sum(row.status == FAILED for row in rows)

    def unmade(self, source_id: str, status: str, reason: str) -> list[Row]:
        """Every row of a source with the same status and reason, except those whose pictures exist already."""
        kept = kept_rows(self.root, source_id)
        rows = [self.source_row(source_id), *(row for _, row in self.pictures(source_id))]
        return [kept.get(row.key, replace(row, status=status, reason=reason)) for row in rows]

    def on(self, device: str) -> Plan:
        """The same plan for one device."""
        return replace(self, settings=replace(self.settings, device=device))

    def open_renderer(self) -> Renderer:
        settings = self.settings
        if settings.guide != self.guide:
            settings = replace(settings, guide=self.guide)
        # Of the whole benchmark, so that a part of it is made in the same way.
        planned = len(self.source.ids) * sum(settings.runs if drawn else 1 for drawn in self.draws.values())
        return open_renderer(settings, batch_size=settings.batch_size, planned=planned)

    @functools.cached_property
    def guide(self) -> str | None:
        """The classifier that adversarial backgrounds attack."""
        return guide_of(self.settings, [edit for item in self.recipe.items for edit in item.chain], self.source.labels)

    def card(self, renderer: Renderer, removal: Removal) -> Card:
        """Return the content of `benchmark.json`, which does not depend on the time, batch size or workers."""
        described, ids = renderer.describe(), self.source.ids
        removal_spec = self.settings.removal
        # Only `strict` changes pictures.
        strict = {"strict": {"tries": self.settings.tries}} if self.settings.quality == "strict" else {}
        fills = {"fills": self.settings.fills} if self.settings.fills > 1 else {}
        return {
            "format": 1,
            "kind": "build",
            "source": {"spec": self.source.spec, "scenes": len(ids), "ids_sha256": ids_hash(ids)},
            "recipe": {"name": self.recipe.name, "edits": self.recipe.records()},
            **{name: getattr(self.settings, name) for name in ("frame", "size", "seed", "runs", "whole_objects")},
            **strict,
            **fills,
            "removal": {"spec": removal_spec, "name": getattr(removal, "name", removal_spec)},
            "renderer": {name: value for name, value in described.items() if name != "batch_size"},
            "device": described.get("device"),
            "guide": self.guide,
            "labels": self.source.labels.to_json(),
            "versions": versions(),
        }
