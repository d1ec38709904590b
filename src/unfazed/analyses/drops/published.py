"""Results of the ImageNet-E paper (CVPR 2023), shown next to a model's own results on the official dataset."""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from unfazed.predictions.facts import AVERAGE, ORIGINAL

_LAMBDA_20, _SIZE = "background-complex", "size-0.05"


@dataclass(frozen=True)
class Reported:
    """A model of the paper: its name there, a pattern of matching model strings, and results by edit.

    figures: `original` in percent, everything else a drop in points.
    """

    name: str
    pattern: str
    figures: dict[str, float]
    note: str = ""


REPORTED = (
    Reported(
        "SIN (ResNet-50)", r"resnet50.*(\bsin\b|stylized|_sin)", {ORIGINAL: 91.57, _LAMBDA_20: 12.19, _SIZE: 24.23}
    ),
    Reported("ResNeSt-50", r"resnest50", {AVERAGE: 12.57}),
    Reported(
        "ResNet-50",
        r"(?<![a-z_])resnet50(?![0-9a-z_])(?!.*clip)",
        {ORIGINAL: 92.69, _LAMBDA_20: 13.35, _SIZE: 21.26, AVERAGE: 15.72},
    ),
    Reported(
        "Swin-S",
        r"swin_(small|s)\b|swin_small",
        {ORIGINAL: 96.21, AVERAGE: 10.20},
        "the paper also gives it for λ = 20",
    ),
    Reported("Swin-B", r"swin_(base|b)\b|swin_base", {AVERAGE: 8.99}, "the paper also gives it for λ = 20"),
    Reported("ConvNeXt-T", r"convnext_tiny", {AVERAGE: 9.32}),
    Reported("ConvNeXt-B", r"convnext_base", {AVERAGE: 7.26}),
    Reported("ViT-B, MAE", r"vit_base.*mae|vit-mae-base", {AVERAGE: 9.05}),
    Reported("ViT-B", r"vit_base_patch16|vit_b_16|vit-base-patch16", {AVERAGE: 10.62}),
)
MEAN_OF_MODELS = Reported("mean of the paper's models", "", {_LAMBDA_20: 9.23, _SIZE: 18.34})


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
