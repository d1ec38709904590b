"""Two models, or all pairs of several, on the same pictures: is one really better, or are they the same?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from unswayed.choices import OneLine, check_choice, takes
from unswayed.errors import UserError
from unswayed.evaluation.facts import AVERAGE, ORIGINAL, SOURCE, Facts, averaged_edits, read_facts
from unswayed.evaluation.model_cards import KEYS, tasks_in, warn_of_suspicions
from unswayed.evaluation.predictions import (
    Predictions,
    columns_of,
    common_predictions,
    each_model,
    missing_model,
    model_names,
    read_cards,
)
from unswayed.labels import require_one_task

from .. import Row, schema
from ..settings import CompareSettings
from ..statistics import corrected, in_words, is_certain
from ..statistics.paired import Estimates, IntervalSettings, estimates, sign_flip, with_average
from ..statistics.power import photographs_to_tell
from .outcomes import POINTS, Outcomes, flip_tests, lattice_of, need_original, outcomes_of, read_pair, with_sum

Measure = Literal["accuracy", "drop", "net"]
Equivalence = Literal["unchanged", "equivalent", "worse", "better", "cannot tell"]
Pair = tuple[Outcomes, Outcomes]
SCHEMA = schema(
    "edit n first_accuracy second_accuracy accuracy_difference accuracy_low accuracy_high first_drop second_drop "
    "drop_difference low high first_relative_drop second_relative_drop net_difference net_low net_high p_value "
    "accuracy_p_value white_box"
)


@takes(CompareSettings)
def compare(
    predictions: Predictions, first: str, second: str, settings: CompareSettings, *, facts: Facts | None = None
) -> pl.DataFrame:
    """One row per edit: both models' accuracies and drops on the photographs they share, and the paired differences.

    The fields of settings are also keywords. Of the columns: first_*, second_* are accuracies in [0, 1] and drops in
    points; accuracy_difference is first minus second, in points, with accuracy_low and accuracy_high; drop_difference
    is first minus second, in points, with low and high: negative where the first model drops less; net_difference the
    same for net drops, which are against each edit's control. A relative drop is the drop in percent of the model's
    accuracy on the originals. measure: what p_value tests, by sign flips over photographs: the difference in accuracy,
    in drop or in net drop (in accuracy for `original`); accuracy_p_value always tests the accuracies. p_holm and
    accuracy_p_holm are corrected within their families, and verdict says what is certain (analyses.statistics). An
    edit that was made to attack one of the two models is not tested and has no verdict.

    Predictions from different benchmarks are refused; common: compare the pictures that both models were shown.
    """
    if first == second and settings.other is None:
        raise UserError(f"{first} is compared with itself", allowed="two different models")
    beside = predictions if settings.other is None else settings.other
    if facts is None:
        facts = read_facts(predictions, models=[first], common=settings.common)
        both = {"first": facts.cards.get(first, {}), "second": read_cards(beside).get(second, {})}
        warn_of_suspicions(both)
    pair = read_pair(predictions, first, beside, second, settings.common)
    return _with_verdicts([(pair, {})], SCHEMA, facts, settings)


@takes(CompareSettings)
def compare_all(predictions: Predictions, models: Sequence[str] | None, settings: CompareSettings) -> pl.DataFrame:
    """The rows of `compare` for every pair of models, with columns `first` and `second`, and one Holm correction.

    models: those to compare, all of the predictions if None.
    """
    names = model_names(predictions)
    if missing := [name for name in models or () if name not in names]:
        raise missing_model(missing[0], names, predictions)
    chosen = names if models is None else list(dict.fromkeys(models))
    if len(chosen) < 2:
        raise UserError(f"there is only the model {', '.join(chosen)} to compare", allowed="two or more models")
    facts = read_facts(predictions, models=chosen, common=settings.common)
    require_one_task(tasks_in(facts.cards, chosen).items())
    answers = common_predictions(predictions, chosen) if settings.common else predictions
    by_model = {name: outcomes_of(name, rows) for name, rows in each_model(answers, models=chosen)}
    pairs = [
        ((by_model[first], by_model[second]), {"first": first, "second": second})
        for first, second in itertools.combinations(chosen, 2)
    ]
    return _with_verdicts(pairs, schema("first second") | SCHEMA, facts, settings)


def _with_verdicts(pairs: list[tuple[Pair, Row]], types: Row, facts: Facts, settings: CompareSettings) -> pl.DataFrame:
    """Return the rows of all pairs of models, each with its names, with one correction and a verdict each."""
    intervals = IntervalSettings(settings.resamples, settings.level, settings.seed, settings.interval)
    rows = [
        {**names, **row} for pair, names in pairs for row in comparison_rows(*pair, facts, intervals, settings.measure)
    ]
    table = corrected(pl.DataFrame(rows, schema=types, infer_schema_length=None))
    words = [_verdict(row, settings.measure) for row in table.iter_rows(named=True)]
    return table.with_columns(verdict=pl.Series(words, dtype=pl.String))


def comparison_rows(
    first: Outcomes, second: Outcomes, facts: Facts, settings: IntervalSettings, measure: Measure = "drop"
) -> list[Row]:
    """The rows of the comparison before correction: `original` first, then the edits both have, then their average."""
    check_choice("measure", measure, Measure)
    images = tuple(sorted(set(first.images) & set(second.images)))
    if not images:
        raise UserError(
            f"{first.model} and {second.model} have no photographs in common "
            f"({first.images[0]}, … against {second.images[0]}, …)",
            allowed="predictions on the same benchmark",
        )
    pair = first.cut(images, first.edits), second.cut(images, second.edits)
    shares = [need_original(outcomes) for outcomes in pair]
    gap = shares[0] - shares[1]
    p_value = sign_flip(gap, lattice_of(*(outcomes.runs_of(ORIGINAL) for outcomes in pair)))
    start = estimates(gap[:, None], _answers(pair, [ORIGINAL]), images, settings, unit=POINTS)
    start = start.tested(np.array([p_value]))
    accuracies = [float(np.nanmean(np.where(np.isnan(gap), np.nan, share))) for share in shares]
    row = {
        "edit": ORIGINAL,
        "n": int(start.sums.n[0]),
        "first_accuracy": accuracies[0],
        "second_accuracy": accuracies[1],
        **start.entries(0, "accuracy_difference", "accuracy_low", "accuracy_high"),
        **dict.fromkeys(("p_value", "accuracy_p_value"), p_value),
        "white_box": False,
    }
    edits = [edit for edit in facts.sorted(set(first.edits) & set(second.edits)) if edit not in (ORIGINAL, SOURCE)]
    return [row, *(_edit_rows(pair, edits, facts, settings, measure) if edits else [])]


def _edit_rows(pair: Pair, edits: list[str], facts: Facts, settings: IntervalSettings, measure: Measure) -> list[Row]:
    controls = [facts.control(edit) or "" for edit in edits]
    shares = [outcomes.matrix(edits) for outcomes in pair]
    drops = [outcomes.of(ORIGINAL)[:, None] - share for outcomes, share in zip(pair, shares, strict=True)]
    nets = [outcomes.matrix(controls) - share for outcomes, share in zip(pair, shares, strict=True)]
    paired = ~np.isnan(drops[0] - drops[1])
    averaged = [edits.index(edit) for edit in averaged_edits(edits, facts)]
    answers = with_sum(_answers(pair, edits), averaged)
    runs = [
        [outcomes.runs_of(name) for outcomes in pair for name in (ORIGINAL, edit, control)]
        for edit, control in zip(edits, controls, strict=True)
    ]
    tests: dict[str, Estimates] = {}
    for name, sides, reach in (("accuracy", shares, 1), ("drop", drops, 2), ("net", nets, 2)):
        gaps = with_average(np.where(paired, sides[0] - sides[1], np.nan), averaged)
        if name == "net" and np.isnan(nets[0] - nets[1])[:, averaged].all(axis=0).any():
            gaps[:, -1] = np.nan  # an average over other edits than the drop's would be another quantity
        test = estimates(gaps, reach * answers, pair[0].images, settings, reach=reach, unit=POINTS)
        tests[name] = test.tested(flip_tests(gaps, averaged, runs))
    accuracy, drop, net = tests.values()
    rows = []
    for index, edit in enumerate([*edits, AVERAGE]):
        chosen = averaged if edit == AVERAGE else [index]
        if not chosen or not drop.sums.n[index]:
            continue
        means = [
            float(np.nanmean(np.where(paired, values, np.nan)[:, chosen], axis=0).mean())
            for values in (*shares, *drops)
        ]
        has_net = bool(net.sums.n[index])
        white_box = edit != AVERAGE and any(facts.is_white_box(outcomes.model, edit) for outcomes in pair)
        untested = white_box or (measure == "net" and not has_net)
        rows.append(
            {
                "edit": edit,
                "n": int(drop.sums.n[index]),
                "first_accuracy": means[0],
                "second_accuracy": means[1],
                **accuracy.entries(index, "accuracy_difference", "accuracy_low", "accuracy_high"),
                "first_drop": means[2] * POINTS,
                "second_drop": means[3] * POINTS,
                "first_relative_drop": _relative(means[2], means[0]),
                "second_relative_drop": _relative(means[3], means[1]),
                **drop.entries(index, "drop_difference", "low", "high"),
                **(net.entries(index, "net_difference", "net_low", "net_high") if has_net else {}),
                "p_value": None if untested else float(tests[measure].p_value[index]),
                "accuracy_p_value": None if white_box else float(accuracy.p_value[index]),
                "white_box": white_box,
            }
        )
    return rows


def _answers(pair: Pair, edits: list[str]) -> np.ndarray:
    return np.array([max(1, *(int(outcomes.runs_of(edit).max()) for outcomes in pair)) for edit in edits])


def _relative(drop: float, accuracy: float) -> float | None:
    """A drop in percent of the accuracy on the originals of the same photographs; None where that is zero."""
    return POINTS * drop / (accuracy + drop) if accuracy + drop > 1e-9 else None


def _verdict(row: Row, measure: Measure) -> str:
    if row["white_box"]:
        return "not compared: white-box"
    if row["p_holm"] is None and row["p_value"] is None:
        return "not measured: no control"
    accuracy = [row[name] for name in ("accuracy_difference", "accuracy_low", "accuracy_high", "accuracy_p_holm")]
    more_accurate = in_words(accuracy, "first is more accurate", "second is more accurate", "")
    if row["edit"] == ORIGINAL or measure == "accuracy":
        return more_accurate or "no difference shown"
    ends = ("low", "high") if measure == "drop" else ("net_low", "net_high")
    drops = [row[name] for name in (f"{measure}_difference", *ends, "p_holm")]
    better = in_words(drops, "second", "first", "")
    if not better:
        # Equal drops from unequal heights: whoever reads "no difference" must not take the models for equal.
        return f"no difference in drop shown, but {more_accurate}" if more_accurate else "no difference shown"
    net = " net of the control" if measure == "net" else ""
    # A model that is seldom right has little to lose, so its small drop must not look like robustness.
    less = more_accurate and not more_accurate.startswith(better)
    return f"{better} drops less{net}" + (f", but {more_accurate}" if less else "")


@dataclass(frozen=True, eq=False, repr=False)
class SameModel(OneLine):
    """The answer in one word and in one sentence, and one row per edit (columns: `same_model`)."""

    answer: Equivalence
    sentence: str
    table: pl.DataFrame


def same_model(
    predictions: Predictions,
    first: str,
    second: str,
    *,
    other: Predictions | None = None,
    margin: float = 1.0,
    level: float = 0.95,
    common: bool = False,
    resamples: int = 1000,
    seed: int = 0,
) -> SameModel:
    """Whether `second`, a converted form of `first`, is less robust: a paired comparison for each edit.

    margin: the largest change in points that counts as none. Columns of the table: edit, n, first_accuracy,
    second_accuracy in [0, 1], same (the share of pictures on which both forms give the same class), cost, low, high
    (what the second form loses in points: accuracy on the originals, drop on the edits), p_holm, verdict (an
    `Equivalence`) and more (photographs that would decide).

    Every edit is tested for a difference (Holm's correction over the table) and for equivalence: two one-sided tests,
    which show equivalence where the interval of level 1 - 2 x 5 % lies within the margin. That all edits are
    equivalent needs no correction, since every one of them must be.
    """
    if not 0 < margin <= 100:
        raise UserError(f"the margin is {margin:g}", allowed="above 0 and at most 100 points")
    table = compare(
        predictions, first, second, other=other, common=common, level=2 * level - 1, resamples=resamples, seed=seed
    )
    same = _same_classes(predictions, first, predictions if other is None else other, second)
    rows = [_same_row(row, same.get(row["edit"]), margin, level) for row in table.iter_rows(named=True)]
    edits = [row for row in rows if row["edit"] != AVERAGE]
    # Worse if one edit is worse, cannot tell if one cannot be decided, unchanged only if all are.
    order: tuple[Equivalence, ...] = ("worse", "cannot tell", "better", "equivalent", "unchanged")
    answer = next(verdict for verdict in order if any(row["verdict"] == verdict for row in edits))
    types = schema("edit n first_accuracy second_accuracy same cost low high p_holm verdict more")
    made = pl.DataFrame(rows, schema=types, infer_schema_length=None)
    return SameModel(answer, _sentence(answer, edits, first, second, margin), made)


def _same_row(row: Row, same: float | None, margin: float, level: float) -> Row:
    if row["edit"] == ORIGINAL:
        cost, low, high = (row[name] for name in ("accuracy_difference", "accuracy_low", "accuracy_high"))
    else:
        cost, low, high = -row["drop_difference"], -row["high"], -row["low"]
    kept = {name: row[name] for name in ("edit", "n", "first_accuracy", "second_accuracy", "p_holm")}
    kept |= {"same": same, "cost": cost + 0.0, "low": low + 0.0, "high": high + 0.0}
    if same == 1:
        return kept | {"verdict": "unchanged"}
    if -margin < low and high < margin:
        return kept | {"verdict": "equivalent"}
    if is_certain(low, high, row["p_holm"]):
        return kept | {"verdict": "worse" if cost > 0 else "better"}
    needed = photographs_to_tell(abs(cost), low, high, row["n"], margin, 2 * level - 1)
    return kept | {"verdict": "cannot tell", "more": None if needed is None else max(needed - row["n"], 1)}


def _sentence(answer: Equivalence, edits: list[Row], first: str, second: str, margin: float) -> str:
    if answer == "unchanged":
        return f"No: {second} gives the same class as {first} on every picture, so it costs no robustness here."
    if answer == "equivalent":
        return (
            f"No: {second} is as robust as {first}; on the originals and on every edit the difference is shown to be "
            f"within ±{margin:g} points."
        )
    if answer == "better":
        return f"No: {second} is nowhere worse than {first} by more than {margin:g} points, and {_worst(edits, -1)}."
    if answer == "worse":
        return f"Yes: {second} is less robust than {first}; {_worst(edits, 1)}."
    open_ones = [row for row in edits if row["verdict"] == "cannot tell"]
    known = [row["more"] for row in open_ones]
    more = f"; about {max(known):,} more photographs would decide" if known and None not in known else ""
    names = ", ".join(row["edit"] for row in open_ones[:3]) + (" and others" if len(open_ones) > 3 else "")
    return (
        f"Cannot tell: on {names} the difference between {first} and {second} may be more than ±{margin:g} points"
        f"{more}."
    )


def _worst(edits: list[Row], sign: int) -> str:
    """The edit with the largest change in the direction of `sign`, in words."""
    word = "worse" if sign > 0 else "better"
    chosen = [row for row in edits if row["verdict"] == word]
    row = max(chosen, key=lambda candidate: sign * candidate["cost"])
    low, high = sorted((sign * row["low"], sign * row["high"]))
    what = "of accuracy on the originals" if row["edit"] == ORIGINAL else f"on {row['edit']}"
    others = f" ({len(chosen)} of {len(edits)} are {word})" if len(chosen) > 1 else ""
    verb = "loses" if sign > 0 else "gains"
    return f"it {verb} {sign * row['cost']:.1f} points ({low:.1f} to {high:.1f}) {what}{others}"


def _same_classes(predictions: Predictions, first: str, other: Predictions, second: str) -> dict[str, float]:
    """The share of pictures of each edit, and of all edits, on which both models predict the same class."""
    columns = [*KEYS, "predicted"]
    if any(name not in columns_of(stored) for stored in (predictions, other) for name in columns):
        return {}
    [(_, left), *_] = each_model(predictions, ["model", *columns], models=[first])
    [(_, right), *_] = each_model(other, ["model", *columns], models=[second])
    both = left.join(right, on=list(KEYS), suffix="_other")
    both = both.select("edit", same=pl.col("predicted") == pl.col("predicted_other"))
    edited = both.filter(~pl.col("edit").is_in([ORIGINAL, SOURCE])).with_columns(edit=pl.lit(AVERAGE))
    return dict(pl.concat([both, edited]).group_by("edit").agg(pl.col("same").mean()).iter_rows())
