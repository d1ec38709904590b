"""Flips, predictions that an edit turns from right to wrong or back: their counts, and those to show."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields

import polars as pl
import polars.selectors as cs

from unswayed.choices import Draw
from unswayed.errors import printable
from unswayed.evaluation.facts import ORIGINAL, SOURCE, Facts
from unswayed.evaluation.predictions import COLUMNS, Predictions, columns_of, each_model

from . import schema
from .drops.groups import superclass_of
from .statistics.paired import expected_calibration_error

_NEEDED = ("model", "source_id", "edit", "run", "label", "correct", "predicted", "probability")
_WANTED = ("true_probability", "object_survives")
FLIP_COLUMNS = (*_NEEDED, *_WANTED)
# An object counts as cut off if the model's crop contains less than this share of its pixels.
CUT = 0.5
_OF_ONE_PHOTOGRAPH = 2
_HARDEST = 12  # flips of an edit from which the worst is taken


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
    mean probability of the true class, if the predictions contain it; worst: of each edit, the flip whose true class
    lost most, if there is one a flip whose control is right, so that the change is to blame.
    """

    shown: tuple[Flip, ...]
    counts: pl.DataFrame
    answers: pl.DataFrame
    probabilities: dict[tuple[str, str], float]
    worst: dict[str, Flip]

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
    superclass = superclass_of(facts)
    columns = [*_NEEDED, *columns_of(predictions, _WANTED)]
    counts: list[pl.DataFrame] = []
    pairs: list[pl.DataFrame] = []
    lost: dict[tuple[str, str], list[Flip]] = {}
    back: list[Flip] = []
    hardest: dict[str, list[Flip]] = {}
    probabilities: dict[tuple[str, str], float] = {}
    for model, rows in each_model(predictions, columns):
        paired = _paired(rows, facts, superclass)
        counts.append(_counted(model, paired))
        flips = paired.filter("flip")
        pairs.append(
            flips.group_by("label", "predicted").agg(flips=pl.len(), control_wrong=(~pl.col("control_correct")).sum())
        )
        if "true_probability" in columns:
            means = rows.group_by("edit").agg(pl.col("true_probability").mean()).drop_nulls()
            probabilities |= {(model, edit): mean for edit, mean in means.iter_rows()}
        paired = paired.filter(~pl.col("is_control"))  # a control is beside its edit's flip, and no flip of its own
        flips = paired.filter("flip")
        for (edit,), part in flips.group_by("edit", maintain_order=True):
            hardest.setdefault(str(edit), []).extend(_flips(_worst(part, _HARDEST)))
            if draw == "even":
                chosen = sorted(part["sample_id"].to_list(), key=lambda name: _draw(seed, model, name))[:limit]
                part = part.filter(pl.col("sample_id").is_in(chosen))
            kept = _flips(_worst(part, limit))
            lost[model, str(edit)] = sorted(kept, key=lambda flip: _draw(seed, model, flip.sample_id))
        back += _flips(_worst(paired.filter("gained"), gained, True))
    every = [flip for flips in lost.values() for flip in flips]
    chosen = _evenly(lost, limit) if draw == "even" else _spread_over_photographs(every, limit)
    answers = pl.concat(pairs).group_by("label", "predicted").sum().sort("flips", "label", "predicted", descending=True)
    worst = {
        edit: min(_spread_over_photographs(flips, _HARDEST), key=lambda flip: flip.control_correct is False)
        for edit, flips in hardest.items()
    }
    return Flips((*chosen, *_spread_over_photographs(back, gained)), pl.concat(counts), answers, probabilities, worst)


def worst_flips(
    predictions: Predictions, models: Sequence[str], edits: Sequence[str] | None = None, limit: int = 3
) -> list[Flip]:
    """The flips with the highest probability of the wrong class, at most one per photograph; none where the
    predictions do not hold the predicted classes. edits: only of these, of all if None."""
    if any(name not in columns_of(predictions) for name in _NEEDED):
        return []
    candidates: list[Flip] = []
    for _, rows in each_model(predictions, _NEEDED, models=models):
        flips = _paired(rows, Facts()).filter("flip")
        if edits is not None:
            flips = flips.filter(pl.col("edit").is_in(list(edits)))
        worst = flips.sort("probability", descending=True).unique("source_id", keep="first", maintain_order=True)
        candidates += _flips(worst.head(limit))
    candidates.sort(key=lambda flip: -(flip.after_probability or 0.0))
    first = {flip.source_id: flip for flip in reversed(candidates)}
    return sorted(first.values(), key=lambda flip: -(flip.after_probability or 0.0))[:limit]


