"""A plan: everything that decides what a benchmark will hold; small, picklable, handed to every worker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unfazed.edits.items import Item, Recipe
from unfazed.edits.textures import TEXTURES
from unfazed.errors import UserError, unknown
from unfazed.labels import imagenet
from unfazed.rendering.backgrounds import Removal
from unfazed.rendering.layers import Renderer
from unfazed.scene import FRAMES
from unfazed.sources import Source
from unfazed.versions import versions

from .card import ids_hash
from .layout import ORIGINAL_EDIT, SOURCE_EDIT
from .seeds import picture_seed

DEFAULT_GUIDE = "lite:2"


@dataclass(frozen=True)
class Planned:
    """One picture of one source: an item of the recipe, a run, and the seed that belongs to it."""

    item: Item
    run: int
    seed: int


@dataclass(frozen=True)
class Plan:
    """What is built.

    root: the benchmark's folder; frame: see `unfazed.scene.frame`; size: of the pictures' side, in pixels;
    runs: draws of what is drawn; renderer and options: as `unfazed.rendering.open_renderer` takes them, and
    network_facts, what `load_network` is to be told about the network's file;
    removal: as `open_removal` takes it; whole_objects: leave out scenes whose object the photograph's border cuts.
    """

    root: Path
    source: Source
    recipe: Recipe
    renderer: str = "diffusion"
    options: Mapping[str, Any] = field(default_factory=dict)
    removal: str = "opencv"
    frame: str = "object"
    size: int = 256
    seed: int = 0
    runs: int = 1
    whole_objects: bool = False

    def __post_init__(self) -> None:
        if self.frame not in FRAMES:
            raise unknown("framing", self.frame, FRAMES)
        for name, value, least, most in (("size", self.size, 16, 4096), ("runs", self.runs, 1, 1000)):
            if not least <= value <= most:
                raise UserError(f"{name} is {value}", allowed=f"{least} to {most}")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"the seed is {self.seed}", allowed="0 to 2⁶³ - 1")
        unused = [name for name, value in self.options.items() if value is not None and not self._uses(name)]
        if unused:
            raise UserError(
                f"the renderer {self.renderer} has no use for {', '.join(unused)}",
                allowed="feather and device with paste (network and network_facts too where objects are removed by "
                "diffusion); all but feather with diffusion",
            )
        if not self.source.has_masks:
            raise UserError(
                f"'{self.source.spec}' has no masks, so its objects cannot be edited",
                run=f"unfazed masks {self.source.spec.partition(':')[2]} -o MASKS",
            )
        if any(item.name == SOURCE_EDIT for item in self.recipe.items):
            raise UserError(f"an edit of the recipe is named '{SOURCE_EDIT}', the name of the file as found")
        if not any(item.name == ORIGINAL_EDIT for item in self.recipe.items):
            raise UserError(f"the recipe has no edit '{ORIGINAL_EDIT}', against which every drop is measured")

    @property
    def has_network(self) -> bool:
        return self.renderer != "paste"

    def _uses(self, option: str) -> bool:
        if self.renderer != "paste":
            return option != "feather"
        return option in ("feather", "device") or (
            option in ("network", "network_facts") and self.removal == "diffusion"
        )

    def has_draws(self, item: Item) -> bool:
        """Whether anything in an edit is left to chance: the network's noise, a place, an angle, another scene."""
        steps = item.parameters["chain"]
        if self.has_network and any(step.get("start", 0) > 0 for step in steps):
            return True
        return any(
            "random" in step.values() or step["edit"] == "occlusion" or step.get("kind") in TEXTURES for step in steps
        )

    @property
    def borrows(self) -> bool:
        """Whether an edit uses other scenes' backgrounds, so that a removal is asked for by more than its own scene."""
        steps = [step for item in self.recipe.items for step in item.parameters["chain"]]
        return any(step.get("kind") == "random" or step["edit"] == "occlusion" for step in steps)

    def pictures(self, source_id: str) -> Iterator[Planned]:
        """Every picture that is to be made of one source: further runs only where they would be other pictures."""
        for item in self.recipe.items:
            for run in range(self.runs if self.has_draws(item) else 1):
                yield Planned(item, run, picture_seed(self.seed, source_id, item.name, item.parameters, run))

    def open_renderer(self, batch_size: int | None = None) -> Renderer:
        """The renderer, loaded; what is left to its own choice is not named."""
        if self.renderer == "paste":
            from unfazed.rendering.paste import Paste

            given = self.options.get("feather")
            return Paste() if given is None else Paste(feather=given)
        from unfazed.rendering import open_renderer

        others = {name: value for name, value in self.options.items() if name != "network_facts"}
        settled = {"network": self._network(), "guide": self.guide, "batch_size": batch_size, "size": self.size}
        return open_renderer(self.renderer, **{**others, **settled})

    @property
    def network_facts(self) -> dict[str, Any]:
        return dict(self.options.get("network_facts") or {})

    def _network(self) -> Any:
        """The network's name; where facts about its file are given, the network itself."""
        name = self.options.get("network")
        if not self.network_facts:
            return name
        from unfazed.rendering import load_network

        return load_network("compact" if name is None else name, size=self.size, **self.network_facts)

    @property
    def guide(self) -> str | None:
        """The classifier that adversarial backgrounds work against: the one given, or for ImageNet's classes ours."""
        given = self.options.get("guide")
        if not self.has_network or given == "none":
            return None
        wanted = any("adversarial" in step.values() for item in self.recipe.items for step in item.parameters["chain"])
        if given is None and wanted and self.source.labels == imagenet():
            return DEFAULT_GUIDE
        return given

    def open_removal(self) -> Removal:
        """What removes objects, loaded; by diffusion it is the renderer's network unless another is named."""
        from unfazed.rendering.removal.methods import open_removal

        if self.removal == "diffusion" and self.network_facts:
            from unfazed.rendering.removal.diffusion import DiffusionRemoval

            return DiffusionRemoval(self._network(), self.options.get("device"))
        network = self.options.get("network")
        spec = f"diffusion:{network}" if self.removal == "diffusion" and network else self.removal
        return open_removal(spec, self.options.get("device"))

    def card(self, renderer: Renderer, removal: Removal) -> dict[str, Any]:
        """`benchmark.json`; nothing in it depends on the hour, the batch size or the number of workers."""
        described = renderer.describe()
        # The renderer describes its network with these; a removal does not.
        told = {"network_facts": self.network_facts} if self.removal == "diffusion" and self.network_facts else {}
        return {
            "format": 1,
            "kind": "build",
            "source": {"spec": self.source.spec, "scenes": len(self.source), "ids_sha256": ids_hash(self.source.ids)},
            "recipe": {"name": self.recipe.name, "edits": [_described(item) for item in self.recipe.items]},
            "frame": self.frame,
            "size": self.size,
            "seed": self.seed,
            "runs": self.runs,
            "whole_objects": self.whole_objects,
            "removal": {"spec": self.removal, "name": getattr(removal, "name", self.removal), **told},
            "renderer": {name: value for name, value in described.items() if name != "batch_size"},
            "device": described.get("device"),
            "guide": self.guide,
            "labels": self.source.labels.to_json(),
            "versions": versions(),
        }


def parse_facts(given: Sequence[str]) -> dict[str, Any] | None:
    """The table of facts written NAME=VALUE, what reads as a number as one; None where there are none.

    >>> parse_facts(["num_head_channels=32", "beta_schedule=cosine"])
    {'num_head_channels': 32, 'beta_schedule': 'cosine'}
    """
    facts: dict[str, Any] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value) or name in facts:
            raise UserError(f"the fact of a network is '{text}'", allowed="NAME=VALUE, each name once")
        facts[name] = value
        for number in (float, int):
            with contextlib.suppress(ValueError):
                facts[name] = number(value)
    return facts or None


def _described(item: Item) -> dict[str, Any]:
    return {
        "name": item.name,
        "parameters": item.parameters,
        "attribute": item.attribute,
        "level": item.level,
        "control": item.control,
    }
