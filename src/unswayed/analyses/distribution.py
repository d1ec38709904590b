"""Tables of a distribution study: scores by set, backgrounds, FID and KID, adaptation, and a sentence for each set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from unswayed.evaluation.facts import ORIGINAL

from . import Row, schema
from .statistics.paired import IntervalSettings, estimates, percentiles, resample_weights

SCORES = {"energy": "Energy", "gradnorm": "GradNorm"}  # column -> title
BACKGROUND = ("contrast", "dissimilarity", "homogeneity", "uniformity", "amplitude", "lpips")
LIMIT = 0.7
# With fewer photographs, sets of AUROC 0.5 and 0.7 are told apart in less than four of five cases.
LEAST = 33
IN, OUT, UNSURE = "in", "out", "cannot tell"
_WORDS = {
    IN: "stays in the distribution of {}",
    OUT: "leaves the distribution of {}",
    UNSURE: "may or may not stay in the distribution of {}",
}
_FEW_FOR_FID = 2048
KID_SUBSETS, KID_LARGEST = 100, 1000


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
    column = {name: index for index, name in enumerate(names)}
    of_reference = weights[:, [column[name] for name in reference_ids]].astype(np.float64)
    of_scores = weights[:, [column[name] for name in ids]].astype(np.float64)
    areas = _auroc(reference, of_reference, scores, of_scores)
    common = _overlap(reference, of_reference, scores, of_scores)
    (low, overlap_low), (high, overlap_high) = percentiles(np.stack([areas[1:], common[1:]], axis=1), level)
    return Separation(*map(float, (areas[0], low, high, common[0], overlap_low, overlap_high)))


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


def score_table(
    scores: pl.DataFrame, reference: str = ORIGINAL, *, resamples: int = 500, level: float = 0.95, seed: int = 0
) -> pl.DataFrame:
    """One row per model, set and score: n, mean, AUROC against the reference and overlap, each with low and high.

    scores: the rows of `probes.distribution.scores_probe`; reference: the set that the others are compared with. n: the
    photographs of the set, or of the reference where it has fewer.
    """
    rows: list[Row] = []
    for named, base, part in _compared(scores, reference):
        (before, before_ids), (after, ids) = (
            (side[named["score"]].to_numpy(), side["source_id"].to_list()) for side in (base, part)
        )
        apart = separation(before, before_ids, after, ids, resamples=resamples, level=level, seed=seed)
        few = min(len(set(before_ids)), len(set(ids)))
        means = {"n": few, "mean": float(after.mean()), "reference_mean": float(before.mean())}
        rows.append(named | means | vars(apart))
    return pl.DataFrame(rows, infer_schema_length=None)


def histogram_table(scores: pl.DataFrame, reference: str = ORIGINAL) -> pl.DataFrame:
    """One row per model, score, set and bin: low, high, the set's share in it and the reference's share."""
    tables = [pl.DataFrame()]
    for named, base, part in _compared(scores, reference):
        before, after = (side[named["score"]].to_numpy() for side in (base, part))
        edges = bin_edges(before, after)
        share, original = (np.histogram(values, edges)[0] / len(values) for values in (after, before))
        bins = {"low": edges[:-1], "high": edges[1:], "share": share, "reference_share": original}
        tables.append(pl.DataFrame({**{name: named[name] for name in ("model", "score", "set")}, **bins}))
    return pl.concat(tables, how="diagonal")


def verdict_table(table: pl.DataFrame, limit: float = LIMIT, reference: str = ORIGINAL) -> pl.DataFrame:
    """One row per model and set: verdict `in`, `out` or `cannot tell`, and a sentence that says how sure.

    Both scores are higher in distribution, so a score calls a set out where the whole interval of its AUROC lies above
    `limit`, and in where it lies below, however high the set scores; out if one score says so, in if all do. With fewer
    than LEAST photographs nothing is said.
    """
    named = "the originals" if reference == ORIGINAL else reference
    rows = []
    for (model, name), part in table.group_by("model", "set", maintain_order=True):
        bounds = part.select("low", "high").rows()
        n = min(part["n"].to_list())
        is_out = any(low > limit for low, _ in bounds)
        is_in = all(high < limit for _, high in bounds)
        verdict = UNSURE if n < LEAST else OUT if is_out else IN if is_in else UNSURE
        few = ": more photographs are needed" if verdict == UNSURE else ""
        few += f", at least {LEAST}" if n < LEAST else ""
        shown = "; ".join(
            f"{SCORES[row['score']]} AUROC {row['auroc']:.2f} ({row['low']:.2f} to {row['high']:.2f}), "
            f"overlap {row['overlap']:.2f}"
            for row in part.iter_rows(named=True)
        )
        sentence = f"{name} {_WORDS[verdict].format(named)} for {model}{few} ({shown}; n = {n:,})."
        rows.append({"model": model, "set": name, "verdict": verdict, "n": n, "sentence": sentence})
    return pl.DataFrame(rows, infer_schema_length=None)


def background_table(scores: pl.DataFrame, *, level: float = 0.95, seed: int = 0) -> pl.DataFrame:
    """One row per set and measure of the background: mean, the originals' mean, the paired difference.

    The first model's rows are used: backgrounds do not depend on a model. `lpips` is the distance from the original.
    """
    first = scores.filter(pl.col("model") == scores["model"][0])
    settings = IntervalSettings(500, level, seed, "bootstrap")
    base = first.filter(pl.col("set") == ORIGINAL).unique("source_id", keep="first", maintain_order=True)
    rows: list[Row] = []
    for (name,), part in first.group_by("set", maintain_order=True):
        for measure in BACKGROUND:
            values = part.group_by("source_id", maintain_order=True).agg(pl.col(measure).drop_nans().mean())
            values = values.drop_nulls()
            if not values.height:
                continue
            mean = float(values[measure].to_numpy().mean())
            row: Row = {"set": name, "measure": measure, "n": values.height, "mean": mean}
            both = values.join(base.select("source_id", original=measure).drop_nulls(), on="source_id").drop_nans()
            if both.height and measure != "lpips" and name != ORIGINAL:
                gap = (both[measure] - both["original"]).to_numpy()[:, None]
                reach = max(float(np.abs(gap).max()), 1e-12)
                difference = estimates(gap, np.array([1]), tuple(both["source_id"]), settings, reach=reach)
                row["original"] = float(both["original"].to_numpy().mean())
                row |= difference.entries(0, "difference", "low", "high")
            rows.append(row)
    return pl.DataFrame(rows, schema=schema("set measure n mean original difference low high"))


def distance_table(features: pl.DataFrame, reference: str = ORIGINAL) -> pl.DataFrame:
    """One row per set but the reference: n, FID and KID against the reference, KID's deviation, and a warning."""
    sets = {
        name: np.stack([np.asarray(vector, dtype=np.float32) for vector in part["features"].to_list()])
        for (name,), part in features.group_by("set", maintain_order=True)
    }
    base = sets.pop(reference)
    rows = []
    for name, vectors in sets.items():
        few = min(len(vectors), len(base))
        if few < 2:
            continue
        kid, deviation = kernel_distance(vectors, base)
        note = f"FID is biased upwards with {few:,} pictures; compare KID" if few < _FEW_FOR_FID else None
        row = {"set": name, "n": len(vectors), "fid": frechet_distance(vectors, base)}
        rows.append(row | {"kid": kid, "kid_deviation": deviation, "note": note})
    return pl.DataFrame(rows, schema=schema("set n fid kid kid_deviation note"))


