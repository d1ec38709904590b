"""How well a score tells two sets of pictures apart: AUROC, overlap of histograms, each with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unswayed.analyses.statistics.paired import percentiles, resample_weights


@dataclass(frozen=True)
class Separation:
    """auroc: the chance that a picture of the reference scores higher than one of the set, 0.5 where they are alike.

    overlap: the common area of the two histograms, 1 where they are equal. low, high: percentile intervals.
    """

    auroc: float
    low: float
    high: float
    overlap: float
    overlap_low: float
    overlap_high: float


def separation(
    reference: np.ndarray,
    reference_ids: list[str],
    scores: np.ndarray,
    ids: list[str],
    *,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> Separation:
    """How far `scores` lie below `reference`; photographs are resampled as a whole, those in both sets together."""
    names = sorted({*reference_ids, *ids})
    weights = np.concatenate([np.ones((1, len(names)), np.float32), resample_weights(names, resamples, seed)])
    place = {name: index for index, name in enumerate(names)}
    of_reference = weights[:, [place[one] for one in reference_ids]].astype(np.float64)
    of_scores = weights[:, [place[one] for one in ids]].astype(np.float64)
    areas = _auroc(reference, of_reference, scores, of_scores)
    common = _overlap(reference, of_reference, scores, of_scores)
    (low, overlap_low), (high, overlap_high) = percentiles(np.stack([areas[1:], common[1:]], axis=1), level)
    found = (areas[0], low, high, common[0], overlap_low, overlap_high)
    return Separation(*(float(one) for one in found))


def bin_edges(reference: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Edges of common bins: as many as the smaller set can fill, from the smallest to the largest score."""
    count = int(np.clip(round(np.sqrt(min(len(reference), len(scores)))), 4, 30))
    low, high = min(reference.min(), scores.min()), max(reference.max(), scores.max())
    return np.linspace(low, high if high > low else low + 1, count + 1)


def _auroc(reference: np.ndarray, weights: np.ndarray, scores: np.ndarray, of_scores: np.ndarray) -> np.ndarray:
    """(resamples,) weighted chance that a reference score is larger, ties counted half."""
    order = np.argsort(reference, kind="stable")
    ranked = reference[order]
    below = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights[:, order], axis=1)], axis=1)
    left, right = np.searchsorted(ranked, scores, "left"), np.searchsorted(ranked, scores, "right")
    total = below[:, -1:]
    larger = total - (below[:, left] + below[:, right]) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return (larger * of_scores).sum(axis=1) / (total[:, 0] * of_scores.sum(axis=1))


def _overlap(reference: np.ndarray, weights: np.ndarray, scores: np.ndarray, of_scores: np.ndarray) -> np.ndarray:
    edges = bin_edges(reference, scores)

    def shares(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
        bins = np.clip(np.digitize(values, edges) - 1, 0, len(edges) - 2)
        filled = weight @ np.eye(len(edges) - 1)[bins]
        with np.errstate(invalid="ignore", divide="ignore"):
            return filled / filled.sum(axis=1, keepdims=True)

    return np.minimum(shares(reference, weights), shares(scores, of_scores)).sum(axis=1)
