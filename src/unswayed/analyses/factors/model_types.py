"""Differences of error ratios between two models, between groups of models, and along strengths of augmentation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
import scipy  # `scipy.stats` is slow to import, and loaded when it is used
from scipy import special

from unswayed.errors import UserError
from unswayed.sources.imagenet_x import FACTORS, Annotations

from .. import schema
from ..drops.groups import read_model_csv, read_model_groups
from ..statistics.paired import holm, mcnemar, percentiles
from .answers import Answers
from .error_ratios import correct_predictions, divide

_FACTOR = pl.col("factor").cast(pl.Enum(FACTORS))  # to sort by
_DEGREE = 3
# The published analysis leaves out strengths with four or fewer models.
LEAST_MODELS = 5
# published set -> (the word before the strength in a model's name, the value that means no augmentation if not 0)
SWEEPS: dict[str, tuple[str, float | None]] = {
    "crop": ("crop", 100.0),
    "colorjitter": ("color", None),
    "gaussian_blur": ("smoothing", None),
}


def compare_models(
    annotations: Annotations,
    a: Answers,
    b: Answers,
    right: str = "class",
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pl.DataFrame:
    """Return one row per factor and for `average`, over the images that both models classified:

    n, accuracy_a, accuracy_b, difference (a - b), its p_value by McNemar's exact test and p_holm over the rows;
    error_ratio_a, error_ratio_b, ratio_difference with bootstrap bounds low and high, and ratio_p_holm from the
    bootstrap's standard error. The first test compares the error rates, the second how much more often each model
    fails with the factor than on average.
    """
    right_a, counted_a = correct_predictions(annotations, a, right)
    right_b, counted_b = correct_predictions(annotations, b, right)
    both = counted_a & counted_b
    if not both.any():
        raise UserError(f"'{a.model}' and '{b.model}' have no annotated image in common")
    members = np.column_stack([annotations.factors, np.ones(len(annotations), bool)])[both]
    wrong_a, wrong_b = ~right_a[both], ~right_b[both]
    pair = wrong_a * 2 + wrong_b  # 0 both right, 1 only b wrong, 2 only a wrong, 3 both wrong
    total = np.bincount(pair, minlength=4)
    cells = np.stack([np.bincount(pair[member], minlength=4) for member in members.T])
    n = cells.sum(axis=1)
    accuracy_a, accuracy_b = (divide(cells[:, :2].sum(1), n), divide(cells[:, 0] + cells[:, 2], n))
    p_value = np.where(n > 0, mcnemar(cells[:, 1], cells[:, 2]), np.nan)
    # Resampling images is a multinomial draw over eight cells: (with or without the factor) x the pairs of results.
    eight = np.concatenate([cells, total - cells], axis=1)
    ratio_a, ratio_b = _ratios(eight)
    difference, every = ratio_a - ratio_b, total.sum()
    low, high, ratio_p = np.full((3, len(n)), np.nan)
    rng = np.random.default_rng(seed)
    for at in np.flatnonzero((n > 0) & (n < every) & ~np.isnan(difference)) if resamples else ():
        drawn_a, drawn_b = _ratios(rng.multinomial(every, eight[at] / every, size=resamples))
        low[at], high[at] = percentiles(drawn_a - drawn_b, level)
        spread = np.nanstd(drawn_a - drawn_b)
        ratio_p[at] = 2 * special.ndtr(-abs(difference[at]) / spread) if spread > 0 else 1.0
    columns = {
        "factor": [*FACTORS, "average"], "n": n, "accuracy_a": accuracy_a, "accuracy_b": accuracy_b,
        "difference": accuracy_a - accuracy_b, "p_value": p_value, "p_holm": holm(p_value),
        "error_ratio_a": ratio_a, "error_ratio_b": ratio_b, "ratio_difference": difference, "low": low, "high": high,
        "ratio_p_holm": holm(ratio_p),
    }  # fmt: skip
    return pl.DataFrame(columns, nan_to_null=True)


def _ratios(eight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the error ratios of a and b from (draws, 8) counts."""
    every, n = eight.sum(axis=1), eight[:, :4].sum(axis=1)
    first, second = (
        divide(divide(eight[:, wrong[:2]].sum(axis=1), n), eight[:, wrong].sum(axis=1) / every)
        for wrong in ([2, 3, 6, 7], [1, 3, 5, 7])
    )
    return first, second


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
    ratio = pl.col("error_ratio")
    means = (
        _with_ratios(errors, groups, "groups")
        .group_by("grouping", "factor", "group", maintain_order=True)
        .agg(ratio.mean(), models=pl.len(), spread=ratio.std(), values=ratio)
    )
    tests = []
    for key, part in means.group_by("grouping", "factor", maintain_order=True):
        usable = [sample for sample in part["values"].to_list() if len(sample) > 1 and np.ptp(sample) > 0]
        statistic = p_value = None
        if len(usable) > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = scipy.stats.alexandergovern(*usable)
            statistic, p_value = float(result.statistic), float(result.pvalue)
        tests.append((*key, statistic, p_value))
    tested = pl.DataFrame(tests, schema=schema("grouping factor statistic p_value"), orient="row").fill_nan(None)
    return (
        means.join(_corrected(tested, "grouping"), on=["grouping", "factor"])
        .sort("grouping", _FACTOR, "group")
        .select("grouping", "factor", "group", "models", "error_ratio", "spread", "statistic", "p_value", "p_holm")
    )


