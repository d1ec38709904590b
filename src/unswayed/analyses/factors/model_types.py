"""Differences of error ratios between groups of models: Alexander and Govern's test for each factor."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
from scipy import stats

from unswayed.analyses.model_files import read_model_groups
from unswayed.analyses.statistics.paired import holm
from unswayed.errors import UserError
from unswayed.sources.imagenet_x import FACTORS


def read_groups(path: str | Path) -> pl.DataFrame:
    """Return rows (model, grouping, group) from a CSV with the column `model` and one column per grouping.

    An empty cell leaves the model out of that grouping.
    """
    table = read_model_groups(path)
    return table.unpivot(index="model", variable_name="grouping", value_name="group").drop_nulls("group")


def published_groups(errors: pl.DataFrame, types: Mapping[str, str]) -> pl.DataFrame:
    """Return rows ([set,] model, grouping, group) for the paper's comparison of model types.

    types: a model's type by its name. Of result tables the models of `imagenet_testbed` take part, and from
    `modelvshuman` and `base` only the self-supervised ones, as published.
    """
    groups = pl.DataFrame({"model": list(types), "grouping": "type", "group": list(types.values())})
    if "set" not in errors.columns:
        return groups
    placed = errors.select("set", "model").unique(maintain_order=True).join(groups, on="model")
    added = pl.col("set").is_in(["modelvshuman", "base"]) & (pl.col("group") == "Self-supervised")
    return placed.filter((pl.col("set") == "imagenet_testbed") | added)


def compare_model_types(errors: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Return rows (grouping, factor, group, models, error_ratio, spread, statistic, p_value, p_holm).

    `errors` is what `factor_errors` gives, over many models; `error_ratio` is the group's mean, `spread` the sample
    standard deviation over its models, and the test asks whether the groups' means differ without assuming equal
    variances. Groups of one model are shown but not tested; the p-value is null where fewer than two groups are left.
    Holm's correction runs over the factors of a grouping.
    """
    ratios = errors.filter(pl.col("factor").is_in(FACTORS) & pl.col("error_ratio").is_not_null())
    joined = ratios.join(groups, on=shared_keys(ratios, groups), how="inner")
    if joined.is_empty():
        known = ", ".join(ratios["model"].unique().sort().head(5))
        raise UserError("the groups name none of the models that have predictions", allowed=f"models such as {known}")
    means = joined.group_by("grouping", "factor", "group").agg(
        models=pl.len(),
        error_ratio=pl.col("error_ratio").mean(),
        spread=pl.col("error_ratio").std(),
        values=pl.col("error_ratio"),
    )
    tests = []
    for (grouping, factor), part in means.group_by(["grouping", "factor"]):
        statistic, p_value = _alexander_govern([np.asarray(v) for v in part["values"].to_list()])
        tests.append((grouping, factor, statistic, p_value))
    tested = pl.DataFrame(tests, schema=["grouping", "factor", "statistic", "p_value"], orient="row").fill_nan(None)
    tested = tested.with_columns(
        p_holm=pl.col("p_value").map_batches(holm_series, return_dtype=pl.Float64).over("grouping")
    )
    return means.drop("values").join(tested, on=["grouping", "factor"]).sort("grouping", factor_order(), "group")


def factor_order() -> pl.Expr:
    """Return the position of the column `factor` in `FACTORS`, to sort by."""
    return pl.col("factor").replace_strict({name: place for place, name in enumerate(FACTORS)}, return_dtype=pl.Int32)


def shared_keys(errors: pl.DataFrame, about_models: pl.DataFrame) -> list[str]:
    """Return the columns that name a model in both tables: result tables may have one name in several sets."""
    return [name for name in ("set", "model") if name in errors.columns and name in about_models.columns]


def _alexander_govern(samples: list[np.ndarray]) -> tuple[float, float]:
    usable = [sample for sample in samples if len(sample) > 1 and np.ptp(sample) > 0]
    if len(usable) < 2:
        return float("nan"), float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = stats.alexandergovern(*usable)
    return float(result.statistic), float(result.pvalue)


def holm_series(column: pl.Series) -> pl.Series:
    """Return Holm's correction of a column of p-values; nulls stay null and do not count."""
    return pl.Series(holm(column.to_numpy()), nan_to_null=True)
