"""The effect of training with an augmentation on the error ratios of all factors."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import polars as pl
from scipy import stats

from unswayed.analyses.model_files import read_model_csv
from unswayed.errors import UserError
from unswayed.sources.imagenet_x import FACTORS

from .model_types import factor_order, holm_series, shared_keys

_DEGREE = 3
# The published analysis leaves out strengths with four or fewer models.
LEAST_MODELS = 5
# published set -> (the word before the strength in a model's name, the value that means no augmentation if not 0)
SWEEPS: dict[str, tuple[str, float | None]] = {
    "crop": ("crop", 100.0),
    "colorjitter": ("color", None),
    "gaussian_blur": ("smoothing", None),
}


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
    found = pl.concat(tables).drop_nulls("strength")
    if found.is_empty():
        raise UserError(
            "the result tables contain no augmentation sweep", allowed=f"the sets {', '.join(SWEEPS)}",
            run="unswayed factors … --strengths FILE.csv",
        )  # fmt: skip
    return found


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
    group = pl.col("set").replace_strict(names)
    return chosen.with_columns(pl.lit("augmentation").alias("grouping"), group.alias("group"))


def by_strength(errors: pl.DataFrame, strengths: pl.DataFrame, least: int = 1) -> pl.DataFrame:
    """Return augmentation, factor, strength, model, error_ratio and its cubic fit at that strength, `fitted`."""
    joined = _joined(errors, strengths, least)
    rows = []
    for (augmentation, factor), part in joined.group_by(["augmentation", "factor"], maintain_order=True):
        fit = _fit(part["strength"].to_numpy(), part["error_ratio"].to_numpy())
        rows.append(
            part.select(
                pl.lit(augmentation).alias("augmentation"),
                pl.lit(factor).alias("factor"),
                "strength",
                "model",
                "error_ratio",
                pl.Series("fitted", fit(part["strength"].to_numpy())),
            )  # fmt: skip
        )
    return pl.concat(rows).sort("augmentation", factor_order(), "strength", "model")


def spill_over(errors: pl.DataFrame, strengths: pl.DataFrame, least: int = 1) -> pl.DataFrame:
    """Return augmentation, factor, models, best_strength, worst_strength, best, worst, and two tests of the effect.

    The error ratio is fitted by a cubic in the strength; `best` and `worst` are the fit's lowest and highest values at
    strengths that were tried. Welch's t (`statistic`, `p_value`) compares the models at these two strengths, the weaker
    strength first, so a positive statistic means that more augmentation lowers the error ratio, a negative one that it
    raises it. Null if a strength has only one model. `p_holm` is Holm's correction over the factors of an augmentation.
    `correlation` is Spearman's, of strength and error ratio. Strengths of fewer than `least` models are left out.
    """
    rows = [
        {
            "augmentation": augmentation,
            "factor": factor,
            **_effect(part["strength"].to_numpy(), part["error_ratio"].to_numpy()),
        }
        for (augmentation, factor), part in _joined(errors, strengths, least).group_by(["augmentation", "factor"])
    ]
    table = pl.DataFrame(rows).fill_nan(None).sort("augmentation", factor_order())
    p_holm = pl.col("p_value").map_batches(holm_series, return_dtype=pl.Float64).over("augmentation")
    table = table.with_columns(p_holm=p_holm)
    return table.select(pl.exclude("correlation"), "correlation")


def _joined(errors: pl.DataFrame, strengths: pl.DataFrame, least: int) -> pl.DataFrame:
    ratios = errors.filter(pl.col("factor").is_in(FACTORS) & pl.col("error_ratio").is_not_null())
    joined = ratios.join(strengths, on=shared_keys(ratios, strengths), how="inner")
    if joined.is_empty():
        raise UserError("the strengths name none of the models that have predictions")
    joined = _enough(joined, least)
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
            result = stats.ttest_ind(weaker, stronger, equal_var=False)
            statistic, p_value = float(result.statistic), float(result.pvalue)
        if len(tried) > 1:
            correlation = float(stats.spearmanr(strength, ratio).statistic)
    return {
        "models": len(ratio),
        "best_strength": float(tried[best]),
        "worst_strength": float(tried[worst]),
        "best": float(level[best]),
        "worst": float(level[worst]),
        "statistic": statistic,
        "p_value": p_value,
        "correlation": correlation,
    }
