"""What became of the questions to vision-language models, by edit: answered, or why there is no answer."""

from __future__ import annotations

import polars as pl

from unswayed.errors import printable
from unswayed.evaluation.predictions import COLUMNS, Predictions, columns_of, each_model

from . import schema

OUTCOMES = ("answered", "unmatched", "refused", "truncated", "no_reply")
NO_REPLY = ("malformed", "timeout", "failed")


def answer_outcomes(predictions: Predictions) -> pl.DataFrame:
    """Return one row per model and edit: how many questions had each outcome, the accuracy over all of them and over
    the answered ones, in [0, 1], and the most frequent text that means no class."""
    columns = schema(f"model edit n {' '.join(OUTCOMES)} accuracy of_answered example")
    if "outcome" not in columns_of(predictions):
        return pl.DataFrame(schema=columns)
    rows = []
    for _, frame in each_model(predictions, [*COLUMNS, "outcome", "answer_text"]):
        outcome = pl.when(pl.col("outcome").is_in(NO_REPLY)).then(pl.lit("no_reply")).otherwise(pl.col("outcome"))
        asked = frame.filter(pl.col("outcome").is_not_null()).with_columns(outcome.alias("outcome"))
        for (model, edit), group in asked.group_by("model", "edit", maintain_order=True):
            answered = pl.col("outcome") == "answered"
            texts = group.filter(pl.col("outcome") == "unmatched")["answer_text"].drop_nulls().mode().sort()
            rows.append(
                {"model": model, "edit": edit, "n": group.height, "accuracy": group["correct"].mean()}
                | {outcome: group.filter(pl.col("outcome") == outcome).height for outcome in OUTCOMES}
                | {"of_answered": group.filter(answered)["correct"].mean()}
                | {"example": printable(texts[0])[:80] if len(texts) else None}
            )
    return pl.DataFrame(rows, schema=columns)
