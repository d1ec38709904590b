"""Single channels of a layer against attributes: localization (IoU, AP) and detection (AUROC), all channels at once."""

from __future__ import annotations

import numpy as np
import polars as pl


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
    found = np.cumsum(inside[order], axis=1)
    places = np.arange(1, flat.shape[1] + 1)
    last_of_run = np.where(np.diff(ranked, axis=1, append=-np.inf) != 0, places, flat.shape[1] + 1)
    ends = np.minimum.accumulate(last_of_run[:, ::-1], axis=1)[:, ::-1]
    precision = np.take_along_axis(found, ends - 1, 1) / ends
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


def best_channels(table: pl.DataFrame, by: str = "average_precision") -> pl.DataFrame:
    """The best channel of each attribute, attributes in their order; ties go to the lower number."""
    return (
        table.sort(by, "channel", descending=[True, False], nulls_last=True, maintain_order=True)
        .unique("attribute", keep="first", maintain_order=True)
        .join(table.select("attribute").unique(maintain_order=True).with_row_index("order"), on="attribute")
        .sort("order")
        .drop("order")
    )
