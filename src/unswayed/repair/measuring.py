"""Before and after: accuracies, drops and calibration of the plain, the control and the repaired model, paired.

`enhance` is the enhancement study of ImageNet-E (section 5.2) for one model: what helps without training it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from unswayed.analyses import Row
from unswayed.analyses.statistics.paired import (
    IntervalSettings,
    bin_gaps,
    estimates,
    percentiles,
    sign_flip,
    with_average,
)
from unswayed.benchmark.rows import ORIGINAL_EDIT as ORIGINAL
from unswayed.choices import OneLine, takes
from unswayed.errors import UserError
from unswayed.evaluation.evaluation import run_evaluation
from unswayed.evaluation.facts import averaged_edits, read_facts
from unswayed.evaluation.model_cards import STORED
from unswayed.evaluation.settings import EvaluateSettings
from unswayed.files.tables import read_checked
from unswayed.files.whole import write_json
from unswayed.models.opening import WRAPPERS
from unswayed.specs import slug_of, split_alias

from .settings import EnhanceSettings

Verdict = Literal["better", "worse", "cannot tell"]
EXITS: dict[str, int] = {"better": 0, "worse": 1, "cannot tell": 3}
FEWEST = 20  # photographs below which no interval says anything
AVERAGE = "average"
CHANGE, SINCE = ("difference", "low", "high"), ("change", "change_low", "change_high")
_EMPTY = dict.fromkeys(("before", "low", "high", *SINCE, "p_value"))
TOLERATED = 2.0  # points of accuracy on the originals that a repair may cost
SURE = 0.05  # the p-value below which a difference is certain, as in every other table


@dataclass(frozen=True, eq=False)
class Answers:
    """One model's answers: for each edit the share of runs answered right by photograph, and the mean probability."""

    ids: tuple[str, ...]
    right: Mapping[str, np.ndarray]
    probability: Mapping[str, np.ndarray]


def read_answers(path: str | Path) -> Answers:
    """The answers in a Parquet file of predictions; NaN where a photograph has no such edit."""
    wanted = ["source_id", "edit", "correct", "probability"]
    table = read_checked(path, STORED, select=wanted, required=wanted).select(wanted)
    columns = {name: table[name].to_pylist() for name in table.column_names}
    ids = tuple(sorted(set(columns["source_id"])))
    position = {name: index for index, name in enumerate(ids)}
    sums: dict[str, np.ndarray] = {}
    for source, edit, right, probability in zip(*columns.values(), strict=True):
        if right is not None:
            sums.setdefault(edit, np.zeros((3, len(ids))))[:, position[source]] += (1, right, probability)
    with np.errstate(invalid="ignore"):
        return Answers(ids, {e: s[1] / s[0] for e, s in sums.items()}, {e: s[2] / s[0] for e, s in sums.items()})


def before_and_after(answers: Mapping[str, Answers], averaged: Sequence[str]) -> list[Row]:
    """One row for each measure and set of pictures: the value of every model, and repaired minus control.

    answers: by `before` (may be absent), `control`, `repaired`, over the same photographs. Values are points
    (hundredths). A drop is the accuracy on the originals minus that on the edit of the same photographs; `average` is
    the mean of the drops of the `averaged` edits. difference, low, high: repaired minus control, with its paired
    interval and p_value; change, change_low, change_high: repaired minus before.
    """
    ids = answers["repaired"].ids
    edits = [edit for edit in answers["repaired"].right if edit != ORIGINAL]
    right = {edit: {name: model.right[edit] for name, model in answers.items()} for edit in (ORIGINAL, *edits)}
    rows = [_row("accuracy", edit, values, ids) for edit, values in right.items()]
    drops = {edit: {name: right[ORIGINAL][name] - right[edit][name] for name in answers} for edit in edits}
    rows += [_row("drop", edit, values, ids) for edit, values in drops.items()]
    if averaged:
        parts = {name: np.stack([drops[edit][name] for edit in averaged], axis=1) for name in answers}
        # A picture without an answer of one model counts for none of them.
        gaps = np.isnan(np.stack(list(parts.values()))).any(axis=0)
        chosen = list(range(len(averaged)))
        means = {n: with_average(np.where(gaps, np.nan, part), chosen)[:, -1] for n, part in parts.items()}
        rows.append(_row("drop", AVERAGE, means, ids, len(averaged)))
    rows += [_calibration_row(edit, edit, answers) for edit in right]
    return [{**_EMPTY, **row} for row in rows]


