"""RIVAL10's measures of noise results: relative foreground sensitivity (RFS), its instance-wise form, drops by region.

Input: one row per model, picture, norm, level, region and seed, as `unswayed sensitivity` writes them, with columns
model, source_id, label, norm (clean | linf | l2 | grey), level, region, seed, correct, true_probability.
Output: tables; undefined values (0/0) are null. Moayeri et al., CVPR 2022, section 4.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from unswayed.choices import Convention
from unswayed.errors import UserError

from . import schema
from .statistics.paired import percentiles, resample_weights

NOISES = ("linf", "l2")
_TINY = 1e-9


def relative_foreground_sensitivity(foreground: np.ndarray | float, background: np.ndarray | float) -> np.ndarray:
    """Return RFS = (a_bg - a_fg) / (2 min(ā, 1 - ā)), ā their mean: in [-1, 1], nan if it is 0/0.

    foreground, background: accuracy (or true-class probability) under noise there, in [0, 1], any equal shapes.

    >>> relative_foreground_sensitivity(0.2, 0.9).round(6).item(), relative_foreground_sensitivity(1.0, 1.0).item()
    (0.777778, nan)
    """
    foreground, background = np.asarray(foreground, float), np.asarray(background, float)
    mean = (foreground + background) / 2
    room = 2 * np.minimum(mean, 1 - mean)
    undefined = ~(room > _TINY)
    return np.where(undefined, np.nan, (background - foreground) / np.where(undefined, 1.0, room))


def instance_sensitivity(rows: pl.DataFrame, convention: Convention = "default") -> pl.DataFrame:
    """Return iRFS of every picture: model, source_id, label, norm, level, and both probabilities, mean over seeds.

    convention: an undefined value (0/0) is null, or 0 as in the released code.
    """
    table = _pairs(rows).select(
        "model", "source_id", "label", "norm", "level", "foreground_probability", "background_probability"
    )
    values = relative_foreground_sensitivity(
        table["foreground_probability"].to_numpy(), table["background_probability"].to_numpy()
    )
    return table.with_columns(_column("irfs", _by_convention(values, convention)))


def sensitivity(
    rows: pl.DataFrame, draws: int = 1000, seed: int = 0, convention: Convention = "default"
) -> pl.DataFrame:
    """Return one row per model, norm and level (null: RFS of the mean accuracies over all levels), with 95 % intervals.

    Columns: model, norm, level, n, accuracy_foreground, accuracy_background, rfs, rfs_low, rfs_high, irfs,
    irfs_low, irfs_high, undefined (the share of bootstrap draws whose RFS is 0/0). convention: `released` counts an
    undefined iRFS as 0, and over all levels it takes the mean of the levels' iRFS, not iRFS of the mean probabilities.
    """
    cube = _cube(rows)
    wanted = [("model", model, [index]) for index, model in enumerate(cube.models)]
    return _table(cube, wanted, draws, seed, convention)


def sensitivity_by_group(
    rows: pl.DataFrame, groups: pl.DataFrame, draws: int = 1000, seed: int = 0, convention: Convention = "default"
) -> pl.DataFrame:
    """Return the table of `sensitivity` for groups of models: RFS of the group's mean accuracies, as published.

    groups: a column `model` and one column per grouping (architecture, training, …). `mean_model_rfs` is the mean of
    the models' own RFS, which differs because RFS is not linear in the accuracies.
    """
    cube = _cube(rows)
    wanted = [
        (grouping, group, [cube.models.index(model) for model in members])
        for grouping, group, members in members_of_groups(groups, cube.models)
    ]
    table = _table(cube, wanted, draws, seed, convention).rename({"model": "group"})
    return table.with_columns(pl.Series("models", [len(w[2]) for w in wanted for _ in range(len(cube.levels))]))


def members_of_groups(groups: pl.DataFrame, models: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """Return (grouping, group, its models that have results) from a table with `model` and one column per grouping."""
    if "model" not in groups.columns or len(groups.columns) < 2:
        raise UserError(
            f"the groups have the columns {', '.join(groups.columns)}", allowed="model,GROUPING[,GROUPING …]"
        )
    if not set(models) & set(groups["model"].cast(str)):
        raise UserError(
            "no model of the results is named in the groups", allowed=f"the models of the results: {', '.join(models)}"
        )
    found: list[tuple[str, str, list[str]]] = []
    for grouping in (name for name in groups.columns if name != "model"):
        members: dict[str, list[str]] = {}
        for model, group in groups.select(pl.col("model").cast(str), pl.col(grouping).cast(str)).iter_rows():
            if model in models and group is not None:
                members.setdefault(group, []).append(model)
        found += [(grouping, group, chosen) for group, chosen in members.items()]
    return found


def sensitivity_by_class(
    rows: pl.DataFrame, draws: int = 1000, seed: int = 0, convention: Convention = "default"
) -> pl.DataFrame:
    """Return the table of `sensitivity` by model and class: label after model, n the pictures of that class."""
    tables = []
    for label in sorted(set(rows["label"].drop_nulls().to_list())):
        table = sensitivity(rows.filter(pl.col("label") == label), draws, seed, convention)
        tables.append(table.insert_column(1, pl.Series("label", [label] * len(table), dtype=pl.Int64)))
    return pl.concat(tables)


def region_drops(
    rows: pl.DataFrame, draws: int = 1000, seed: int = 0, convention: Convention = "default"
) -> pl.DataFrame:
    """Return what noise or gray on a region costs: one row per model, norm, level and region, paired with the clean.

    Columns: model, norm, level (null for grey), region, n, clean_accuracy, accuracy, drop, low, high (of the drop, in
    points of accuracy in [0, 1]), probability_drop, probability_low, probability_high. n is the pictures that have
    the region: the clean accuracy is over these alone. convention: class-balanced means, or as in the released code
    means over all pictures.
    """
    keys = ["model", "norm", "level", "region"]
    clean = rows.filter(pl.col("norm") == "clean").select(
        "model",
        "source_id",
        pl.col("correct").cast(float).alias("clean_correct"),
        pl.col("true_probability").cast(float).alias("clean_probability"),
    )
    treated = (
        rows.filter(pl.col("norm") != "clean")
        .group_by(*keys, "source_id", "label")
        .agg(pl.col("correct").cast(float).mean(), pl.col("true_probability").cast(float).mean())
        .join(clean, on=["model", "source_id"])
        .sort("source_id")
    )
    records = []
    for key, group in treated.group_by(keys, maintain_order=True):
        labels = group["label"].to_numpy() if convention == "default" else np.zeros(len(group), int)
        values = group.select(
            "clean_correct",
            "correct",
            (pl.col("clean_correct") - pl.col("correct")).alias("drop"),
            (pl.col("clean_probability") - pl.col("true_probability")).alias("probability_drop"),
        ).to_numpy()
        mean = class_balanced_mean(values, labels)
        resampled = bootstrap_balanced(values[:, 2:], labels, group["source_id"].to_list(), draws, seed)
        low, high = balanced_interval(resampled, len(group))
        numbers = (len(group), *mean[:3], low[0], high[0], mean[3], low[1], high[1])
        records.append((*key, *numbers))
    types = schema(
        "model norm level region n clean_accuracy accuracy drop low high probability_drop probability_low "
        "probability_high"
    )
    return pl.DataFrame(records, schema=types, orient="row").fill_nan(None).sort(keys, nulls_last=True)


@dataclass(frozen=True)
class _Cube:
    """Accuracy and probability (models, pictures, levels, 2 = foreground and background) of the common pictures."""

    models: list[str]
    ids: list[str]
    labels: np.ndarray
    levels: list[tuple[str, float | None]]
    correct: np.ndarray
    probability: np.ndarray


def _cube(rows: pl.DataFrame) -> _Cube:
    """Return the pictures that every model has at every level, sorted by id; levels end with each norm's mean."""
    pairs = _pairs(rows)
    levels = pairs.select("norm", "level").unique().sort("norm", "level").rows()
    models = pairs["model"].unique(maintain_order=True).to_list()
    whole = pairs.group_by("source_id").len().filter(pl.col("len") == len(levels) * len(models))["source_id"]
    if whole.is_empty():
        raise UserError(
            f"no picture has foreground and background noise at all {len(levels)} levels for all {len(models)} models",
            run="the same `unswayed sensitivity` command again, which completes what is missing",
        )
    order = pl.DataFrame({"model": models, "model_order": range(len(models))})
    pairs = (
        pairs.filter(pl.col("source_id").is_in(whole.implode()))
        .join(order, on="model")
        .sort("model_order", "source_id", "norm", "level")
    )
    shape = (len(models), len(whole), len(levels), 2)
    correct = pairs.select("foreground_correct", "background_correct").to_numpy().reshape(shape)
    probability = pairs.select("foreground_probability", "background_probability").to_numpy().reshape(shape)
    once = slice(0, len(whole) * len(levels), len(levels))
    labels, ids = pairs["label"].to_numpy()[once], pairs["source_id"][once].to_list()
    for norm in sorted({norm for norm, _ in levels}):
        chosen = [index for index, (name, level) in enumerate(levels) if name == norm and level is not None]
        correct = np.concatenate([correct, correct[:, :, chosen].mean(2, keepdims=True)], axis=2)
        probability = np.concatenate([probability, probability[:, :, chosen].mean(2, keepdims=True)], axis=2)
        levels.append((norm, None))
    return _Cube(models, ids, labels, levels, correct, probability)


