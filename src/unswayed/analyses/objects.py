"""Second measures of detectors and segmenters: mean IoU with the object, and average precision over all objects."""

from __future__ import annotations

import numpy as np
import polars as pl

from unswayed.evaluation.facts import SOURCE, Facts, read_facts
from unswayed.evaluation.predictions import Predictions, columns_of, each_model

from . import Row, schema
from .statistics.paired import bootstrap_means, percentiles, resample_weights

MOST_RESAMPLES = 200  # of average precision, which is sorted and interpolated in each of them
RECALLS = np.linspace(0, 1, 101)  # at which COCO averages the precision
_LISTS = ("box_scores", "box_classes", "box_matches", "truth_classes")
_COLUMNS = ("model", "source_id", "edit", "run", "correct", "iou", "task", *_LISTS)


def object_measures(
    predictions: Predictions, *, facts: Facts | None = None, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> pl.DataFrame:
    """One row per model and edit: the share of objects found (`accuracy`), the mean IoU of the right class with the
    object, and a detector's average precision at IoU 0.5 over every object of the pictures, mean over their classes.

    Intervals are bootstraps over photographs; average precision is interpolated at 101 recalls, as COCO's is.
    """
    facts = read_facts(predictions) if facts is None else facts
    rows: list[Row] = []
    known = columns_of(predictions, _COLUMNS)
    for model, frame in each_model(predictions, known) if set(known) == set(_COLUMNS) else ():
        frame = frame.filter(pl.col("task").is_in(["detect", "segment"]) & (pl.col("edit") != SOURCE))
        for edit in facts.sorted(frame["edit"].unique().to_list()):
            part = frame.filter(pl.col("edit") == edit)
            weights = resample_weights(part["source_id"].to_list(), resamples, seed)
            overlaps = part["iou"].cast(pl.Float64).to_numpy()[:, None]
            low, high = percentiles(bootstrap_means(weights, overlaps), level)
            row = {"model": model, "edit": edit, "n": part.height, "accuracy": part["correct"].mean()}
            row |= {"iou": float(np.nanmean(overlaps)), "iou_low": float(low[0]), "iou_high": float(high[0])}
            if part["task"][0] == "detect":
                row |= _precision(part, weights[:MOST_RESAMPLES], level)
            rows.append(row)
    types = schema("model edit n accuracy iou iou_low iou_high ap ap_low ap_high")
    return pl.DataFrame(rows, schema=types, infer_schema_length=None)


def _precision(part: pl.DataFrame, weights: np.ndarray, level: float) -> Row:
    picture = np.arange(part.height)
    counts = part["box_scores"].list.len().to_numpy()
    of_box = np.repeat(picture, counts)
    scores, classes, matches = (
        part[name].explode(empty_as_null=False).to_numpy() for name in ("box_scores", "box_classes", "box_matches")
    )
    truths, of_truth = part["truth_classes"].explode().to_numpy(), np.repeat(picture, part["truth_classes"].list.len())
    every = np.concatenate([np.ones((1, part.height)), weights])
    values = []
    for label in np.unique(truths):
        chosen = np.flatnonzero(classes == label)
        chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
        total = every[:, of_truth[truths == label]].sum(1)
        values.append(average_precision(matches[chosen] >= 0, every[:, of_box[chosen]], total))
    with np.errstate(invalid="ignore"):
        means = np.nanmean(np.array(values), axis=0)
    low, high = percentiles(means[1:, None], level)
    return {"ap": float(means[0]), "ap_low": float(low[0]), "ap_high": float(high[0])}


def average_precision(hits: np.ndarray, weights: np.ndarray, total: np.ndarray) -> np.ndarray:
    """(resamples,) average precision, NaN where there is no object.

    hits: (boxes,) bool, the most certain first: whether each box is matched; weights: (resamples, boxes), how often its
    picture occurs; total: (resamples,) the number of objects.

    >>> average_precision(np.array([True, False, True]), np.ones((1, 3)), np.array([2.0])).round(3).tolist()
    [0.835]
    """
    detected = np.cumsum(weights * hits, axis=1)
    made = np.cumsum(weights, axis=1)
    precision = detected / np.maximum(made, 1e-9)
    # The best precision at this recall or a higher one.
    precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    values = np.full(len(total), np.nan)
    for number in np.flatnonzero(total > 0):
        places = np.searchsorted(detected[number] / total[number], RECALLS)
        reached = places < len(hits)
        values[number] = (
            np.where(reached, precision[number, np.minimum(places, len(hits) - 1)], 0).mean() if len(hits) else 0
        )
    return values