def shared_keys(errors: pl.DataFrame, about_models: pl.DataFrame) -> list[str]:
    """Return the columns that name a model in both tables: result tables may have one name in several sets."""
    return [name for name in ("set", "model") if name in errors.columns and name in about_models.columns]


def _with_ratios(errors: pl.DataFrame, about_models: pl.DataFrame, what: str) -> pl.DataFrame:
    """Return the factors' error ratios beside what is known about their models; what: its name."""
    ratios = errors.filter(pl.col("factor").is_in(FACTORS) & pl.col("error_ratio").is_not_null())
    joined = ratios.join(about_models, on=shared_keys(ratios, about_models), how="inner")
    if joined.is_empty():
        names = ", ".join(ratios["model"].unique().sort().head(5))
        raise UserError(f"the {what} name none of the models that have predictions", allowed=f"models such as {names}")
    return joined


def _corrected(table: pl.DataFrame, within: str) -> pl.DataFrame:
    """Return the table with p_holm, Holm's correction of p_value over the rows of each `within`; null: no test."""
    corrected = pl.col("p_value").map_batches(lambda p: pl.Series(holm(p.to_numpy()), nan_to_null=True), pl.Float64)
    return table.with_columns(p_holm=corrected.over(within))


def read_strengths(path: str | Path) -> pl.DataFrame:
    """Return rows (model, augmentation, strength) from a CSV with these three columns."""
    table = read_model_csv(path)
    if not {"model", "augmentation", "strength"} <= set(table.columns):
        raise UserError(f"{path} has the columns {', '.join(table.columns)}", allowed="model, augmentation, strength")
    strength = table["strength"].cast(pl.Float64, strict=False)
    if strength.null_count():
        raise UserError(
            f"{path} has strengths that are not numbers, such as '{table['strength'].filter(strength.is_null())[0]}'"
        )
    return table.select("model", "augmentation", strength.alias("strength"))


def strengths_by_name(errors: pl.DataFrame) -> pl.DataFrame:
    """Return rows (set, model, augmentation, strength) of the published augmentation sweeps, from the models' names.

    The strength of `…_color10.0_…` in the set colorjitter is 10; that of `…_crop30.0_…` in the set crop is 70, since a
    smaller crop is a stronger augmentation.
    """
    tables = []
    for name, (word, full) in SWEEPS.items():
        models = errors.filter(pl.col("set") == name).select("set", "model").unique(maintain_order=True)
        number = pl.col("model").str.extract(word + r"([0-9.]+(?:e-?[0-9]+)?)").cast(pl.Float64, strict=False)
        strength = number if full is None else full - number
        tables.append(models.with_columns(pl.lit(name).alias("augmentation"), strength.alias("strength")))
    strengths = pl.concat(tables).drop_nulls("strength")
    if strengths.is_empty():
        raise UserError(
            "the result tables contain no augmentation sweep", allowed=f"the sets {', '.join(SWEEPS)}",
            run="unswayed factors … --strengths FILE.csv",
        )  # fmt: skip
    return strengths


