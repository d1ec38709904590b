"""Measures on arrays and tables: alignment of heat maps, familiarity, channels of a layer, suspicious pictures."""

from __future__ import annotations

import numpy as np
import polars as pl

from unswayed.choices import ClassColumn, check_choice
from unswayed.errors import BadPicture, UserError, check_known

MASSES = (25, 50, 75)
MEASURES = (
    *("iou", "dice", "precision", "recall_25", "recall_50", "recall_75"),
    *("density_difference", "average_precision"),
)


def alignment(heat: np.ndarray, mask: np.ndarray) -> dict[str, float | None]:
    """The measures in `MEASURES` of how well a heat map matches an object; None where undefined.

    heat: (H, W) float, 0 or more; mask: (H, W), object where > 0.5. iou and dice: the map at half its maximum or
    above, against the mask. precision: the share of the map's mass on the object (None for a map without mass).
    recall_25 (50, 75): the share of the object still covered once the lowest pixels that hold 25 % of the mass
    are dropped. density_difference: mean inside less mean outside. average_precision: of the map as a ranking.

    >>> corner = np.array([[1.0, 0.2], [0.0, 0.0]])
    >>> alignment(corner, np.array([[1, 0], [0, 0]]))["iou"]
    1.0
    """
    from sklearn.metrics import average_precision_score

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
        "iou": float(both / union),
        "dice": float(2 * both / (union + both)),
        "precision": float(values[inside].sum() / mass) if mass > 0 else None,
        **{f"recall_{share}": _recall(values, inside, share / 100) for share in MASSES},
        "density_difference": float(values[inside].mean() - values[~inside].mean()),
        "average_precision": float(average_precision_score(inside.ravel(), values.ravel())),
    }


def _recall(values: np.ndarray, inside: np.ndarray, share: float) -> float:
    ranked = np.sort(values, axis=None)
    below = np.cumsum(ranked)
    if below[-1] <= 0:
        return 0.0
    threshold = ranked[np.searchsorted(below, share * below[-1])]
    return float((values[inside] >= threshold).mean())


