"""Flips, predictions that an edit turns from right to wrong or back: their counts, and those to show."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from unswayed.choices import Draw
from unswayed.evaluation.facts import ORIGINAL, SOURCE, Facts
from unswayed.evaluation.predictions import Predictions, columns_of, each_model

from . import Row
from .drops.groups import superclass_of
from .statistics.paired import expected_calibration_error

_NEEDED = ("model", "source_id", "edit", "run", "label", "correct", "predicted", "probability")
_WANTED = ("true_probability", "object_survives")
FLIP_COLUMNS = (*_NEEDED, *_WANTED)
# An object counts as cut off if the model's crop contains less than this share of its pixels.
CUT = 0.5
_OF_ONE_PHOTOGRAPH = 2


@dataclass(frozen=True)
class Flip:
    """One picture whose prediction an edit turns from right to wrong, or from wrong to right if `gained`.

    Classes are labels. before, after: the predictions for the photograph and the edited picture; control: the edit's
    control, None if it has none or was not evaluated, with the prediction for it; same_superclass: whether the wrong
    prediction is in the superclass of the true class, None if superclasses are not known.
    """

    model: str
    edit: str
    run: int
    source_id: str
    label: int
    before: int
    before_probability: float
    after: int
    after_probability: float
    after_true_probability: float | None
    survives: float | None
    lost: float
    gained: bool = False
    control: str | None = None
    control_answer: int | None = None
    control_probability: float | None = None
    control_correct: bool | None = None
    same_superclass: bool | None = None

    @property
    def sample_id(self) -> str:
        return f"{self.source_id}/{self.edit}/{self.run}"

    @property
    def control_id(self) -> str | None:
        return None if self.control is None else f"{self.source_id}/{self.control}/0"


@dataclass(frozen=True, eq=False)
class Flips:
    """The counts of flips, and those to show.

    shown: the chosen flips; counts: one row per model and edit with is_control, n, right (correct before), flips (right
    to wrong), gained (wrong to right), controlled (flips whose control was evaluated), control_wrong (of those, wrong
    in the control already), near (flips within the superclass), confidence and calibration_error (in [0, 1]), seen
    (pictures whose object is known), cut (of those, cut off by the model's own crop) and cut_flips (of those, flips);
    answers: one row per true class and wrong answer with flips and control_wrong; probabilities: by model and edit, the
    mean probability of the true class, if the predictions contain it.
    """

    shown: tuple[Flip, ...]
    counts: pl.DataFrame
    answers: pl.DataFrame
    probabilities: dict[tuple[str, str], float]

    @property
    def total(self) -> int:
        return int(self.counts["flips"].sum())

    @property
    def of_edits(self) -> pl.DataFrame:
        """Return the counts without those of controls."""
        return self.counts.filter(~pl.col("is_control"))


def find_flips(
    predictions: Predictions,
    limit: int = 48,
    seed: int = 0,
    *,
    facts: Facts | None = None,
    draw: Draw = "even",
    gained: int = 0,
) -> Flips:
    """Count all flips and choose at most `limit` from right to wrong and `gained` from wrong to right.

    draw: `even` samples them evenly over models and edits, depending only on the seed and the pictures' names; `worst`
    takes those whose true class lost most probability, at most two of one photograph. facts: the controls of the edits
    and the classes. One model is in memory at a time.
    """
    facts = facts or Facts()
    there = columns_of(predictions)
    columns = [*_NEEDED, *(name for name in _WANTED if name in there)]
    superclass = superclass_of(facts)
    counts: list[pl.DataFrame] = []
    pairs: list[pl.DataFrame] = []
    lost: dict[tuple[str, str], list[Flip]] = {}
    back: list[Flip] = []
    probabilities: dict[tuple[str, str], float] = {}
    for model, rows in each_model(predictions, columns):
        paired = _paired(rows, facts)
        counts.append(_counted(model, paired, superclass))
        flips = paired.filter("flip")
        pairs.append(
            flips.group_by("label", "predicted").agg(flips=pl.len(), control_wrong=(~pl.col("control_correct")).sum())
        )
        if "true_probability" in columns:
            means = rows.group_by("edit").agg(pl.col("true_probability").mean()).drop_nulls()
            probabilities |= {(model, edit): mean for edit, mean in means.iter_rows()}
        if draw == "worst":  # a control is beside its edit's flip, and no flip of its own
            paired = paired.filter(~pl.col("is_control"))
            flips = paired.filter("flip")
        for (edit,), part in flips.group_by("edit", maintain_order=True):
            if draw == "even":
                chosen = sorted(part["sample_id"].to_list(), key=lambda name: _draw(seed, model, name))[:limit]
                part = part.filter(pl.col("sample_id").is_in(chosen))
            kept = [_flip(row, superclass) for row in _worst(part, limit).iter_rows(named=True)]
            lost[model, str(edit)] = sorted(kept, key=lambda flip: _draw(seed, model, flip.sample_id))
        back += [_flip(row, superclass) for row in _worst(paired.filter("gain"), gained, True).iter_rows(named=True)]
    every = [flip for flips in lost.values() for flip in flips]
    chosen = _evenly(lost, limit) if draw == "even" else _spread_over_photographs(every, limit)
    answers = pl.concat(pairs).group_by("label", "predicted").sum().sort("flips", "label", "predicted", descending=True)
    return Flips((*chosen, *_spread_over_photographs(back, gained)), pl.concat(counts), answers, probabilities)


def worst_flips(
    predictions: Predictions, models: Sequence[str], edits: Sequence[str] | None = None, limit: int = 3
) -> list[Flip]:
    """The flips with the highest probability of the wrong class, at most one per photograph; none where the
    predictions do not hold the predicted classes. edits: only of these, of all if None."""
    if any(name not in columns_of(predictions) for name in _NEEDED):
        return []
    found: list[Flip] = []
    for _, rows in each_model(predictions, _NEEDED, models=models):
        flips = _paired(rows, Facts()).filter("flip")
        if edits is not None:
            flips = flips.filter(pl.col("edit").is_in(list(edits)))
        worst = flips.sort("probability", descending=True).unique("source_id", keep="first", maintain_order=True)
        found += [_flip(row, None) for row in worst.head(limit).iter_rows(named=True)]
    found.sort(key=lambda flip: -flip.after_probability)
    first = {flip.source_id: flip for flip in reversed(found)}
    return sorted(first.values(), key=lambda flip: -flip.after_probability)[:limit]


def _paired(rows: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Return the edited pictures, each with the predictions for its photograph and for its control."""
    known = "true_probability" in rows.columns
    truth = pl.col("true_probability") if known else pl.when("correct").then("probability").otherwise(0.0)
    rows = rows.with_columns(truth=truth)
    before = rows.filter((pl.col("edit") == ORIGINAL) & (pl.col("run") == 0)).select(
        "source_id",
        before_correct="correct",
        before="predicted",
        before_probability="probability",
        before_truth="truth",
    )
    edited = rows.filter(~pl.col("edit").is_in([ORIGINAL, SOURCE]) & pl.col("correct").is_not_null())
    edits = edited["edit"].unique().to_list()
    against, declared = list(map(facts.control, edits)), list(filter(facts.is_control, edits))
    controls = dict(zip(edits, (None if name == ORIGINAL else name for name in against), strict=True))
    control = rows.filter(pl.col("run") == 0).select(
        "source_id",
        control="edit",
        control_correct="correct",
        control_answer="predicted",
        control_probability="probability",
    )
    return (
        edited.join(before, on="source_id")
        .with_columns(control=pl.col("edit").replace_strict(controls, return_dtype=pl.String))
        .join(control, on=["source_id", "control"], how="left")
        .with_columns(
            flip=pl.col("before_correct") & ~pl.col("correct"),
            gain=~pl.col("before_correct") & pl.col("correct"),
            lost=pl.col("before_truth") - pl.col("truth"),
            sample_id=pl.format("{}/{}/{}", "source_id", "edit", "run"),
            is_control=pl.col("edit").is_in(declared),
        )
    )


def _counted(model: str, paired: pl.DataFrame, superclass: Sequence[str] | None) -> pl.DataFrame:
    known = pl.col("object_survives") if "object_survives" in paired.columns else pl.lit(None, pl.Float64)
    cut, flip = known < CUT, pl.col("flip")
    near = pl.lit(None, pl.Boolean)
    if superclass is not None:
        true, said = (
            pl.col(name).replace_strict(dict(enumerate(superclass)), default=None) for name in ("label", "predicted")
        )
        near = true == said
    calibration = pl.map_groups(
        ["correct", "probability"],
        lambda pair: expected_calibration_error(pair[0].to_numpy(), pair[1].to_numpy()),
        return_dtype=pl.Float64,
        returns_scalar=True,
    )

    def number(condition: pl.Expr) -> pl.Expr:
        return condition.sum().cast(pl.Int64)

    return (
        paired.group_by("edit", maintain_order=True)
        .agg(
            is_control=pl.col("is_control").any(),
            n=pl.len().cast(pl.Int64),
            right=number(pl.col("before_correct")),
            flips=number(flip),
            gained=number(pl.col("gain")),
            controlled=number(flip & pl.col("control_correct").is_not_null()),
            control_wrong=number(flip & ~pl.col("control_correct")),
            near=number(flip & near),
            confidence=pl.col("probability").mean(),
            calibration_error=calibration,
            seen=number(known.is_not_null()),
            cut=number(cut),
            cut_flips=number(cut & flip),
        )
        .insert_column(0, pl.Series("model", [model], dtype=pl.String).new_from_index(0, paired["edit"].n_unique()))
    )


def _worst(part: pl.DataFrame, limit: int, gained: bool = False) -> pl.DataFrame:
    """Return the pictures whose true class lost (or gained) most probability, at most two of one photograph."""
    ordered = part.sort("lost", "sample_id", descending=[not gained, False])
    return ordered.filter(pl.int_range(pl.len()).over("source_id") < _OF_ONE_PHOTOGRAPH).head(limit)


def _flip(row: Row, superclass: Sequence[str] | None) -> Flip:
    gained = bool(row["gain"])
    wrong = row["before"] if gained else row["predicted"]
    copied = "model edit run source_id label before before_probability lost control_answer control_probability"
    return Flip(
        **{name: row[name] for name in (*copied.split(), "control_correct")},
        after=row["predicted"],
        after_probability=row["probability"],
        after_true_probability=row.get("true_probability"),
        survives=row.get("object_survives"),
        gained=gained,
        control=row["control"] if row["control_correct"] is not None else None,
        same_superclass=None if superclass is None else _in(superclass, row["label"]) == _in(superclass, wrong),
    )


def _in(superclass: Sequence[str], label: int) -> str:
    return superclass[label] if 0 <= label < len(superclass) else str(label)


def _spread_over_photographs(flips: list[Flip], limit: int) -> list[Flip]:
    """Return the flips with the largest change of the true class's probability, at most two of one photograph."""
    seen: Counter[str] = Counter()
    chosen: list[Flip] = []
    for flip in sorted(flips, key=lambda candidate: (-abs(candidate.lost), candidate.sample_id, candidate.model)):
        if len(chosen) < limit and seen[flip.source_id] < _OF_ONE_PHOTOGRAPH:
            seen[flip.source_id] += 1
            chosen.append(flip)
    return chosen


def _evenly(candidates: dict[tuple[str, str], list[Flip]], limit: int) -> list[Flip]:
    """Take flips one by one from the model and edit with the fewest so far; sorted by edit and model."""
    waiting = {key: list(flips) for key, flips in candidates.items() if flips}
    models: Counter[str] = Counter()
    edits: Counter[str] = Counter()
    scenes: Counter[str] = Counter()
    chosen: list[Flip] = []
    while waiting and len(chosen) < limit:
        key = min(waiting, key=lambda pair: (models[pair[0]] + edits[pair[1]], pair))
        flip = min(waiting[key], key=lambda candidate: scenes[candidate.source_id])
        waiting[key].remove(flip)
        if not waiting[key]:
            del waiting[key]
        chosen.append(flip)
        models[key[0]] += 1
        edits[key[1]] += 1
        scenes[flip.source_id] += 1
    order = {key: number for number, key in enumerate(candidates)}
    return sorted(chosen, key=lambda flip: order[flip.model, flip.edit])


def _draw(seed: int, model: str, sample_id: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{model}/{sample_id}".encode(), digest_size=8).digest()
