"""Flips, right before the edit and wrong after it: counts for every model and edit, and a random sample to show."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from unfazed.predictions.facts import ORIGINAL, SOURCE
from unfazed.predictions.frames import Predictions, columns_of, each_model

_NEEDED = ("model", "source_id", "edit", "run", "label", "correct", "predicted", "probability")
_WANTED = ("true_probability", "object_survives")
FLIP_COLUMNS = (*_NEEDED, *_WANTED)
# An object counts as cut off if the model's crop contains less than this share of its pixels.
CUT = 0.5


@dataclass(frozen=True)
class Flip:
    """One picture that a model classifies correctly before the edit and wrongly after it; classes are labels."""

    model: str
    edit: str
    run: int
    source_id: str
    label: int
    before_probability: float
    after: int
    after_probability: float
    after_true_probability: float | None
    survives: float | None

    @property
    def sample_id(self) -> str:
        return f"{self.source_id}/{self.edit}/{self.run}"


@dataclass(frozen=True, eq=False)
class Flips:
    """The counts of flips, and a sample of them to show.

    shown: the chosen flips; counts: one row per model and edit with n, right (correct before), flips, seen (pictures
    whose object is known), cut (of those, cut off by the model's own crop), cut_flips (of those, flips);
    probabilities: by model and edit, the mean probability of the true class, if the predictions contain it.
    """

    shown: tuple[Flip, ...]
    counts: pl.DataFrame
    probabilities: dict[tuple[str, str], float]

    @property
    def total(self) -> int:
        return int(self.counts["flips"].sum())


def find_flips(predictions: Predictions, limit: int = 48, seed: int = 0) -> Flips:
    """Count all flips and sample at most `limit`, evenly over models and edits; one model is in memory at a time.

    The sample depends only on the seed and the pictures' names, not on how the pictures look.
    """
    there = columns_of(predictions)
    columns = [*_NEEDED, *(name for name in _WANTED if name in there)]
    counts: list[pl.DataFrame] = []
    candidates: dict[tuple[str, str], list[Flip]] = {}
    probabilities: dict[tuple[str, str], float] = {}
    for model, rows in each_model(predictions, columns):
        paired = _paired(rows)
        flips = paired.filter("flip")
        counts.append(_counted(model, paired))
        if "true_probability" in columns:
            means = rows.group_by("edit").agg(pl.col("true_probability").mean()).drop_nulls()
            probabilities |= {(model, edit): mean for edit, mean in means.iter_rows()}
        for (edit,), part in flips.group_by("edit", maintain_order=True):
            chosen = sorted(part["sample_id"].to_list(), key=lambda one: _draw(seed, model, one))[:limit]
            kept = part.filter(pl.col("sample_id").is_in(chosen)).iter_rows(named=True)
            candidates[model, str(edit)] = sorted(
                (_flip(row) for row in kept), key=lambda flip: _draw(seed, model, flip.sample_id)
            )
    return Flips(tuple(_evenly(candidates, limit)), pl.concat(counts), probabilities)


def worst_flips(
    predictions: Predictions, models: Sequence[str], edits: Sequence[str] | None = None, limit: int = 3
) -> list[Flip]:
    """The flips with the highest probability of the wrong class, at most one per photograph; none where the
    predictions do not hold the predicted classes. edits: only of these, of all if None."""
    if any(name not in columns_of(predictions) for name in _NEEDED):
        return []
    found: list[Flip] = []
    for _, rows in each_model(predictions, _NEEDED, models=models):
        flips = _paired(rows).filter("flip")
        if edits is not None:
            flips = flips.filter(pl.col("edit").is_in(list(edits)))
        worst = flips.sort("probability", descending=True).unique("source_id", keep="first", maintain_order=True)
        found += [_flip(row) for row in worst.head(limit).iter_rows(named=True)]
    found.sort(key=lambda flip: -flip.after_probability)
    first = {flip.source_id: flip for flip in reversed(found)}
    return sorted(first.values(), key=lambda flip: -flip.after_probability)[:limit]


def _paired(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the edited pictures, each with the prediction for its photograph."""
    before = rows.filter((pl.col("edit") == ORIGINAL) & (pl.col("run") == 0)).select(
        "source_id", before_correct="correct", before_probability="probability"
    )
    edited = rows.filter(~pl.col("edit").is_in([ORIGINAL, SOURCE]) & pl.col("correct").is_not_null())
    return edited.join(before, on="source_id").with_columns(
        flip=pl.col("before_correct") & ~pl.col("correct"), sample_id=pl.format("{}/{}/{}", "source_id", "edit", "run")
    )


def _counted(model: str, paired: pl.DataFrame) -> pl.DataFrame:
    known = pl.col("object_survives") if "object_survives" in paired.columns else pl.lit(None, pl.Float64)
    cut = known < CUT
    return (
        paired.group_by("edit", maintain_order=True)
        .agg(
            n=pl.len().cast(pl.Int64),
            right=pl.col("before_correct").sum().cast(pl.Int64),
            flips=pl.col("flip").sum().cast(pl.Int64),
            seen=known.is_not_null().sum().cast(pl.Int64),
            cut=cut.sum().cast(pl.Int64),
            cut_flips=(cut & pl.col("flip")).sum().cast(pl.Int64),
        )
        .insert_column(0, pl.Series("model", [model], dtype=pl.String).new_from_index(0, paired["edit"].n_unique()))
    )


def _flip(row: dict[str, Any]) -> Flip:
    return Flip(
        model=row["model"],
        edit=row["edit"],
        run=int(row["run"]),
        source_id=row["source_id"],
        label=int(row["label"]),
        before_probability=float(row["before_probability"]),
        after=int(row["predicted"]),
        after_probability=float(row["probability"]),
        after_true_probability=row.get("true_probability"),
        survives=row.get("object_survives"),
    )


def _evenly(candidates: dict[tuple[str, str], list[Flip]], limit: int) -> list[Flip]:
    """Take flips one by one from the model and edit with the fewest so far; sorted by edit and model."""
    waiting = {key: list(flips) for key, flips in candidates.items() if flips}
    models: Counter[str] = Counter()
    edits: Counter[str] = Counter()
    scenes: Counter[str] = Counter()
    chosen: list[Flip] = []
    while waiting and len(chosen) < limit:
        key = min(waiting, key=lambda one: (models[one[0]] + edits[one[1]], one))
        flip = min(waiting[key], key=lambda one: scenes[one.source_id])
        waiting[key].remove(flip)
        if not waiting[key]:
            del waiting[key]
        chosen.append(flip)
        models[key[0]] += 1
        edits[key[1]] += 1
        scenes[flip.source_id] += 1
    place = {key: number for number, key in enumerate(candidates)}
    return sorted(chosen, key=lambda flip: place[flip.model, flip.edit])


def _draw(seed: int, model: str, sample_id: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{model}/{sample_id}".encode(), digest_size=8).digest()