def folder_rows(name: str, answers: Mapping[str, Answers]) -> list[Row]:
    """Accuracy and calibration error on a labeled folder of other pictures, one row each."""
    right = {arm: model.right[ORIGINAL] for arm, model in answers.items()}
    row = _row("accuracy", name, right, answers["repaired"].ids)
    return [{**_EMPTY, **line} for line in (row, _calibration_row(name, ORIGINAL, answers))]


def verdict(rows: Sequence[Row]) -> tuple[Verdict, str]:
    """Whether the repair was worth it, against the control and against the model before; the reason in one sentence.

    Better: the average drop is surely below the control's (interval and test) and not above that before, and the
    originals have lost at most two points against either. Worse: the originals have surely lost more than that, or the
    average drop is surely above one of the two. Never better: a model that is surely worse than before in either. Else,
    and with fewer than twenty photographs, it cannot be told.
    """
    drop = next((row for row in rows if row["measure"] == "drop" and row["pictures"] == AVERAGE), None)
    plain = next(row for row in rows if row["measure"] == "accuracy" and row["pictures"] == ORIGINAL)
    if drop is None:
        return "cannot tell", "the benchmark holds no edits"
    if plain["n"] < FEWEST:
        return "cannot tell", f"{plain['n']} photographs were measured, at least {FEWEST} are needed"
    for names, against in ((CHANGE, "the control's"), (SINCE, "that before")):
        difference, low, high = (plain[name] for name in names)
        if difference is not None and (difference < -TOLERATED or (names is SINCE and high < 0)):
            interval = f"{difference:+.1f} points, 95 % interval {low:+.1f} to {high:+.1f}"
            lost = f"accuracy on the originals is below {against} ({interval})"
            return ("worse" if high < -TOLERATED else "cannot tell"), lost
    if drop["change"] is not None and drop["change"] > 0:
        return ("worse" if drop["change_low"] > 0 else "cannot tell"), (
            f"the average drop has grown from {drop['before']:.1f} to {drop['repaired']:.1f} points "
            f"(change {drop['change']:+.1f}, 95 % interval {drop['change_low']:+.1f} to {drop['change_high']:+.1f})"
        )
    words = (
        f"the average drop is {drop['repaired']:.1f} points, the control's {drop['control']:.1f} "
        f"(difference {drop['difference']:+.1f}, 95 % interval {drop['low']:+.1f} to {drop['high']:+.1f})"
    )
    if drop["high"] < 0 and drop["p_value"] < SURE:
        return "better", words
    return ("worse", words) if drop["low"] > 0 else ("cannot tell", words)


def _row(measure: str, pictures: str, values: Mapping[str, np.ndarray], ids: tuple[str, ...], answers: int = 1) -> Row:
    """values: by model (photographs,) in [-1, 1], NaN where there is none; answers: how many each value averages."""
    together = ~np.isnan(np.stack(list(values.values()))).any(axis=0)
    kept = {name: column[together] for name, column in values.items()}
    count = int(together.sum())
    row: Row = {"measure": measure, "pictures": pictures, "n": count}
    if not count:
        return {**row, **dict.fromkeys(values, float("nan")), "difference": float("nan")}
    row |= {name: 100 * float(column.mean()) for name, column in kept.items()}
    images = tuple(name for name, there in zip(ids, together, strict=True) if there)
    # A difference of drops compares two answers of each model, and lies in [-2, 2].
    sides = 1 if measure == "accuracy" else 2
    compared = {"control": CHANGE, "before": SINCE}
    names = [name for name in compared if name in kept]
    apart = np.stack([kept["repaired"] - kept[name] for name in names], axis=1)
    counts = np.full(len(names), sides * answers)
    intervals = estimates(apart, counts, images, IntervalSettings(), reach=sides, unit=100.0)
    for number, name in enumerate(names):
        row |= intervals.entries(number, *compared[name])
    # The mean over edits of which some are missing lies on no lattice, and nor do means over runs.
    whole = np.allclose(apart * answers, np.rint(apart * answers))
    return row | {"p_value": sign_flip(apart[:, 0], answers if whole else 10**6)}


