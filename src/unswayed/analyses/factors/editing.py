"""The agreement of edits and annotations: a model's drop for an edited attribute against its error ratio."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from scipy import stats

from unswayed.analyses.columns import schema
from unswayed.errors import UserError
from unswayed.evaluation.facts import similar_factors
from unswayed.evaluation.model_cards import STORED
from unswayed.evaluation.predictions import polars_table
from unswayed.files.tables import column_names, read_checked
from unswayed.sources.imagenet_x import FACTORS, Annotations, image_keys

from .answers import prediction_files

_EDITED = ("model", "file_name", "edit", "correct")
# An edit that enlarges the object is not comparable with images whose object is smaller than usual.
_NOT_MEANT = ("size-full",)


def read_edited(path: str | Path) -> pl.DataFrame:
    """Return rows (model, file_name, edit, correct) of every Parquet file in `path` with edited pictures."""
    tables = []
    for file in prediction_files(path):
        if file.suffix.lower() != ".parquet":
            continue
        if set(_EDITED) <= set(column_names(file)):
            frame = polars_table(read_checked(file, STORED, select=_EDITED))
            texts = pl.col("model", "file_name", "edit").cast(pl.String)  # files hold them as categories
            tables.append(frame.select(texts, pl.col("correct").cast(pl.Boolean)))
    if not tables:
        raise UserError(
            f"{path} contains no predictions for edited pictures", run="unswayed evaluate BENCH -m MODEL -o PREDICTIONS"
        )
    return pl.concat(tables)


def drop_and_error_ratio(annotations: Annotations, edited: pl.DataFrame) -> pl.DataFrame:
    """Return model, attribute, factor, n, n_factor, accuracy, drop, error_ratio over images both edited and annotated.

    `drop` is the loss of accuracy in points from `original` to the edits of the attribute, each image weighing the
    same; `error_ratio` is that of the unedited pictures of the same n images, n_factor of which have the factor.
    """
    factors = pl.DataFrame({"key": annotations.keys}).hstack(pl.DataFrame(annotations.factors, schema=list(FACTORS)))
    known = edited.with_columns(key=image_keys(edited["file_name"])).join(factors, on="key", how="inner")
    if known.is_empty():
        raise UserError(f"none of the edited pictures comes from an annotated image ({annotations.partition})")
    original = known.filter(pl.col("edit") == "original").group_by("model", "key").agg(before=pl.col("correct").mean())
    if original.is_empty():
        raise UserError("the predictions contain no `original` rows, so there is no drop")
    tables = []
    # The name of an edited attribute is the beginning of the names of its edits.
    for attribute, factor in similar_factors().items():
        named = (pl.col("edit") == attribute) | pl.col("edit").str.starts_with(f"{attribute}-")
        of_attribute = known.filter(named & ~pl.col("edit").is_in(_NOT_MEANT))
        per_image = of_attribute.group_by("model", "key").agg(
            after=pl.col("correct").mean(), has_factor=pl.col(factor).first()
        )
        tables.append(
            per_image.join(original, on=["model", "key"])
            .group_by("model")
            .agg(
                attribute=pl.lit(attribute),
                factor=pl.lit(factor),
                n=pl.len(),
                n_factor=pl.col("has_factor").sum(),
                accuracy=pl.col("before").mean(),
                drop=100 * (pl.col("before") - pl.col("after")).mean(),
                error_ratio=(1 - pl.col("before").filter("has_factor")).mean() / (1 - pl.col("before")).mean(),
            )
        )
    together = pl.concat(tables).with_columns(pl.col("error_ratio").replace([float("nan"), float("inf")], None))
    return together.sort("attribute", "model")


def agreement(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return attribute, factor, models, correlation, p_value: Spearman's between drop and error ratio over models.

    Null with fewer than three models, or where all models agree in one of the two.
    """
    rows = []
    for (attribute, factor), part in pairs.drop_nulls("error_ratio").group_by(["attribute", "factor"]):
        correlation = p_value = None
        if part.height >= 3 and part["drop"].n_unique() > 1 and part["error_ratio"].n_unique() > 1:
            result = stats.spearmanr(part["drop"].to_numpy(), part["error_ratio"].to_numpy())
            correlation, p_value = float(result.statistic), float(result.pvalue)
        rows.append((attribute, factor, part.height, correlation, p_value))
    types = schema("attribute factor models correlation p_value")
    return pl.DataFrame(rows, schema=types, orient="row").sort("attribute")