def _paired(rows: pl.DataFrame, facts: Facts, superclass: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the edited pictures, each with the predictions for its photograph and for its control, and all that a
    `Flip` says of it."""
    absent = [name for name in _WANTED if name not in rows.columns]
    rows = rows.with_columns(pl.lit(None, rows.schema["probability"]).alias(name) for name in absent)
    at_least = pl.when("correct").then("probability").otherwise(0.0)
    rows = rows.with_columns(truth=pl.coalesce("true_probability", at_least))
    first = rows.filter(pl.col("run") == 0)
    renamed = {"predicted": "before", **{name: f"before_{name}" for name in ("correct", "probability", "truth")}}
    before = first.filter(pl.col("edit") == ORIGINAL).select("source_id", *renamed).rename(renamed)
    renamed = {"edit": "control", "correct": "control_correct", "predicted": "control_answer"}
    renamed["probability"] = "control_probability"
    control = first.select("source_id", *renamed).rename(renamed)
    edited = rows.filter(~pl.col("edit").is_in([ORIGINAL, SOURCE]) & pl.col("correct").is_not_null())
    edits = edited["edit"].unique().to_list()
    against, declared = list(map(facts.control, edits)), list(filter(facts.is_control, edits))
    controls = dict(zip(edits, (None if name == ORIGINAL else name for name in against), strict=True))
    gained, same_superclass = ~pl.col("before_correct") & pl.col("correct"), pl.lit(None, pl.Boolean)
    if superclass is not None:
        names, wrong = dict(enumerate(superclass)), pl.when(gained).then("before").otherwise("predicted")
        true = pl.col("label").replace_strict(names, default="unknown")
        same_superclass = true == wrong.replace_strict(names, default="")
    return (
        edited.join(before, on="source_id")
        .with_columns(control=pl.col("edit").replace_strict(controls, return_dtype=pl.String))
        .join(control, on=["source_id", "control"], how="left")
        .with_columns(
            flip=pl.col("before_correct") & ~pl.col("correct"),
            gained=gained,
            lost=pl.col("before_truth") - pl.col("truth"),
            sample_id=pl.format("{}/{}/{}", "source_id", "edit", "run"),
            is_control=pl.col("edit").is_in(declared),
            control=pl.when(pl.col("control_correct").is_not_null()).then("control"),
            after="predicted",
            after_probability="probability",
            after_true_probability="true_probability",
            survives="object_survives",
            same_superclass=same_superclass,
        )
    )


def _counted(model: str, paired: pl.DataFrame) -> pl.DataFrame:
    cut, flip = pl.col("survives") < CUT, pl.col("flip")
    calibration = pl.map_groups(
        ["correct", "probability"],
        lambda pair: expected_calibration_error(pair[0].to_numpy(), pair[1].to_numpy()),
        return_dtype=pl.Float64,
        returns_scalar=True,
    )

    counts = paired.group_by("edit", maintain_order=True).agg(
        is_control=pl.col("is_control").any(),
        n=pl.len(),
        right=pl.col("before_correct").sum(),
        flips=flip.sum(),
        gained=pl.col("gained").sum(),
        controlled=(flip & pl.col("control_correct").is_not_null()).sum(),
        control_wrong=(flip & ~pl.col("control_correct")).sum(),
        near=(flip & pl.col("same_superclass")).sum(),
        confidence=pl.col("probability").mean(),
        calibration_error=calibration,
        seen=pl.col("survives").is_not_null().sum(),
        cut=cut.sum(),
        cut_flips=(cut & flip).sum(),
    )
    return counts.select(pl.lit(model).alias("model"), pl.all()).with_columns(cs.integer().cast(pl.Int64))


def _worst(part: pl.DataFrame, limit: int, gained: bool = False) -> pl.DataFrame:
    """Return the pictures whose true class lost (or gained) most probability, at most two of one photograph."""
    ordered = part.sort("lost", "sample_id", descending=[not gained, False])
    return ordered.filter(pl.int_range(pl.len()).over("source_id") < _OF_ONE_PHOTOGRAPH).head(limit)


def _flips(pictures: pl.DataFrame) -> list[Flip]:
    return [Flip(**row) for row in pictures.select(field.name for field in fields(Flip)).iter_rows(named=True)]


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
    taken: Counter[tuple[str, str]] = Counter()
    chosen: list[Flip] = []
    while waiting and len(chosen) < limit:
        key = min(waiting, key=lambda pair: (taken["model", pair[0]] + taken["edit", pair[1]], pair))
        flip = min(waiting[key], key=lambda candidate: taken["photograph", candidate.source_id])
        waiting[key].remove(flip)
        if not waiting[key]:
            del waiting[key]
        chosen.append(flip)
        taken.update([("model", flip.model), ("edit", flip.edit), ("photograph", flip.source_id)])
    order = list(candidates)
    return sorted(chosen, key=lambda flip: order.index((flip.model, flip.edit)))


def _draw(seed: int, model: str, sample_id: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{model}/{sample_id}".encode(), digest_size=8).digest()


OUTCOMES = ("answered", "unmatched", "refused", "truncated", "no_reply")
NO_REPLY = ("malformed", "timeout", "failed")


def answer_outcomes(predictions: Predictions) -> pl.DataFrame:
    """Return one row per model and edit: how many questions had each outcome, the accuracy over all of them and over
    the answered ones, in [0, 1], and the most frequent text that means no class."""
    columns = schema(f"model edit n {' '.join(OUTCOMES)} accuracy of_answered example")
    if "outcome" not in columns_of(predictions):
        return pl.DataFrame(schema=columns)
    outcome, right, texts = pl.col("outcome"), pl.col("correct"), pl.col("answer_text")
    frames = [pl.DataFrame(schema=columns)]
    for _, rows in each_model(predictions, [*COLUMNS, "outcome", "answer_text"]):
        asked = rows.drop_nulls("outcome").with_columns(outcome.replace(dict.fromkeys(NO_REPLY, "no_reply")))
        table = asked.group_by("model", "edit", maintain_order=True).agg(
            *((outcome == name).sum().alias(name) for name in OUTCOMES),
            n=pl.len(),
            accuracy=right.mean(),
            of_answered=right.filter(outcome == "answered").mean(),
            example=texts.filter(outcome == "unmatched").drop_nulls().mode().sort().first(),
        )
        frames.append(table.select(list(columns)).cast(pl.Schema(columns)))
    shown = pl.col("example").map_elements(lambda text: printable(text)[:80], pl.String)
    return pl.concat(frames).with_columns(example=shown)