def augmentation_groups(errors: pl.DataFrame, least: int = LEAST_MODELS) -> pl.DataFrame:
    """Return rows (set, model, grouping, group) for the paper's comparison of augmentations.

    The groups are the strongest crop and the strongest color jitter that at least `least` models have, both together,
    and both with the color jitter chosen for each class.
    """
    strengths = _enough(strengths_by_name(errors), least)
    strongest = strengths.filter(
        pl.col("augmentation").is_in(["crop", "colorjitter"])
        & (pl.col("strength") == pl.col("strength").max().over("augmentation"))
    )
    together = errors.filter(
        pl.col("set").is_in(["colorjitter_crop", "adaptive_colorjitter"]) & (pl.col("model") != "human")
    )
    chosen = pl.concat([table.select("set", "model").unique(maintain_order=True) for table in (strongest, together)])
    names = {
        "crop": "crop", "colorjitter": "color jitter", "colorjitter_crop": "color jitter and crop",
        "adaptive_colorjitter": "color jitter by class, and crop",
    }  # fmt: skip
    return chosen.with_columns(grouping=pl.lit("augmentation"), group=pl.col("set").replace_strict(names))


def by_strength(errors: pl.DataFrame, strengths: pl.DataFrame, least: int = 1) -> pl.DataFrame:
    """Return augmentation, factor, strength, model, error_ratio and its cubic fit at that strength, `fitted`."""
    parts = []
    for part in _joined(errors, strengths, least).partition_by("augmentation", "factor", maintain_order=True):
        strength = part["strength"].to_numpy()
        parts.append(part.with_columns(fitted=_fit(strength, part["error_ratio"].to_numpy())(strength)))
    table = pl.concat(parts).select("augmentation", "factor", "strength", "model", "error_ratio", "fitted")
    return table.sort("augmentation", _FACTOR, "strength", "model")


def spill_over(errors: pl.DataFrame, strengths: pl.DataFrame, least: int = 1) -> pl.DataFrame:
    """Return augmentation, factor, models, best_strength, worst_strength, best, worst, and two tests of the effect.

    The error ratio is fitted by a cubic in the strength; `best` and `worst` are the fit's lowest and highest values at
    strengths that were tried. Welch's t (`statistic`, `p_value`) compares the models at these two strengths, the weaker
    strength first, so a positive statistic means that more augmentation lowers the error ratio, a negative one that it
    raises it. Null if a strength has only one model. `p_holm` is Holm's correction over the factors of an augmentation.
    `correlation` is Spearman's, of strength and error ratio. Strengths of fewer than `least` models are left out.
    """
    rows = []
    for (augmentation, factor), part in _joined(errors, strengths, least).group_by("augmentation", "factor"):
        effect = _effect(part["strength"].to_numpy(), part["error_ratio"].to_numpy())
        rows.append({"augmentation": augmentation, "factor": factor, **effect})
    table = pl.DataFrame(rows).fill_nan(None).sort("augmentation", _FACTOR)
    return _corrected(table, "augmentation").select(pl.exclude("correlation"), "correlation")


def _joined(errors: pl.DataFrame, strengths: pl.DataFrame, least: int) -> pl.DataFrame:
    joined = _enough(_with_ratios(errors, strengths, "strengths"), least)
    if joined.is_empty():
        raise UserError(f"no strength has {least} or more models", run="unswayed factors … --models-per-strength 1")
    return joined


def _enough(table: pl.DataFrame, least: int) -> pl.DataFrame:
    """Return the rows of strengths that `least` or more models have."""
    models = pl.struct([name for name in ("set", "model") if name in table.columns]).n_unique()
    return table.filter(models.over("augmentation", "strength") >= least)


def _fit(strength: np.ndarray, ratio: np.ndarray) -> np.polynomial.Polynomial:
    """Return the cubic, or a polynomial of lower degree through fewer strengths."""
    tried = len(np.unique(strength))
    if tried == 1:
        return np.polynomial.Polynomial([ratio.mean()])
    return np.polynomial.Polynomial.fit(strength, ratio, min(_DEGREE, tried - 1))


def _effect(strength: np.ndarray, ratio: np.ndarray) -> dict[str, float | int]:
    tried = np.unique(strength)
    level = _fit(strength, ratio)(tried)
    best, worst = int(level.argmin()), int(level.argmax())
    weaker, stronger = (ratio[strength == tried[i]] for i in sorted((best, worst)))
    statistic = p_value = correlation = float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if best != worst and min(len(weaker), len(stronger)) > 1:
            result = scipy.stats.ttest_ind(weaker, stronger, equal_var=False)
            statistic, p_value = float(result.statistic), float(result.pvalue)
        if len(tried) > 1:
            correlation = float(scipy.stats.spearmanr(strength, ratio).statistic)
    strengths = {"best_strength": float(tried[best]), "worst_strength": float(tried[worst])}
    fitted = {"best": float(level[best]), "worst": float(level[worst])}
    tests = {"statistic": statistic, "p_value": p_value, "correlation": correlation}
    return {"models": len(ratio), **strengths, **fitted, **tests}
