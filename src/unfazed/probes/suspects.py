"""Ranking of pictures in which a model may rely on something other than the object."""

from __future__ import annotations

import polars as pl


def suspects(noise: pl.DataFrame | None, saliency: pl.DataFrame | None, per_class: int = 3) -> pl.DataFrame:
    """The `per_class` pictures of each class that look most spurious, by each of two reasons, worst first.

    saliency: the heat map has the lowest precision on the object. noise: p_bg - p_fg is lowest, averaged over
    levels and seeds: background noise lowers the probability more than noise on the object.
    Columns: model, label, reason, rank (from 1), source_id, value. Either table may be None.
    """
    ranked = []
    if saliency is not None:
        table = saliency.filter(pl.col("edit") == "original").select(
            "model", "label", pl.lit("saliency").alias("reason"), "source_id", pl.col("precision").alias("value")
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
            .select("model", "label", pl.lit("noise").alias("reason"), "source_id", "value")
        )
        ranked.append(table)
    return (
        pl.concat(ranked)
        .drop_nulls(["value", "label"])
        .sort("model", "label", "reason", "value", "source_id")
        .with_columns((pl.int_range(pl.len()).over("model", "label", "reason") + 1).alias("rank"))
        .filter(pl.col("rank") <= per_class)
        .select("model", "label", "reason", "rank", "source_id", "value")
    )