def _pairs(rows: pl.DataFrame) -> pl.DataFrame:
    """Return foreground and background, mean over seeds: one row per model, picture, norm and level that has both."""
    columns = []
    for region in ("foreground", "background"):
        here = pl.col("region") == region
        columns.append(pl.col("correct").cast(float).filter(here).mean().alias(f"{region}_correct"))
        columns.append(pl.col("true_probability").cast(float).filter(here).mean().alias(f"{region}_probability"))
    return (
        rows.filter(pl.col("norm").is_in(NOISES) & pl.col("label").is_not_null())
        .group_by("model", "source_id", "label", "norm", "level", maintain_order=True)
        .agg(columns)
        .drop_nulls(["foreground_correct", "background_correct"])
    )


def _table(
    cube: _Cube, wanted: list[tuple[str, str, list[int]]], draws: int, seed: int, convention: Convention
) -> pl.DataFrame:
    tables = []
    for grouping, name, indices in wanted:
        # RFS is computed from the mean accuracies of the group's models; (pictures, levels, 2)
        correct = cube.correct[indices].mean(0)
        instance = relative_foreground_sensitivity(cube.probability[indices, ..., 0], cube.probability[indices, ..., 1])
        instance = _by_convention(instance, convention)
        if convention == "released":
            for index, (norm, level) in enumerate(cube.levels):
                if level is None:
                    same = [i for i, (name, one) in enumerate(cube.levels) if name == norm and one is not None]
                    instance[:, :, index] = instance[:, :, same].mean(2)
        instance = _mean_of_defined(instance)
        accuracy = class_balanced_mean(correct, cube.labels)
        resampled = bootstrap_balanced(correct, cube.labels, cube.ids, draws, seed)
        rfs = relative_foreground_sensitivity(accuracy[:, 0], accuracy[:, 1])
        rfs_draws = relative_foreground_sensitivity(resampled[..., 0], resampled[..., 1])
        rfs_low, rfs_high = balanced_interval(rfs_draws, len(cube.ids))
        irfs_draws = bootstrap_balanced(instance, cube.labels, cube.ids, draws, seed)
        irfs_low, irfs_high = balanced_interval(irfs_draws, len(cube.ids))
        own = class_balanced_mean(np.moveaxis(cube.correct[indices], 0, -1), cube.labels)
        columns = {
            "accuracy_foreground": accuracy[:, 0],
            "accuracy_background": accuracy[:, 1],
            "rfs": rfs,
            "rfs_low": rfs_low,
            "rfs_high": rfs_high,
            "irfs": class_balanced_mean(instance, cube.labels),
            "irfs_low": irfs_low,
            "irfs_high": irfs_high,
            "undefined": np.isnan(rfs_draws).mean(0),
        }
        if grouping != "model":
            columns["mean_model_rfs"] = _mean_of_defined(relative_foreground_sensitivity(own[:, 0], own[:, 1]).T)
        table = pl.DataFrame(
            {
                "model": [name] * len(cube.levels),
                "norm": [norm for norm, _ in cube.levels],
                "level": pl.Series([level for _, level in cube.levels], dtype=pl.Float64),
                "n": [len(cube.labels)] * len(cube.levels),
            }
        ).with_columns(_column(key, values) for key, values in columns.items())
        if grouping != "model":
            table = table.insert_column(0, pl.Series("grouping", [grouping] * len(table)))
        tables.append(table)
    return pl.concat(tables)


