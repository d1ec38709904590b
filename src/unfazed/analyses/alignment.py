"""Saliency against the object: measures of one map, and how they change with the answer and with the edit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from unfazed.errors import BadPicture, UserError

from .balanced import interval
from .statistics import bootstrap_means, resample_weights

MASSES = (25, 50, 75)
MEASURES = (
    "iou",
    "dice",
    "precision",
    "recall_25",
    "recall_50",
    "recall_75",
    "density_difference",
    "average_precision",
)


def alignment(heat: np.ndarray, mask: np.ndarray) -> dict[str, float | None]:
    """How far a heat map lies on an object, by the names of `MEASURES`; undefined is None.

    heat: (H, W) float, 0 or more; mask: (H, W), object where > 0.5. iou and dice: the map at half its maximum or
    above, against the mask. precision: the share of the map's mass on the object (None for a map without mass).
    recall_25 (50, 75): the share of the object still covered once the lowest pixels that hold 25 % of the mass
    are dropped. density_difference: mean inside less mean outside. average_precision: of the map as a ranking.

    >>> corner = np.array([[1.0, 0.2], [0.0, 0.0]])
    >>> alignment(corner, np.array([[1, 0], [0, 0]]))["iou"]
    1.0
    """
    heat, inside = np.asarray(heat), np.asarray(mask) > 0.5
    if heat.shape != inside.shape:
        raise UserError(f"the heat map is {heat.shape}, the mask {inside.shape}", allowed="equal shapes")
    if not inside.any():
        raise BadPicture("the mask is empty: no alignment can be measured", allowed="at least one object pixel")
    if inside.all():
        raise BadPicture("the mask covers the whole picture: no alignment can be measured", allowed="some background")
    if not np.isfinite(heat).all() or (heat < 0).any():
        raise UserError("the heat map holds negative or non-finite values", allowed="finite values, 0 or more")
    values = heat.astype(np.float64)
    hot = (values >= values.max() / 2) & (values > 0)
    both, union = np.count_nonzero(hot & inside), np.count_nonzero(hot | inside)
    mass = values.sum()
    return {
        "iou": both / union,
        "dice": 2 * both / (union + both),
        "precision": float(values[inside].sum() / mass) if mass > 0 else None,
        **{f"recall_{share}": _recall(values, inside, share / 100) for share in MASSES},
        "density_difference": float(values[inside].mean() - values[~inside].mean()),
        "average_precision": average_precision(values, inside),
    }


def average_precision(scores: np.ndarray, positive: np.ndarray) -> float:
    """Σ (R_k - R_{k-1}) P_k over the distinct scores from the highest down: equal scores are one step.

    >>> average_precision(np.array([0.9, 0.8, 0.1]), np.array([True, False, True])).__round__(6)
    0.833333
    """
    scores, positive = np.ravel(scores), np.ravel(positive)
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    found = np.cumsum(positive[order])[ends]
    return float((np.diff(found, prepend=0) * (found / (ends + 1))).sum() / found[-1])


def by_correctness(rows: pl.DataFrame, draws: int = 1000, seed: int = 0) -> pl.DataFrame:
    """Alignment of right answers beside wrong ones: a row a model, method, edit and measure.

    rows: model, method, edit, source_id, correct and the measures. Columns out: n_right, n_wrong, right, wrong,
    difference (right less wrong) with its 95 % interval low, high; null where a side has no picture.
    """
    records = []
    for key, group in rows.group_by("model", "method", "edit", maintain_order=True):
        group = group.sort("source_id")
        weights = resample_weights(group["source_id"].to_list(), draws, seed)
        is_right = group["correct"].to_numpy()
        values = _measures(group)
        right, wrong = values[is_right], values[~is_right]
        # Right and wrong are different pictures, but may be edits of one photograph: these are drawn together.
        resampled = [bootstrap_means(weights[:, side], values[side]) for side in (is_right, ~is_right)]
        bounds = interval(resampled[0] - resampled[1], min(len(right), len(wrong)))
        means = _column_means(right), _column_means(wrong)
        for index, measure in enumerate(MEASURES):
            pair = (means[0][index], means[1][index])
            numbers = (*pair, pair[0] - pair[1], bounds[0][index], bounds[1][index])
            records.append((*key, measure, len(right), len(wrong), *map(_null, numbers)))
    names = ["model", "method", "edit", "measure", "n_right", "n_wrong", "right", "wrong", "difference", "low", "high"]
    return _frame(records, names, integers=("n_right", "n_wrong"))


def by_edit(rows: pl.DataFrame, draws: int = 1000, seed: int = 0) -> pl.DataFrame:
    """Alignment on an edit beside the same photographs unedited: a row a model, method, edit and measure.

    Columns out: n pairs, original, edited, change (edited less original, paired) with its 95 % interval low, high.
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
        low, high = interval(bootstrap_means(weights, change), len(group))
        sides = [_column_means(np.where(missing, np.nan, side)) for side in (original, edited, change)]
        for index, measure in enumerate(MEASURES):
            numbers = (*(side[index] for side in sides), low[index], high[index])
            records.append((*key, measure, int((~missing[:, index]).sum()), *map(_null, numbers)))
    names = ["model", "method", "edit", "measure", "n", "original", "edited", "change", "low", "high"]
    return _frame(records, names, integers=("n",))


def summary(rows: pl.DataFrame) -> pl.DataFrame:
    """The mean of every measure: a row a model, method and edit, with n and the accuracy over the same pictures."""
    return rows.group_by("model", "method", "edit", maintain_order=True).agg(
        pl.len().alias("n"),
        pl.col("correct").cast(float).mean().alias("accuracy"),
        *(pl.col(m).mean() for m in MEASURES),
    )


def _recall(values: np.ndarray, inside: np.ndarray, share: float) -> float:
    ranked = np.sort(values, axis=None)
    below = np.cumsum(ranked)
    if below[-1] <= 0:
        return 0.0
    threshold = ranked[np.searchsorted(below, share * below[-1])]
    return float((values[inside] >= threshold).mean())


def _measures(table: pl.DataFrame) -> np.ndarray:
    return table.select(MEASURES).cast(pl.Float64).fill_null(np.nan).to_numpy().reshape(-1, len(MEASURES))


def _column_means(values: np.ndarray) -> np.ndarray:
    defined = np.isfinite(values).sum(0)
    total = np.nansum(values, axis=0)
    return np.divide(total, defined, out=np.full(values.shape[1], np.nan), where=defined > 0)


def _null(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _frame(records: list[tuple], names: list[str], integers: Sequence[str]) -> pl.DataFrame:
    types: dict[str, type[pl.DataType]] = dict.fromkeys(names, pl.Float64)
    types.update(dict.fromkeys(["model", "method", "edit", "measure"], pl.String))
    types.update(dict.fromkeys(integers, pl.Int64))
    return pl.DataFrame(records, schema=types, orient="row")
