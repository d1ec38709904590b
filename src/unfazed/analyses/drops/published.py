"""Results of the ImageNet-E paper (CVPR 2023), shown next to a model's own results on the official dataset."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib import resources

import polars as pl


@dataclass(frozen=True)
class Reported:
    """A model of the paper: its name there, a pattern of matching model strings, and results by edit.

    figures: `original` in percent, everything else a drop in points.
    """

    name: str
    figures: dict[str, float]
    pattern: str = ""


_TABLE = resources.files("unfazed.data").joinpath("imagenet_e_published.toml").read_text(encoding="utf-8")
*REPORTED, MEAN_OF_MODELS = (Reported(**entry) for entry in tomllib.loads(_TABLE)["model"])


def reported(model: str) -> Reported | None:
    """Return the paper's entry for a model string such as `timm:resnet50.tv_in1k`, or None.

    Only the architecture is compared; other weights of it have the same entry, so the results may differ.

    >>> reported("timm:resnet50.tv_in1k").name, reported("timm:resnet101") is None
    ('ResNet-50', True)
    """
    for entry in REPORTED:
        if re.search(entry.pattern, model.lower()):
            return entry
    return None


def with_published(table: pl.DataFrame) -> pl.DataFrame:
    """Return the drop table with `published` (points; percent for `original`) and `published_model`, null if none."""
    from .model_groups import EVERY

    entries = [MEAN_OF_MODELS if model == EVERY else reported(model) for model in table["model"]]
    figures = [(entry.figures.get(edit) if entry else None) for entry, edit in zip(entries, table["edit"], strict=True)]
    names = [
        entry.name if entry and figure is not None else None for entry, figure in zip(entries, figures, strict=True)
    ]
    return table.with_columns(
        pl.Series("published", figures, dtype=pl.Float64), pl.Series("published_model", names, dtype=pl.String)
    )