def _calibration_row(pictures: str, edit: str, answers: Mapping[str, Answers]) -> Row:
    """The calibration errors, and the bootstrap interval over photographs of their difference if there are enough."""
    together = ~np.isnan(np.stack([model.right[edit] for model in answers.values()])).any(axis=0)
    count = int(together.sum())
    row: Row = {"measure": "calibration error", "pictures": pictures, "n": count}
    if not count:
        return {**row, **dict.fromkeys(answers, float("nan")), "difference": float("nan")}
    gaps = {n: bin_gaps(m.right[edit][together], m.probability[edit][together]) for n, m in answers.items()}
    row |= {n: 100 * float(np.abs(gap.sum(axis=0)).sum() / count) for n, gap in gaps.items()}
    row["difference"] = row["repaired"] - row["control"]
    if count < FEWEST:
        return row
    images = tuple(name for name, there in zip(answers["repaired"].ids, together, strict=True) if there)
    weights = IntervalSettings().weights(images)
    drawn = [100 * np.abs(weights @ gaps[n]).sum(axis=1) / weights.sum(axis=1) for n in ("repaired", "control")]
    apart = drawn[0] - drawn[1]
    # Resampling raises a calibration error, most for the better calibrated model, so the draws' mean is corrected.
    low, high = percentiles((apart - apart.mean() + row["difference"])[:, None])
    return row | {"low": float(low[0]), "high": float(high[0])}


@dataclass(frozen=True, eq=False, repr=False)
class Enhancement(OneLine):
    """What the study found: one row for each way, more rows by edit, and the ways that do not suit the model."""

    folder: Path
    rows: list[Row]
    by_edit: list[Row]
    skipped: dict[str, str]


@takes(EnhanceSettings)
def enhance(
    benchmark: str | Path,
    model: str,
    output: str | Path,
    settings: EnhanceSettings,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Enhancement:
    """Measure a model as it is and in every way that may help it, on the same pictures.

    The fields of settings are also keywords. Each row holds the accuracy on the originals, the average drop, and the
    change of both against the plain model with a paired 95 % interval.
    """
    alias, written = split_alias(model)
    plain = alias or model
    ways = {"plain": model}
    for wrapper in WRAPPERS:
        ways[wrapper] = f"{model}+{wrapper}" if alias is None else f"{alias}-{wrapper}={written}+{wrapper}"
    ways |= {other: other for other in settings.others}
    chosen = {name: getattr(settings, name) for name in ("transform", "device", "batch_size", "workers")}
    # By name, so that they run in a worker process: a picture that ends it is left out alone.
    done = run_evaluation(benchmark, list(ways.values()), output, EvaluateSettings(**chosen), progress=progress)
    names = {way: split_alias(name)[0] or name for way, name in ways.items()}
    if plain in done.failed:
        raise UserError(f"{plain} could not be measured: {done.failed[plain]}")
    skipped = {way: done.failed[name] for way, name in names.items() if name in done.failed}
    measured = {way: done.stored_as.get(name, name) for way, name in names.items() if name not in done.failed}
    answers = {way: read_answers(Path(output) / f"{slug_of(name)}.parquet") for way, name in measured.items()}
    facts = read_facts(output, models=list(measured.values()))
    averaged = averaged_edits([edit for edit in answers["plain"].right if edit != ORIGINAL], facts)
    rows: list[Row] = []
    by_edit: list[Row] = []
    columns = {"measure": "measure", "pictures": "pictures", "n": "n", "plain": "control", "enhanced": "repaired"}
    for way in answers:
        changes = dict.fromkeys(CHANGE) if way == "plain" else {}
        compared = [
            {**{name: row[key] for name, key in columns.items()}, **{name: row[name] for name in CHANGE}, **changes}
            for row in before_and_after({"control": answers["plain"], "repaired": answers[way]}, averaged)
        ]
        by_edit += [{"way": way, **row} for row in compared]
        rows.append(_summary(way, compared))
    result = {"model": plain, "benchmark": str(benchmark), "rows": rows, "by_edit": by_edit, "skipped": skipped}
    write_json(Path(output) / "enhance" / "enhance.json", result)
    return Enhancement(Path(output), rows, by_edit, skipped)


def _summary(way: str, rows: Sequence[Row]) -> Row:
    """One row: the originals and the average drop, with what changed against the plain model."""
    by_measure = {(row["measure"], row["pictures"]): row for row in rows}
    original, drop = by_measure["accuracy", ORIGINAL], by_measure.get(("drop", AVERAGE), {})
    row = {"way": way, "n": original["n"], "accuracy": original["enhanced"]}
    row |= {f"accuracy_{name}": original[name] for name in CHANGE}
    return row | {"average_drop": drop.get("enhanced")} | {f"drop_{name}": drop.get(name) for name in CHANGE}
