"""Mean corruption error on ImageNet-C (Hendrycks & Dietterich 2019): errors relative to AlexNet's, by corruption."""

from __future__ import annotations

from typing import Any

import polars as pl

from unswayed.errors import UserError
from unswayed.evaluation.facts import Facts
from unswayed.evaluation.predictions import Predictions, in_memory

MEAN = "mean"
# AlexNet's published top-1 errors in percent, means over the five severities.
ALEXNET = {
    "gaussian_noise": 88.6428,
    "shot_noise": 89.4468,
    "impulse_noise": 92.2640,
    "defocus_blur": 81.9880,
    "glass_blur": 82.6268,
    "motion_blur": 78.5948,
    "zoom_blur": 79.8360,
    "snow": 86.6816,
    "frost": 82.6572,
    "fog": 81.9324,
    "brightness": 56.4592,
    "contrast": 85.3204,
    "elastic_transform": 64.6056,
    "pixelate": 71.7840,
    "jpeg_compression": 60.6500,
}


def corruption_errors(predictions: Predictions, *, facts: Facts | None = None) -> pl.DataFrame:
    """Return one row per model and corruption: n, severities, `error` in percent and `ce`, its ratio to AlexNet's.

    The error is the mean over the severities, each of which counts the same. The row `mean` is the mean over the
    fifteen corruptions, its `ce` the mean corruption error; it is missing if a corruption or a severity is.

    >>> rows = [{"model": "m", "source_id": "a", "edit": f"fog-{s}", "run": 0, "correct": s > 2} for s in range(1, 6)]
    >>> corruption_errors(pl.DataFrame(rows)).select("corruption", "error", pl.col("ce").round(2)).row(0)
    ('fog', 40.0, 48.82)
    """
    rows = in_memory(predictions, []).with_columns(pl.col("model", "edit").cast(pl.String))
    named = pl.col("edit").str.extract_groups(r"^(?<corruption>[a-z_]+)-(?<severity>[1-5])$")
    rows = rows.with_columns(named).unnest("edit").filter(pl.col("corruption").is_not_null())
    if rows.is_empty():
        raise UserError(
            "these predictions are not of ImageNet-C",
            allowed="pictures in ROOT/corruption/severity/WNID",
            run="unswayed evaluate images:ROOT -m MODEL -o PREDICTIONS",
        )
    by_severity = rows.group_by("model", "corruption", "severity", maintain_order=True).agg(
        n=pl.len(), error=100 * (1 - pl.col("correct").mean())
    )
    table = by_severity.group_by("model", "corruption", maintain_order=True).agg(
        n=pl.col("n").sum().cast(pl.Int64), severities=pl.len().cast(pl.Int64), error=pl.col("error").mean()
    )
    alexnet = pl.col("corruption").replace_strict(ALEXNET, default=None, return_dtype=pl.Float64)
    table = table.with_columns(alexnet=alexnet).with_columns(ce=100 * pl.col("error") / pl.col("alexnet"))
    found: list[dict[str, Any]] = []
    for (model,), part in table.group_by("model", maintain_order=True):
        ordered = {row["corruption"]: row for row in part.iter_rows(named=True)}
        found += [
            ordered[name] for name in [*ALEXNET, *(one for one in ordered if one not in ALEXNET)] if name in ordered
        ]
        counted = [ordered[name] for name in ALEXNET if name in ordered and ordered[name]["severities"] == 5]
        if len(counted) == len(ALEXNET):
            means = {key: sum(row[key] for row in counted) / len(counted) for key in ("error", "alexnet", "ce")}
            total = {"n": sum(row["n"] for row in counted), "severities": 5}
            found.append({"model": model, "corruption": MEAN, **total, **means})
    return pl.DataFrame(found, schema=table.schema)
