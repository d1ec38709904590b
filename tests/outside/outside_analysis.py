"""An analysis: how sure each model is of its answers."""

import polars as pl

from unswayed.registry import declare


@declare(help="how sure each model is", facts={"title": "Certainty of each edit", "notes": "Mean top probability."})
def certainty(predictions):
    return (
        predictions.group_by("model", "edit", maintain_order=True)
        .agg(n=pl.len(), certainty=pl.col("probability").mean())
        .sort("model", "edit")
    )
