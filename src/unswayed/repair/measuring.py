"""Before and after: accuracies, drops and calibration of the plain, the control and the repaired model, paired.

`enhance` is the enhancement study of ImageNet-E (section 5.2) for one model: what helps without training it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unswayed.analyses.drops.outcomes import with_average
from unswayed.analyses.statistics.paired import IntervalSettings, bin_gaps, estimates, percentiles
from unswayed.choices import one_line, takes
from unswayed.errors import UserError
from unswayed.evaluation.evaluation import run_evaluation
from unswayed.evaluation.facts import AVERAGE, ORIGINAL, Facts, averaged_edits, read_facts
from unswayed.evaluation.model_cards import STORED
from unswayed.evaluation.settings import EvaluateSettings
from unswayed.files.tables import read_checked
from unswayed.files.whole import write_json
from unswayed.models.classifier import Classifier
from unswayed.models.opening import WRAPPERS, open_model

from .settings import EnhanceSettings

Row = dict[str, Any]  # of a table of results
Verdict = Literal["better", "worse", "cannot tell"]
EXITS: dict[str, int] = {"better": 0, "worse": 1, "cannot tell": 3}
FEWEST = 20  # photographs below which no interval says anything
_EMPTY = dict.fromkeys(("before", "low", "high"))
CHANGE = ("difference", "low", "high")
TOLERATED = 2.0  # points of accuracy on the originals that a repair may cost


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


def before_and_after(answers: Mapping[str, Answers], facts: Facts | None = None, level: float = 0.95) -> list[Row]:
    """One row for each measure and set of pictures: the value of every model, and repaired minus control.

    answers: by `before` (may be absent), `control`, `repaired`, over the same photographs. Values are points
    (hundredths). A drop is the accuracy on the originals minus that on the edit of the same photographs; `average` is
    the mean of the edits' drops over the same edits as in `analyze`, by the facts of the predictions. low, high: the
    paired interval of the difference.
    """
    ids = answers["repaired"].ids
    edits = [edit for edit in answers["repaired"].right if edit != ORIGINAL]
    right = {edit: {name: model.right[edit] for name, model in answers.items()} for edit in (ORIGINAL, *edits)}
    rows = [_row("accuracy", edit, values, ids, level) for edit, values in right.items()]
    drops = {edit: {name: right[ORIGINAL][name] - right[edit][name] for name in answers} for edit in edits}
    rows += [_row("drop", edit, values, ids, level) for edit, values in drops.items()]
    counted = averaged_edits(edits, facts or Facts())
    if counted:
        parts = {name: np.stack([drops[edit][name] for edit in counted], axis=1) for name in answers}
        # A picture without an answer of one model counts for none of them.
        gaps = np.isnan(np.stack(list(parts.values()))).any(axis=0)
        chosen = list(range(len(counted)))
        means = {n: with_average(np.where(gaps, np.nan, part), chosen)[:, -1] for n, part in parts.items()}
        rows.append(_row("drop", AVERAGE, means, ids, level, len(counted)))
    rows += [_calibration_row(edit, edit, answers, level) for edit in right]
    return [{**_EMPTY, **row} for row in rows]


def folder_rows(name: str, answers: Mapping[str, Answers], level: float = 0.95) -> list[Row]:
    """Accuracy and calibration error on a labeled folder of other pictures, one row each."""
    ids = answers["repaired"].ids
    row = _row("accuracy", name, {n: model.right[ORIGINAL] for n, model in answers.items()}, ids, level)
    return [{**_EMPTY, **line} for line in (row, _calibration_row(name, ORIGINAL, answers, level))]


def verdict(rows: Sequence[Row]) -> tuple[Verdict, str]:
    """Whether the repair was worth it against the control, and the reason in one sentence.

    Better: the interval of the average drop's difference lies below zero, and the originals have not lost more than
    two points. Worse: the whole interval of the originals lies below that loss, or that of the drop above zero. Else,
    and with fewer than twenty photographs, it cannot be told.
    """
    drop = next((row for row in rows if row["measure"] == "drop" and row["pictures"] == AVERAGE), None)
    plain = next(row for row in rows if row["measure"] == "accuracy" and row["pictures"] == ORIGINAL)
    lost = f"accuracy on the originals is {-plain['difference']:.1f} points below the control's"
    if drop is None:
        return "cannot tell", "the benchmark holds no edits"
    if plain["n"] < FEWEST:
        return "cannot tell", f"{plain['n']} photographs were measured, at least {FEWEST} are needed"
    if plain["difference"] < -TOLERATED:
        return ("worse", lost) if plain["high"] < -TOLERATED else ("cannot tell", lost)
    words = (
        f"the average drop is {drop['repaired']:.1f} points, the control's {drop['control']:.1f} "
        f"(difference {drop['difference']:+.1f}, 95 % interval {drop['low']:+.1f} to {drop['high']:+.1f})"
    )
    if drop["high"] < 0:
        return "better", words
    return ("worse", words) if drop["low"] > 0 else ("cannot tell", words)


def _row(
    measure: str,
    pictures: str,
    values: Mapping[str, np.ndarray],
    ids: tuple[str, ...],
    level: float,
    answers: int = 1,
) -> Row:
    """values: by model (photographs,) in [-1, 1], NaN where there is none; answers: how many each value averages."""
    together = ~np.isnan(np.stack(list(values.values()))).any(axis=0)
    kept = {name: column[together] for name, column in values.items()}
    count = int(together.sum())
    row: Row = {"measure": measure, "pictures": pictures, "n": count}
    if not count:
        return {**row, **dict.fromkeys(values, float("nan")), "difference": float("nan")}
    row |= {name: 100 * float(column.mean()) for name, column in kept.items()}
    apart = (kept["repaired"] - kept["control"])[:, None]
    images = tuple(name for name, there in zip(ids, together, strict=True) if there)
    # A difference of drops compares two answers of each model, and lies in [-2, 2].
    sides = 1 if measure == "accuracy" else 2
    intervals = estimates(
        apart, np.array([sides * answers]), images, IntervalSettings(level=level), reach=sides, unit=100.0
    )
    return row | intervals.entries(0, *CHANGE)


def _calibration_row(pictures: str, edit: str, answers: Mapping[str, Answers], level: float) -> Row:
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
    weights = IntervalSettings(level=level).weights(images)
    drawn = [100 * np.abs(weights @ gaps[n]).sum(axis=1) / weights.sum(axis=1) for n in ("repaired", "control")]
    apart = drawn[0] - drawn[1]
    # Resampling raises a calibration error, most for the better calibrated model, so the draws' mean is corrected.
    low, high = percentiles((apart - apart.mean() + row["difference"])[:, None], level)
    return row | {"low": float(low[0]), "high": float(high[0])}


@one_line
@dataclass(frozen=True, eq=False)
class Enhancement:
    """What the study found: one row for each way, more rows by edit, and the ways that do not suit the model."""

    folder: Path
    rows: list[Row]
    by_edit: list[Row]
    skipped: dict[str, str]

    def __repr__(self) -> str:
        return f"Enhancement({str(self.folder)!r}: {len(self.rows)} ways, {len(self.skipped)} skipped)"


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
    device = settings.device
    plain = open_model(model, device=device)
    ways: dict[str, Classifier] = {"plain": plain}
    skipped: dict[str, str] = {}
    for wrapper in WRAPPERS:
        try:
            ways[wrapper] = open_model(f"{model}+{wrapper}", device=device)
        except UserError as error:
            skipped[wrapper] = error.given
    ways |= {other: open_model(other, device=device) for other in settings.others}
    done = run_evaluation(
        benchmark,
        list(ways.values()),
        output,
        EvaluateSettings(device=device, batch_size=settings.batch_size, workers=settings.workers),
        progress=progress,
    )
    if plain.name in done.failed:
        raise UserError(f"{plain.name} could not be measured: {done.failed[plain.name]}")
    skipped |= {way: done.failed[changed.name] for way, changed in ways.items() if changed.name in done.failed}
    measured = {way: changed for way, changed in ways.items() if changed.name not in done.failed}
    answers = {way: read_answers(Path(output) / f"{changed.slug}.parquet") for way, changed in measured.items()}
    facts = read_facts(output, models=[changed.name for changed in measured.values()])
    rows: list[Row] = []
    by_edit: list[Row] = []
    columns = {"measure": "measure", "pictures": "pictures", "n": "n", "plain": "control", "enhanced": "repaired"}
    for way in answers:
        changes = dict.fromkeys(CHANGE) if way == "plain" else {}
        compared = [
            {**{name: row[key] for name, key in columns.items()}, **{name: row[name] for name in CHANGE}, **changes}
            for row in before_and_after({"control": answers["plain"], "repaired": answers[way]}, facts)
        ]
        by_edit += [{"way": way, **row} for row in compared]
        rows.append(_summary(way, compared))
    result = {"model": plain.name, "benchmark": str(benchmark), "rows": rows, "by_edit": by_edit, "skipped": skipped}
    write_json(Path(output) / "enhance" / "enhance.json", result)
    return Enhancement(Path(output), rows, by_edit, skipped)


def _summary(way: str, rows: Sequence[Row]) -> Row:
    """One row: the originals and the average drop, with what changed against the plain model."""
    by_measure = {(row["measure"], row["pictures"]): row for row in rows}
    original, drop = by_measure["accuracy", ORIGINAL], by_measure.get(("drop", AVERAGE), {})
    row = {"way": way, "n": original["n"], "accuracy": original["enhanced"]}
    row |= {f"accuracy_{name}": original[name] for name in CHANGE}
    return row | {"average_drop": drop.get("enhanced")} | {f"drop_{name}": drop.get(name) for name in CHANGE}
