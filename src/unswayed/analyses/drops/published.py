"""Results of the ImageNet-E paper (CVPR 2023), shown next to a model's own results on the official dataset.

Only beside the very models of the paper: those whose weights are known with certainty, by their exact names. The
paper's other figures are in docs/reproduce.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import polars as pl


@dataclass(frozen=True)
class Reported:
    """A model of the paper: its name there, the specs of exactly its weights, and results by edit.

    figures: `original` in percent, everything else a drop in points.
    """

    name: str
    specs: list[str]
    figures: dict[str, float]


_TABLE = resources.files("unswayed.data").joinpath("imagenet_e_published.toml").read_text(encoding="utf-8")
REPORTED = tuple(Reported(**entry) for entry in tomllib.loads(_TABLE)["model"])


def reported(spec: str) -> Reported | None:
    """Return the paper's entry for the model that a spec opens, or None; options and wrappers make another model.

    >>> reported("timm:resnet50.tv_in1k").name, reported("timm:resnet50.tv_in1k+flip"), reported("timm:resnet50")
    ('ResNet-50', None, None)
    """
    return next((entry for entry in REPORTED if spec in entry.specs), None)


def with_published(table: pl.DataFrame, cards: Mapping[str, Mapping[str, Any]]) -> pl.DataFrame:
    """Return the drop table with `published` (points; percent for `original`) and `published_model`, null if none.

    cards: by model; they name what an alias stands for.
    """
    entries = [reported(str(cards.get(model, {}).get("spec", model))) for model in table["model"]]
    figures = [(entry.figures.get(edit) if entry else None) for entry, edit in zip(entries, table["edit"], strict=True)]
    names = [
        entry.name if entry and figure is not None else None for entry, figure in zip(entries, figures, strict=True)
    ]
    return table.with_columns(
        pl.Series("published", figures, dtype=pl.Float64), pl.Series("published_model", names, dtype=pl.String)
    )