def _by_convention(values: np.ndarray, convention: Convention) -> np.ndarray:
    return np.nan_to_num(values, nan=0.0) if convention == "released" else values


def _mean_of_defined(values: np.ndarray) -> np.ndarray:
    """Return the mean over the first axis without nan; nan if all are nan."""
    defined = np.isfinite(values)
    count = defined.sum(0)
    return np.divide(np.where(defined, values, 0).sum(0), count, out=np.full(count.shape, np.nan), where=count > 0)


def _column(name: str, values: np.ndarray) -> pl.Series:
    return pl.Series(name, np.asarray(values, float)).fill_nan(None)


def class_balanced_mean(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the mean over classes of each class's mean: (n, ...) values -> (...).

    values: nan = missing, left out of its class; labels: (n,) int. If all values are missing, the mean is nan.

    >>> class_balanced_mean(np.array([1.0, 1.0, 1.0, 0.0]), np.array([7, 7, 7, 2])).item()
    0.5
    """
    filled, weights = _weighted(values, labels)
    total = weights.sum(0)
    mean = np.divide((weights * filled).sum(0), total, out=np.full(total.shape, np.nan), where=total > 0)
    return mean.reshape(np.shape(values)[1:])


def bootstrap_balanced(
    values: np.ndarray, labels: np.ndarray, ids: Sequence[str], draws: int = 1000, seed: int = 0
) -> np.ndarray:
    """Return class-balanced means of `draws` resamples of the pictures: (n, ...) -> (draws, ...).

    A picture keeps its weight of the class-balanced mean, and the weights of a draw are normalized. Pictures
    are drawn from all classes: with one picture per class, draws within classes would never vary.
    """
    filled, weights = _weighted(values, labels)
    counts = resample_weights(ids, draws, seed).astype(np.float64)
    total = counts @ weights
    means = np.divide(counts @ (weights * filled), total, out=np.full(total.shape, np.nan), where=total > 0)
    return means.reshape(draws, *np.shape(values)[1:])


def balanced_interval(draws: np.ndarray, pictures: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95 % percentile interval over the first axis without undefined draws; nan if there is none.

    One picture has no interval, because its resamples are all the same. Nor have pictures whose resamples all give
    the same value: an interval of width zero would claim a certainty that a few equal answers do not give.
    """
    if pictures < 2:
        nothing = np.full(draws.shape[1:], np.nan)
        return nothing, nothing
    with warnings.catch_warnings():
        # A column that is undefined in every draw is a valid result.
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        low, high = percentiles(draws)
        collapsed = np.nanmax(draws, axis=0) - np.nanmin(draws, axis=0) < 1e-12
    return np.where(collapsed, np.nan, low), np.where(collapsed, np.nan, high)


def _weighted(values: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values (n, k) with 0 for nan, and weights (n, k): 1 / number of defined values of the class."""
    flat = np.asarray(values, float).reshape(len(values), -1)
    present = np.isfinite(flat)
    _, classes = np.unique(labels, return_inverse=True)
    pictures = np.zeros((classes.max(initial=-1) + 1, flat.shape[1]))
    np.add.at(pictures, classes, present)
    weights = np.divide(present, pictures[classes], out=np.zeros(flat.shape), where=present)
    return np.where(present, flat, 0.0), weights
