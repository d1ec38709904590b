"""How common each factor is, how factors correlate with each other, and with the drops of edits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import scipy  # `scipy.stats` is slow to import, and loaded when it is used

from unswayed.errors import UserError
from unswayed.evaluation.facts import similar_factors
from unswayed.evaluation.model_cards import STORED
from unswayed.files.tables import column_names, read_checked
from unswayed.sources.imagenet_x import FACTORS, METACLASSES, Annotations, image_keys

from .. import schema
from .answers import Answers, answer_files
from .error_ratios import correct_predictions

_METACLASS_AND_FACTOR = {
    "metaclass": np.repeat(METACLASSES, len(FACTORS)).tolist(),
    "factor": list(FACTORS) * len(METACLASSES),
}
_EDITED = ("model", "file_name", "edit", "correct")
# An edit that enlarges the object is not comparable with images whose object is smaller than usual.
_NOT_MEANT = ("size-full",)


def prevalence(annotations: Annotations, by: str | None = None) -> pl.DataFrame:
    """Return rows (factor, n, prevalence): n_f and n_f / Σ n_f, which sums to one over the factors.

    by: `metaclass` for rows (metaclass, factor, n, prevalence, shift); shift: (p_f within the metaclass - p_f) / p_f,
    0 if p_f is 0.
    """
    counts = annotations.factors.sum(axis=0)
    if by != "metaclass":
        return pl.DataFrame({"factor": FACTORS, "n": counts, "prevalence": _shares(counts)}, nan_to_null=True)
    within, _ = annotations.count(np.ones(len(annotations), bool), by_metaclass=True)
    shares = _shares(within)
    columns = {"n": within, "prevalence": shares, "shift": _shift(shares, _shares(counts))}
    columns = {name: values.ravel() for name, values in columns.items()}
    return pl.DataFrame({**_METACLASS_AND_FACTOR, **columns}, nan_to_null=True)


def factor_distribution(every: Sequence[Annotations]) -> pl.DataFrame:
    """Return rows (partition, which, factor, n, images, share): the share of a partition's images with each factor."""
    tables = []
    for selection in every:
        n, images = selection.factors.sum(axis=0), len(selection)
        columns = {"partition": selection.partition, "which": selection.which, "factor": FACTORS, "n": n}
        tables.append(pl.DataFrame({**columns, "images": images, "share": n / max(1, images)}))
    return pl.concat(tables)


def active_factor_counts(every: Sequence[Annotations]) -> pl.DataFrame:
    """Return rows (partition, factors, n, share): how many images have so many factors at once."""
    tables = []
    for selection in every:
        counts = np.bincount(selection.factors.sum(axis=1))
        columns = {"partition": selection.partition, "factors": np.arange(len(counts)), "n": counts}
        tables.append(pl.DataFrame({**columns, "share": counts / max(1, len(selection))}))
    return pl.concat(tables).filter(pl.col("n") > 0)


def misclassification_shift(
    annotations: Annotations, answers: Answers, right: str = "class", by: str | None = None
) -> pl.DataFrame:
    """Return rows (model, [metaclass,] factor, n_wrong, shift): (p_f among the mistakes - p_f) / p_f.

    A shift of 0.5 means that the factor is 1.5 times as common among the model's mistakes as among all images that it
    classified; with `by="metaclass"` both are counted within the metaclass. 0 if there is nothing to compare.
    """
    correct, counted = correct_predictions(annotations, answers, right)
    everything, _ = annotations.count(counted, by == "metaclass")
    mistakes, _ = annotations.count(counted & ~correct, by == "metaclass")
    shift = _shift(_shares(mistakes), _shares(everything))
    names = _METACLASS_AND_FACTOR if by == "metaclass" else {"factor": FACTORS}
    return pl.DataFrame({"model": answers.model, **names, "n_wrong": mistakes.ravel(), "shift": shift.ravel()})


def _shares(counts: np.ndarray) -> np.ndarray:
    total = counts.sum(axis=-1, keepdims=True)
    return np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)


def _shift(shares: np.ndarray, reference: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num((shares - reference) / reference, nan=0.0)


def factor_correlation(annotations: Annotations) -> pl.DataFrame:
    """Return rows (factor, other, correlation, p_value) for 16 factors x (16 factors + 17 metaclasses).

    Columns of zeros and ones have only two ranks, so Spearman's coefficient is Pearson's on them. Null where a column
    is constant; the p-value is two-sided, from Student's t with N - 2 degrees of freedom.
    """
    member = annotations.metaclasses[:, None] == np.arange(len(METACLASSES))
    columns = np.column_stack([annotations.factors, member]).astype(np.float64)
    n = len(columns)
    centered = columns - columns.mean(axis=0)
    spread = np.sqrt((centered**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (centered[:, : len(FACTORS)].T @ centered) / np.outer(spread[: len(FACTORS)], spread)
        r = np.clip(r, -1, 1)
        t = r * np.sqrt((n - 2) / ((1 - r) * (1 + r)))
    p = 2 * scipy.stats.t.sf(np.abs(t), n - 2)
    others = [*FACTORS, *METACLASSES]
    names = {"factor": np.repeat(FACTORS, len(others)).tolist(), "other": others * len(FACTORS)}
    return pl.DataFrame({**names, "correlation": r.ravel(), "p_value": p.ravel()}, nan_to_null=True)


def read_edited(path: str | Path) -> pl.DataFrame:
    """Return rows (model, file_name, edit, correct) of every Parquet file in `path` with edited pictures."""
    tables = []
    for file in answer_files(path):
        if file.suffix.lower() == ".parquet" and set(_EDITED) <= set(column_names(file)):
            frame = pl.DataFrame(read_checked(file, STORED, select=_EDITED))
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
    wrong = 1 - pl.col("before")
    # The name of an edited attribute is the beginning of the names of its edits.
    for attribute, factor in similar_factors().items():
        named = (pl.col("edit") == attribute) | pl.col("edit").str.starts_with(f"{attribute}-")
        of_attribute = known.filter(named & ~pl.col("edit").is_in(_NOT_MEANT)).group_by("model", "key")
        per_image = of_attribute.agg(after=pl.col("correct").mean(), has_factor=pl.col(factor).first())
        table = per_image.join(original, on=["model", "key"]).group_by("model").agg(
            attribute=pl.lit(attribute),
            factor=pl.lit(factor),
            n=pl.len(),
            n_factor=pl.col("has_factor").sum(),
            accuracy=pl.col("before").mean(),
            drop=100 * (pl.col("before") - pl.col("after")).mean(),
            error_ratio=wrong.filter("has_factor").mean() / wrong.mean(),
        )  # fmt: skip
        tables.append(table)
    together = pl.concat(tables).with_columns(pl.col("error_ratio").replace([float("nan"), float("inf")], None))
    return together.sort("attribute", "model")


def correlation_over_models(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return attribute, factor, models, correlation, p_value: Spearman's between drop and error ratio over models.

    Null with fewer than three models, or where all models agree in one of the two.
    """
    rows = []
    for (attribute, factor), part in pairs.drop_nulls("error_ratio").group_by(["attribute", "factor"]):
        correlation = p_value = None
        if part.height >= 3 and part["drop"].n_unique() > 1 and part["error_ratio"].n_unique() > 1:
            result = scipy.stats.spearmanr(part["drop"].to_numpy(), part["error_ratio"].to_numpy())
            correlation, p_value = float(result.statistic), float(result.pvalue)
        rows.append((attribute, factor, part.height, correlation, p_value))
    types = schema("attribute factor models correlation p_value")
    return pl.DataFrame(rows, schema=types, orient="row").sort("attribute")