def frechet_distance(features: np.ndarray, reference: np.ndarray) -> float:
    """FID (Heusel et al. 2017) of (N, D) and (M, D) features; biased upwards where N or M is below some thousands."""
    import torch
    from torch_fidelity.metric_fid import KEY_METRIC_FID, fid_features_to_statistics, fid_statistics_to_metric

    statistics = (fid_features_to_statistics(torch.from_numpy(np.asarray(each))) for each in (features, reference))
    return float(fid_statistics_to_metric(*statistics, False)[KEY_METRIC_FID])


def kernel_distance(features: np.ndarray, reference: np.ndarray, seed: int = 2020) -> tuple[float, float]:
    """KID (Bińkowski et al. 2018) and its standard deviation over subsets; unbiased, so fit for few pictures."""
    import torch
    from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, KEY_METRIC_KID_STD, kid_features_to_metric

    size = min(len(features), len(reference), KID_LARGEST)
    # A subset as large as the set itself would always be the same one.
    size = max(2, size if size == KID_LARGEST else size * 3 // 4)
    sets = [torch.from_numpy(np.asarray(vectors)) for vectors in (features, reference)]
    how = {"kid_subsets": KID_SUBSETS, "kid_subset_size": size, "rng_seed": seed, "verbose": False}
    distance = kid_features_to_metric(*sets, **how)
    return float(distance[KEY_METRIC_KID_MEAN]), float(distance[KEY_METRIC_KID_STD])


def adaptation_table(
    answers: str | Path, pairs: Sequence[tuple[str, str]], *, level: float = 0.95, seed: int = 0
) -> pl.DataFrame:
    """One row per model and edit: accuracy before and after batch-norm adaptation, and the difference in points."""
    from .drops.outcomes import each_outcomes

    settings = IntervalSettings(500, level, seed)
    rows = []
    for before, after in pairs:
        models = {outcomes.model: outcomes for outcomes in each_outcomes(answers, [before, after])}
        plain, adapted = models[before], models[after]
        for edit in plain.edits:
            gap = adapted.of(edit) - plain.of(edit)
            runs = np.array([max(int(plain.runs_of(edit).max()), 1)])
            change = estimates(gap[:, None], runs, plain.images, settings, unit=100.0)
            shares = [float(np.nanmean(outcomes.of(edit))) for outcomes in (plain, adapted)]
            row = {"model": before, "set": edit, "n": int(change.sums.n[0]), "accuracy": shares[0]}
            rows.append(row | {"adapted_accuracy": shares[1], **change.entries(0, "difference", "low", "high")})
    return pl.DataFrame(rows, infer_schema_length=None)


def _compared(scores: pl.DataFrame, reference: str) -> list[tuple[dict[str, str], pl.DataFrame, pl.DataFrame]]:
    """Every model, set and score by name, with the reference's rows and the set's rows that have the score."""
    compared = []
    for (model,), rows in scores.group_by("model", maintain_order=True):
        for score in SCORES:
            known = rows.drop_nulls(score)
            base = known.filter(pl.col("set") == reference)
            for (name,), part in known.group_by("set", maintain_order=True):
                if name != reference and base.height:
                    compared.append(({"model": str(model), "set": str(name), "score": score}, base, part))
    return sorted(compared, key=lambda entry: (entry[0]["model"], entry[0]["set"]))
