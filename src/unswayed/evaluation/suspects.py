"""Ranking of pictures in which a model may rely on something other than the object."""

from __future__ import annotations

import polars as pl

from unswayed.choices import ClassColumn, check_choice
from unswayed.errors import unknown

from .alignment_measures import MEASURES


def suspects(
    noise: pl.DataFrame | None,
    saliency: pl.DataFrame | None,
    per_class: int = 3,
    by: ClassColumn = "label",
    measure: str = "precision",
) -> pl.DataFrame:
    """The `per_class` pictures of each class that look most spurious, by each of two reasons, worst first.

    saliency: the heat map has the lowest `measure` of alignment with the object. noise: p_bg - p_fg is lowest, averaged
    over levels and seeds: background noise lowers the probability more than noise on the object. by: the true class
    (`label`), or the class that the model predicts for the unchanged picture (`predicted`).
    Columns: model, label or predicted, reason, rank (from 1), source_id, value. Either table may be None.
    """
    check_choice("class column", by, ClassColumn)
    check_measure(measure)
    ranked = []
    if saliency is not None:
        table = saliency.filter(pl.col("edit") == "original").select(
            "model", by, pl.lit("saliency").alias("reason"), "source_id", pl.col(measure).alias("value")
        )
        ranked.append(table)
    if noise is not None:
        background, foreground = (
            pl.col("true_probability").filter(pl.col("region") == region).mean()
            for region in ("background", "foreground")
        )
        table = (
            noise.filter(pl.col("norm").is_in(["linf", "l2"]))
            .group_by("model", "label", "source_id", maintain_order=True)
            .agg((background - foreground).alias("value"))
        )
        if by == "predicted":
            clean = noise.filter(pl.col("norm") == "clean").select("model", "source_id", "predicted")
            table = table.join(clean, on=["model", "source_id"])
        ranked.append(table.select("model", by, pl.lit("noise").alias("reason"), "source_id", "value"))
    return (
        pl.concat(ranked)
        .drop_nulls(["value", by])
        .sort("model", by, "reason", "value", "source_id")
        .with_columns((pl.int_range(pl.len()).over("model", by, "reason") + 1).alias("rank"))
        .filter(pl.col("rank") <= per_class)
        .select("model", by, "reason", "rank", "source_id", "value")
    )


def check_measure(measure: str) -> None:
    """Refuse a name that is not a measure of heat maps."""
    if measure not in MEASURES:
        raise unknown("measure of alignment", measure, MEASURES)
