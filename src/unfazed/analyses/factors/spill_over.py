"""The effect of training with an augmentation on the error ratios of all factors."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import polars as pl
from scipy import stats

from unfazed.errors import UserError
from unfazed.sources.imagenet_x.annotations import FACTORS

from .model_types import factor_order, holm_series, read_model_csv

_DEGREE = 3


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


def spill_over(errors: pl.DataFrame, strengths: pl.DataFrame) -> pl.DataFrame:
    """Return augmentation, factor, models, best_strength, worst_strength, best, worst, statistic, p_value, p_holm.

    The error ratio is fitted by a cubic in the strength; `best` and `worst` are the fit's lowest and highest values at
    strengths that were tried. Welch's t compares the models at these two strengths, the weaker strength first, so a
    positive statistic means that more augmentation lowers the error ratio, a negative one that it raises it. Null
    if a strength has only one model. Holm's correction is over the factors of an augmentation.
    """
    ratios = errors.filter(pl.col("factor").is_in(FACTORS) & pl.col("error_ratio").is_not_null())
    joined = ratios.join(strengths, on="model", how="inner")
    if joined.is_empty():
        raise UserError("the strengths name none of the models that have predictions")
    rows = [
        {
            "augmentation": augmentation,
            "factor": factor,
            **_effect(part["strength"].to_numpy(), part["error_ratio"].to_numpy()),
        }
        for (augmentation, factor), part in joined.group_by(["augmentation", "factor"])
    ]
    table = pl.DataFrame(rows).fill_nan(None).sort("augmentation", factor_order())
    return table.with_columns(
        p_holm=pl.col("p_value").map_batches(holm_series, return_dtype=pl.Float64).over("augmentation")
    )


def _effect(strength: np.ndarray, ratio: np.ndarray) -> dict[str, float | int]:
    tried = np.unique(strength)
    fit = np.polynomial.Polynomial.fit(strength, ratio, min(_DEGREE, len(tried) - 1)) if len(tried) > 1 else None
    level = fit(tried) if fit else np.array([ratio.mean()])
    best, worst = int(level.argmin()), int(level.argmax())
    weaker, stronger = (ratio[strength == tried[i]] for i in sorted((best, worst)))
    statistic = p_value = float("nan")
    if best != worst and min(len(weaker), len(stronger)) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = stats.ttest_ind(weaker, stronger, equal_var=False)
        statistic, p_value = float(result.statistic), float(result.pvalue)
    return {
        "models": len(ratio),
        "best_strength": float(tried[best]),
        "worst_strength": float(tried[worst]),
        "best": float(level[best]),
        "worst": float(level[worst]),
        "statistic": statistic,
        "p_value": p_value,
    }