def energy(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """(N,) float64, T · log Σ exp(logit / T) of (N, classes) logits: the negative free energy, higher is more familiar.

    >>> energy(np.zeros((1, 8))).round(4).tolist()
    [2.0794]
    """
    from scipy import special

    scaled = np.asarray(logits, dtype=np.float64) / temperature
    return temperature * special.logsumexp(scaled, axis=1)


def gradnorm(features: np.ndarray, logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """(N,) float64, the L1 norm of the gradient of KL(uniform || softmax) by the last layer's weights.

    features: (N, D), what the last layer reads; logits: (N, classes), what it answers. The gradient is the product of
    the features and (softmax - uniform) / T, so its norm is the product of two norms and needs no backward pass.
    Higher is more familiar. The released code leaves out the factor 1 / classes, which changes no comparison.
    """
    from scipy import special

    features, logits = (np.asarray(values, dtype=np.float64) for values in (features, logits))
    chances = special.softmax(logits / temperature, axis=1)
    pull = np.abs(chances - 1 / logits.shape[1]).sum(axis=1) / temperature
    return np.abs(features).sum(axis=1) * pull


def channel_localization(maps: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """IoU and average precision of every channel's map with one mask: (C, h, w) and (h, w) bool -> two (C,).

    IoU is of the map at half its maximum or above; a channel without positive values has IoU 0.

    >>> eye = np.eye(4) > 0
    >>> channel_localization(np.stack([eye * 1.0, -1.0 * eye]), eye)[0]
    array([1., 0.])
    """
    flat, inside = maps.reshape(len(maps), -1), mask.reshape(-1)
    hot = (flat >= flat.max(1, keepdims=True) / 2) & (flat > 0)
    iou = (hot & inside).sum(1) / (hot | inside).sum(1)
    # scikit-learn's average precision ranks one channel at a time: here it is computed for thousands at once.
    order = np.argsort(-flat, axis=1, kind="stable")
    ranked = np.take_along_axis(flat, order, 1)
    # Equal values are one step of the ranking: each position counts with the precision at the end of its run.
    hits = np.cumsum(inside[order], axis=1)
    places = np.arange(1, flat.shape[1] + 1)
    last_of_run = np.where(np.diff(ranked, axis=1, append=-np.inf) != 0, places, flat.shape[1] + 1)
    ends = np.minimum.accumulate(last_of_run[:, ::-1], axis=1)[:, ::-1]
    precision = np.take_along_axis(hits, ends - 1, 1) / ends
    return iou, (precision * inside[order]).sum(1) / inside.sum()


def auroc(scores: np.ndarray, present: np.ndarray) -> np.ndarray:
    """The chance that a picture with the attribute scores above one without: (n, C), (n,) bool -> (C,); ties half.

    nan if every picture has the attribute, or none.

    >>> auroc(np.array([[0.1], [0.4], [0.8]]), np.array([False, True, True]))
    array([1.])
    """
    positive = int(present.sum())
    negative = len(present) - positive
    if not positive or not negative:
        return np.full(scores.shape[1], np.nan)
    # As the Mann-Whitney statistic, for all channels at once; scikit-learn takes one at a time.
    from scipy import stats  # slow to import, and worker processes of other probes do not need it

    ranks = stats.rankdata(scores, axis=0)
    return (ranks[present].sum(0) - positive * (positive + 1) / 2) / (positive * negative)


def channel_table(
    localization: dict[str, tuple[np.ndarray, np.ndarray, int]], pooled: np.ndarray, present: dict[str, np.ndarray]
) -> pl.DataFrame:
    """One row per attribute and channel: attribute, channel, n_present, n_absent, iou, average_precision, auroc.

    localization: attribute -> sums over pictures of IoU (C,) and AP (C,), and the number of pictures; pooled: (n, C),
    each picture's mean activation; present: attribute -> (n,) bool.
    """
    tables = []
    for attribute, (iou, precision, pictures) in localization.items():
        here = present[attribute]
        tables.append(
            pl.DataFrame(
                {
                    "attribute": [attribute] * len(iou),
                    "channel": np.arange(len(iou)),
                    "n_present": [int(here.sum())] * len(iou),
                    "n_absent": [int((~here).sum())] * len(iou),
                    "iou": iou / max(pictures, 1),
                    "average_precision": precision / max(pictures, 1),
                    "auroc": pl.Series(auroc(pooled, here)).fill_nan(None),
                }
            )
        )
    return pl.concat(tables)


def best_channels(table: pl.DataFrame) -> pl.DataFrame:
    """The channel of each attribute with the best average precision, attributes in their order; ties go to the lower
    number."""
    first = pl.all().sort_by("average_precision", "channel", descending=[True, False], nulls_last=True).first()
    return table.group_by("attribute", maintain_order=True).agg(first)


def suspects(
    noise: pl.DataFrame | None,
    saliency: pl.DataFrame | None,
    per_class: int = 3,
    by: ClassColumn = "label",
    measure: str = "precision",
) -> pl.DataFrame:
    """The `per_class` pictures of each class that look most spurious, by each of two reasons, worst first.

    saliency: the heat map has the lowest `measure` of alignment with the object. noise: p_bg - p_fg is lowest, averaged
    over levels and seeds: background noise lowers the probability more than noise on the object. by: the true class
    (`label`), or the class that the model predicts for the unchanged picture (`predicted`).
    Columns: model, label or predicted, reason, rank (from 1), source_id, value. Either table may be None.
    """
    check_choice("class column", by, ClassColumn)
    check_measure(measure)
    ranked = []
    if saliency is not None:
        table = saliency.filter(pl.col("edit") == "original").select(
            "model", by, pl.lit("saliency").alias("reason"), "source_id", pl.col(measure).alias("value")
        )
        ranked.append(table)
    if noise is not None:
        background, foreground = (
            pl.col("true_probability").filter(pl.col("region") == region).mean()
            for region in ("background", "foreground")
        )
        table = (
            noise.filter(pl.col("norm").is_in(["linf", "l2"]))
            .group_by("model", "label", "source_id", maintain_order=True)
            .agg((background - foreground).alias("value"))
        )
        if by == "predicted":
            clean = noise.filter(pl.col("norm") == "clean").select("model", "source_id", "predicted")
            table = table.join(clean, on=["model", "source_id"])
        ranked.append(table.select("model", by, pl.lit("noise").alias("reason"), "source_id", "value"))
    return (
        pl.concat(ranked)
        .drop_nulls(["value", by])
        .sort("model", by, "reason", "value", "source_id")
        .with_columns((pl.int_range(pl.len()).over("model", by, "reason") + 1).alias("rank"))
        .filter(pl.col("rank") <= per_class)
        .select("model", by, "reason", "rank", "source_id", "value")
    )


def check_measure(measure: str) -> None:
    """Refuse a name that is not a measure of heat maps."""
    check_known("measure of alignment", [measure], MEASURES)
