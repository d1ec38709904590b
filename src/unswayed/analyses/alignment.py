"""Alignment of saliency with the object, by correctness and by edit; and agreement of raters beyond chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from unswayed.choices import ClassColumn, check_choice
from unswayed.evaluation.measures import MEASURES

from . import schema
from .sensitivity import balanced_interval, mean_of_defined, members_of_groups
from .statistics.paired import bootstrap_means, resample_weights


def by_correctness(rows: pl.DataFrame, draws: int = 1000, seed: int = 0) -> pl.DataFrame:
    """Compare the alignment of correct and wrong predictions: one row per model, method, edit and measure.

    rows: model, method, edit, source_id, correct and the measures. Columns out: n_right, n_wrong, right, wrong,
    difference (right minus wrong) with its 95 % interval low, high; null if a side has no picture.
    """
    records = []
    for key, group in rows.group_by("model", "method", "edit", maintain_order=True):
        group = group.sort("source_id")
        weights = resample_weights(group["source_id"].to_list(), draws, seed)
        is_right = group["correct"].to_numpy()
        values = _measures(group)
        right, wrong = values[is_right], values[~is_right]
        # Right and wrong are different pictures, but may be edits of one photograph, which is resampled as a whole.
        resampled = [bootstrap_means(weights[:, side], values[side]) for side in (is_right, ~is_right)]
        bounds = balanced_interval(resampled[0] - resampled[1], min(len(right), len(wrong)))
        means = mean_of_defined(right), mean_of_defined(wrong)
        columns = zip(MEASURES, *means, means[0] - means[1], *bounds, strict=True)
        records += [(*key, measure, len(right), len(wrong), *numbers) for measure, *numbers in columns]
    names = schema("model method edit measure n_right n_wrong right wrong difference low high")
    return pl.DataFrame(records, schema=names, orient="row").fill_nan(None)


def by_edit(rows: pl.DataFrame, draws: int = 1000, seed: int = 0) -> pl.DataFrame:
    """Compare the alignment on an edit and on the same photographs unedited: one row per model, method, edit, measure.

    Columns out: n pairs, original, edited, change (edited minus original, paired) with its 95 % interval low, high.
    """
    per_source = rows.group_by("model", "method", "edit", "source_id", maintain_order=True).agg(
        pl.col(name).mean() for name in MEASURES
    )
    before = per_source.filter(pl.col("edit") == "original").drop("edit")
    after = per_source.filter(pl.col("edit") != "original").sort("source_id")
    paired = after.join(before, on=["model", "method", "source_id"], suffix="_original", maintain_order="left")
    records = []
    for key, group in paired.group_by("model", "method", "edit", maintain_order=True):
        edited = _measures(group)
        original = group.select(f"{name}_original" for name in MEASURES).cast(pl.Float64).fill_null(np.nan).to_numpy()
        missing = np.isnan(edited) | np.isnan(original)
        change = np.where(missing, np.nan, edited - original)
        weights = resample_weights(group["source_id"].to_list(), draws, seed)
        low, high = balanced_interval(bootstrap_means(weights, change), len(group))
        sides = [mean_of_defined(np.where(missing, np.nan, side)) for side in (original, edited, change)]
        columns = zip(MEASURES, (~missing).sum(axis=0), *sides, low, high, strict=True)
        records += [(*key, measure, int(n), *numbers) for measure, n, *numbers in columns]
    names = schema("model method edit measure n original edited change low high")
    return pl.DataFrame(records, schema=names, orient="row").fill_nan(None)


def summary(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the mean of every measure: one row per model, method and edit, with n and accuracy on these pictures."""
    return _means(rows, ["model", "method", "edit"])


def by_class(rows: pl.DataFrame, column: ClassColumn = "label") -> pl.DataFrame:
    """Return the mean of every measure on unedited pictures by class: model, method, `column`, n, accuracy, measures.

    column: `label`, the true class, or `predicted`, the class that the heat map explains, as in the released code.
    """
    check_choice("class column", column, ClassColumn)
    table = _means(rows.filter(pl.col("edit") == "original"), ["model", "method", column])
    in_order = pl.col("model").cast(pl.Enum(table["model"].unique(maintain_order=True)))
    return table.sort(in_order, "method", column)


def by_group(rows: pl.DataFrame, groups: pl.DataFrame, column: ClassColumn = "label") -> pl.DataFrame:
    """Return the alignment of groups of models: grouping, group, method, models, and the mean of every measure.

    A model's value is the mean over its classes (of `by_class`), a group's value the mean over its models.
    """
    means = pl.col(MEASURES).mean()
    classes = by_class(rows, column).group_by("model", "method", maintain_order=True).agg(means)
    tables = []
    for grouping, group, members in members_of_groups(groups, classes["model"].unique(maintain_order=True).to_list()):
        chosen = classes.filter(pl.col("model").is_in(members)).group_by("method", maintain_order=True)
        table = chosen.agg(pl.len().alias("models"), means)
        tables.append(table.select(pl.lit(grouping).alias("grouping"), pl.lit(group).alias("group"), pl.all()))
    return pl.concat(tables)


def _means(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    accuracy = pl.col("correct").cast(float).mean().alias("accuracy")
    return rows.group_by(keys, maintain_order=True).agg(pl.len().alias("n"), accuracy, pl.col(MEASURES).mean())


def _measures(table: pl.DataFrame) -> np.ndarray:
    return table.select(MEASURES).cast(pl.Float64).fill_null(np.nan).to_numpy().reshape(-1, len(MEASURES))


@dataclass(frozen=True)
class Agreement:
    """kappa: 1 for full agreement, 0 for what chance gives, NaN where it is undefined; method: `Cohen` or `Fleiss`;
    n: the items that all raters answered; observed: the share of pairs of answers that are equal."""

    kappa: float
    method: str
    raters: int
    n: int
    observed: float


def agreement(answers: Mapping[str, Mapping[str, str]]) -> Agreement | None:
    """The agreement of raters over the items that all of them answered; None with fewer than two raters.

    answers: rater -> item -> answer.

    >>> agreement({"ann": {"1": "a", "2": "b"}, "bob": {"1": "a", "2": "b"}}).kappa
    1.0
    """
    raters = sorted(answers)
    if len(raters) < 2:
        return None
    items = sorted(set.intersection(*(set(answers[rater]) for rater in raters)))
    table = [[answers[rater][item] for rater in raters] for item in items]
    kinds = sorted({answer for row in table for answer in row})
    counts = np.array([[row.count(kind) for kind in kinds] for row in table], dtype=float).reshape(-1, len(kinds) or 1)
    n, per_item = len(items), len(raters)
    equal = float(((counts**2).sum(axis=1) - per_item).sum() / (n * per_item * (per_item - 1))) if n else float("nan")
    if per_item > 2:  # Fleiss 1971: each rater answers as all of them do on average
        chance = float(((counts.sum(axis=0) / max(n * per_item, 1)) ** 2).sum())
    else:
        first, second = zip(*table, strict=True) if table else ((), ())
        chance = sum(first.count(kind) * second.count(kind) for kind in kinds) / max(n**2, 1)
    kappa = (equal - chance) / (1 - chance) if n and chance < 1 else float("nan")
    return Agreement(kappa, "Fleiss" if per_item > 2 else "Cohen", per_item, n, equal)
