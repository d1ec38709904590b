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
    known = groups.cast(pl.String).filter(pl.col("model").is_in(list(models)))
    long = known.unpivot(index="model", variable_name="grouping", value_name="group").drop_nulls("group")
    return long.group_by("grouping", "group", maintain_order=True).agg("model").rows()


def sensitivity_by_class(
    rows: pl.DataFrame, draws: int = 1000, seed: int = 0, convention: Convention = "default"
) -> pl.DataFrame:
    """Return the table of `sensitivity` by model and class: label after model, n the pictures of that class."""
    tables = []
    for label in rows["label"].drop_nulls().unique().sort():
        table = sensitivity(rows.filter(pl.col("label") == label), draws, seed, convention)
        tables.append(table.select("model", pl.lit(label, pl.Int64).alias("label"), pl.exclude("model")))
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
    measured = pl.col("correct", "true_probability").cast(float)
    clean = rows.filter(pl.col("norm") == "clean").select("model", "source_id", measured.name.prefix("clean_"))
    treated = (
        rows.filter(pl.col("norm") != "clean")
        .group_by(*keys, "source_id", "label")
        .agg(measured.mean())
        .join(clean, on=["model", "source_id"])
        .sort("source_id")
    )
    drops = [(pl.col(f"clean_{name}") - pl.col(name)).alias(name) for name in ("correct", "true_probability")]
    records = []
    for key, group in treated.group_by(keys, maintain_order=True):
        labels = group["label"].to_numpy() if convention == "default" else np.zeros(len(group), int)
        values = group.select("clean_correct", pl.col("correct").alias("after"), *drops).to_numpy()
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
    in_order = pl.col("model").cast(pl.Enum(models))
    pairs = pairs.filter(pl.col("source_id").is_in(whole.implode())).sort(in_order, "source_id", "norm", "level")
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
    columns = [
        pl.col(name).cast(float).filter(pl.col("region") == region).mean().alias(f"{region}_{short}")
        for region in ("foreground", "background")
        for name, short in (("correct", "correct"), ("true_probability", "probability"))
    ]
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
                    same = [i for i, (name, known) in enumerate(cube.levels) if name == norm and known is not None]
                    instance[:, :, index] = instance[:, :, same].mean(2)
        instance = mean_of_defined(instance)
        accuracy = class_balanced_mean(correct, cube.labels)
        resampled = bootstrap_balanced(correct, cube.labels, cube.ids, draws, seed)
        rfs = relative_foreground_sensitivity(accuracy[:, 0], accuracy[:, 1])
        rfs_draws = relative_foreground_sensitivity(resampled[..., 0], resampled[..., 1])
        irfs = class_balanced_mean(instance, cube.labels)
        irfs_draws = bootstrap_balanced(instance, cube.labels, cube.ids, draws, seed)
        columns = {"accuracy_foreground": accuracy[:, 0], "accuracy_background": accuracy[:, 1]}
        for measure, value, resamples in (("rfs", rfs, rfs_draws), ("irfs", irfs, irfs_draws)):
            low, high = balanced_interval(resamples, len(cube.ids))
            columns |= {measure: value, f"{measure}_low": low, f"{measure}_high": high}
        columns["undefined"] = np.isnan(rfs_draws).mean(0)
        keys = {"model": name}
        if grouping != "model":
            own = class_balanced_mean(np.moveaxis(cube.correct[indices], 0, -1), cube.labels)
            columns["mean_model_rfs"] = mean_of_defined(relative_foreground_sensitivity(own[:, 0], own[:, 1]).T)
            keys = {"grouping": grouping, "model": name}
        norms, levels = zip(*cube.levels, strict=True)
        known = {**keys, "norm": norms, "level": levels, "n": [len(cube.labels)] * len(levels)}
        table = pl.DataFrame(known, schema_overrides={"level": pl.Float64})
        tables.append(table.with_columns(_column(key, values) for key, values in columns.items()))
    return pl.concat(tables)


def _by_convention(values: np.ndarray, convention: Convention) -> np.ndarray:
    return np.nan_to_num(values, nan=0.0) if convention == "released" else values


def mean_of_defined(values: np.ndarray) -> np.ndarray:
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
