"""`BuildSettings`: everything about a benchmark besides its source and its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unfazed.choices import EngineName, Quality, check_choice
from unfazed.edits.items import Recipe
from unfazed.errors import UserError
from unfazed.rendering.settings import RenderSettings, check_range

# The settings that `benchmark.json` holds under their own names.
ON_CARD = ("frame", "size", "seed", "runs", "whole_objects")


@dataclass(frozen=True, kw_only=True)
class BuildSettings(RenderSettings):
    """What is built and how, in addition to `RenderSettings`.

    recipe: a name, edits, a sweep, a grid, a TOML file, or a `Recipe`. runs: how often an edit with a random choice is
    repeated. whole_objects: leave out scenes whose object the photograph's border cuts off. limit, classes: which
    scenes of the source; sample: this many, evenly over the classes; per_class: this many of each class; both depend
    on the seed. batch_size: pictures rendered at once; workers: processes; engine: where they run; these three do not
    change the pictures. quality: `report` measures the validity of every picture, `strict` also makes an invalid one
    again with another seed, up to `tries` times, and then leaves it out, `off` measures nothing.
    """

    recipe: str | Recipe = "imagenet-e"
    runs: int = 1
    whole_objects: bool = False
    limit: int | None = None
    sample: int | None = None
    per_class: int | None = None
    classes: str | Sequence[int | str] | None = None
    batch_size: int | None = None
    workers: int | None = None
    engine: EngineName = "local"
    quality: Quality = "report"
    tries: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("runs", self.runs, 1, 1000)
        check_choice("engine", self.engine, EngineName)
        check_choice("quality", self.quality, Quality)
        check_range("tries", self.tries, 0, 100)
        if self.batch_size is not None and self.batch_size < 1:
            raise UserError(f"the batch size is {self.batch_size}", allowed="1 or more")
        if self.workers is not None and self.workers < 1:
            raise UserError(f"the number of workers is {self.workers}", allowed="1 or more")

    def on_card(self) -> dict[str, Any]:
        """Return the part of `benchmark.json` with these settings."""
        # Only `strict` changes pictures, so it is omitted otherwise, as in benchmarks of earlier versions.
        strict = {"strict": {"tries": self.tries}} if self.quality == "strict" else {}
        return {**{name: getattr(self, name) for name in ON_CARD}, **strict}
