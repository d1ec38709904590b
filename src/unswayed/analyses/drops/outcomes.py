"""One model's predictions as a matrix of photographs by edits, and the rows of a table of dropped accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import polars as pl

from unswayed.errors import UserError
from unswayed.evaluation.facts import AVERAGE, ORIGINAL, SOURCE, Facts, averaged_edits, chosen_edits
from unswayed.evaluation.model_cards import KEYS, PICTURE, require_same_benchmark, tasks_in
from unswayed.evaluation.predictions import (
    COLUMNS,
    Predictions,
    columns_of,
    each_model,
    is_frame,
    read_cards,
    shared_pictures,
)
from unswayed.labels import require_one_task

from .. import Row, schema
from ..statistics import corrected
from ..statistics.paired import (
    Estimates,
    IntervalSettings,
    estimates,
    mcnemar,
    sign_flip,
    wilson_interval,
    with_average,
)

TOO_FEW_TO_PASS = 5  # photographs below which a pass says next to nothing
TOO_FEW_TO_RANK = 50  # below, one of them changes an accuracy by more than two points, so models cannot be ranked
POINTS = 100.0
_NO_LATTICE = 10**6
SCHEMA = schema(
    "model edit kind n runs accuracy accuracy_low accuracy_high original_accuracy drop low high relative_drop interval "
    "p_value p_holm control net_n net_drop net_low net_high net_p_value net_p_holm white_box edits"
)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """One model's predictions.

    images: source ids, sorted; edits: names; share: (images, edits) float64 in [0, 1], the share of correct runs, NaN
    if there is none; runs: (images, edits) int64, the number of runs; parts: (images, edits) int64, shares are
    multiples of its inverse: the runs, unless the shares are means over models.
    """

    model: str
    images: tuple[str, ...]
    edits: tuple[str, ...]
    share: np.ndarray
    runs: np.ndarray
    parts: np.ndarray

    def of(self, edit: str) -> np.ndarray:
        """Return (images,) the share of correct runs, all NaN for an edit without predictions."""
        return self._column(self.share, edit, np.nan)

    def runs_of(self, edit: str) -> np.ndarray:
        return self._column(self.runs, edit, 0)

    def parts_of(self, edit: str) -> np.ndarray:
        return self._column(self.parts, edit, 0)

    def _column(self, values: np.ndarray, edit: str, absent: float) -> np.ndarray:
        return values[:, self.edits.index(edit)] if edit in self.edits else np.full(len(self.images), absent)

    def matrix(self, edits: Sequence[str]) -> np.ndarray:
        """Return (images, edits) the shares of these edits."""
        return np.stack([self.of(edit) for edit in edits], axis=1)

    def cut(self, images: tuple[str, ...], edits: tuple[str, ...]) -> Outcomes:
        """Return the outcomes on these photographs, for these edits."""
        columns = np.array([self.edits.index(edit) for edit in edits])
        cells = np.ix_(np.searchsorted(self.images, images), columns)
        return Outcomes(self.model, images, edits, self.share[cells], self.runs[cells], self.parts[cells])


def each_outcomes(predictions: Predictions, models: Sequence[str] | None = None) -> Iterator[Outcomes]:
    """Yield the outcomes of each model, or of `models`; those of the same photographs share one list of ids."""
    images: tuple[str, ...] | None = None
    for name, rows in each_model(predictions, models=models):
        outcomes = outcomes_of(name, rows, images)
        images = outcomes.images
        yield outcomes


def outcomes_of(model: str, rows: pl.DataFrame, images: tuple[str, ...] | None = None) -> Outcomes:
    """Return the model's rows (source_id, edit, run, correct) as Outcomes; the rows' order does not matter.

    images: ids to use if they cover the rows (so that models share one list), else the rows' own. Refused: the same
    picture twice, and rows without a prediction.
    """
    unlabeled = rows.filter(pl.col("correct").is_null())
    if unlabeled.height:
        raise UserError(
            f"{unlabeled.height} pictures of {model} have no label, such as those of {unlabeled['source_id'][0]}, so "
            "their predictions are neither right nor wrong",
            allowed="photographs with labels: class folders, or a labels.csv with a label in every row",
            run="unswayed build … -o ANOTHER, after labeling or removing these photographs",
        )
    for column in ("source_id", "edit"):
        if missing := rows[column].null_count():
            raise UserError(
                f"{missing} rows of {model} have no {column}", allowed="complete rows", run="unswayed evaluate … again"
            )
    edits = tuple(sorted(rows["edit"].unique().to_list()))
    if images is None or not rows["source_id"].is_in(images).all():
        images = tuple(sorted(rows["source_id"].unique().to_list()))
    codes = rows["source_id"].cast(pl.Enum(images)).to_physical().to_numpy().astype(np.int64)
    cells = codes * len(edits) + rows["edit"].cast(pl.Enum(edits)).to_physical().to_numpy()
    shape = (len(images), len(edits))
    runs = np.bincount(cells, minlength=len(images) * len(edits)).reshape(shape)
    if runs.max() > 1:
        keys = "source_id", "edit", pl.col("run").fill_null(0).alias("number")
        pictures = rows.group_by(keys).agg(pl.col("run").first(), n=pl.len()).filter(pl.col("n") > 1)
        first = pictures.sort("n", "source_id", "edit", "number", descending=[True, False, False, False]).head(1)
        for row in first.iter_rows(named=True):
            raise UserError(
                f"{pictures.height} pictures of {model} occur more than once, "
                f"such as {row['source_id']}, edit {row['edit']}, run {row['run']}",
                allowed="one row per picture",
                run="unswayed evaluate … into a new folder",
            )
    right = np.bincount(cells, weights=rows["correct"].to_numpy(), minlength=runs.size).reshape(shape)
    share = np.divide(right, runs, out=np.full(shape, np.nan), where=runs > 0)
    return Outcomes(model, images, edits, share, runs, runs)


def read_pair(
    predictions: Predictions, first: str, other: Predictions, second: str, common: bool = False
) -> tuple[Outcomes, Outcomes]:
    """Return two models' outcomes; different benchmarks are refused unless only common pictures are used."""
    sides, pair = ((predictions, first), (other, second)), []
    require_one_task((model, tasks_in(read_cards(stored), [model])[model]) for stored, model in sides)
    for stored, model in sides:
        columns = [*COLUMNS, *columns_of(stored, [PICTURE])]
        pair += [rows for _, rows in each_model(stored, columns, models=[model])]
    if common:
        pair = shared_pictures(pair)
    else:
        here, there = (model if is_frame(stored) else f"{model} in {stored}" for stored, model in sides)
        if not is_frame(predictions) and not is_frame(other):
            cards = read_cards(predictions).get(first), read_cards(other).get(second)
            require_same_benchmark(*cards, (here, there), len(set(pair[0]["source_id"]) & set(pair[1]["source_id"])))
        if all(PICTURE in rows.columns for rows in pair):
            both = pair[0].join(pair[1], on=list(KEYS), suffix="_other")
            differing = both.filter(pl.col(PICTURE) != pl.col(f"{PICTURE}_other"))
            for row in differing.head(1).iter_rows(named=True):
                raise UserError(
                    f"{here} and {there} were shown different pictures: {differing.height} differ, first "
                    f"{row['source_id']}, edit {row['edit']}, run {row['run']}",
                    allowed="predictions on the same benchmark; --common compares only the pictures that both have",
                )
    return outcomes_of(first, pair[0]), outcomes_of(second, pair[1])


def weight_of_one(n: int) -> str:
    """Return how much one of n photographs counts.

    >>> weight_of_one(4)
    'one photograph counts for 25.0 points'
    """
    share = f"one photograph counts for {100 / n:.1f} points" if n > 1 else ""
    return share or "nothing can be concluded from one photograph"


def finish(rows: list[Row], extra: Row | None = None) -> pl.DataFrame:
    """Return the rows as one frame with corrected p-values; `extra`: types of further columns, put after `edit`."""
    types = schema("model edit") | (extra or {}) | SCHEMA
    frame = pl.DataFrame(rows, schema=types, infer_schema_length=None)
    # In percent of the accuracy on the originals: a model that has lost its accuracy there must not look robust.
    start = pl.col("original_accuracy")
    relative = pl.when((start > 1e-9) & pl.col("drop").is_not_null()).then(pl.col("drop") / start)
    return corrected(frame).with_columns(relative_drop=relative).with_columns(pl.col(pl.Float64).fill_nan(None))


def model_rows(
    outcomes: Outcomes, facts: Facts, settings: IntervalSettings, edits: Sequence[str] | None = None
) -> list[Row]:
    """Return one model's rows of the table: the photographs, each edit, and the average over edits."""
    base = need_original(outcomes)
    edited = [edit for edit in facts.sorted(outcomes.edits) if edit not in (ORIGINAL, SOURCE)]
    if edits is not None:
        edits = chosen_edits(edits, [SOURCE, ORIGINAL, *edited, AVERAGE])
    rows: list[Row] = []
    for edit in (SOURCE, ORIGINAL):
        if edit in outcomes.edits:
            runs = outcomes.runs_of(edit)
            row = {"model": outcomes.model, "edit": edit, "kind": edit, "n": int((runs > 0).sum()), "white_box": False}
            row |= {"runs": int(runs.max()), **accuracy_entries(outcomes.of(edit), int(runs.max()), settings.level)}
            rows.append(row | ({"original_accuracy": row["accuracy"]} if edit == ORIGINAL else {}))
    if edited:
        rows += _edit_rows(outcomes, base, edited, facts, settings)
    return [row for row in rows if edits is None or row["edit"] in edits]


def need_original(outcomes: Outcomes) -> np.ndarray:
    """Return the share of correct predictions on each original; refused if there are none."""
    if ORIGINAL not in outcomes.edits:
        raise UserError(
            f"the predictions of {outcomes.model} have no edit '{ORIGINAL}', so there is no drop",
            allowed=f"edits: {', '.join(outcomes.edits)} and {ORIGINAL}",
            run="unswayed evaluate BENCH -m MODEL -o PREDICTIONS",
        )
    return outcomes.of(ORIGINAL)


def accuracy_entries(share: np.ndarray, runs: int, level: float) -> dict[str, float]:
    """Return mean and Wilson interval of shares in [0, 1] of `runs` predictions, one per photograph, without NaN."""
    share = share[~np.isnan(share)]
    n = len(share)
    if n == 0:
        return {}
    mean = float(share.mean())
    spread = float(share.var(ddof=1)) if n > 1 else 0.0
    # The average of several runs is more precise than one prediction: scale n by the variance of one prediction.
    worth = min(max(1.0, mean * (1 - mean) / spread), runs) if spread > 0 else 1.0
    low, high = wilson_interval(np.array(mean * n * worth), np.array(n * worth), level)
    return {"accuracy": mean, "accuracy_low": float(low), "accuracy_high": float(high)}


def lattice_of(*runs: np.ndarray, parts: np.ndarray | None = None) -> int:
    """Return the least common multiple of the numbers of runs: their shares are multiples of its inverse.

    parts: (photographs, edits) differences, for that of their mean over edits. A mean over edits that some photographs
    lack is on no common lattice; a fine one makes the test sample flips instead.
    """
    lattice = math.lcm(*(int(count) for count in np.unique(np.concatenate([[0], *runs])) if count > 0))
    if parts is None:
        return lattice
    missing = np.isnan(parts)
    has_gaps = (missing.any(axis=1) & ~missing.all(axis=1)).any()
    return _NO_LATTICE if has_gaps else lattice * max(parts.shape[1], 1)


def _edit_rows(
    outcomes: Outcomes, base: np.ndarray, edited: list[str], facts: Facts, settings: IntervalSettings
) -> list[Row]:
    share = outcomes.matrix(edited)
    runs = np.stack([outcomes.runs_of(edit) for edit in edited], axis=1)
    base_runs = outcomes.runs_of(ORIGINAL)
    drops = base[:, None] - share
    controls = [control or "" for control in map(facts.control, edited)]
    averaged_names, is_control = averaged_edits(edited, facts), list(map(facts.is_control, edited))
    white_box = list(map(facts.is_white_box, repeat(outcomes.model), edited))
    averaged = [edited.index(edit) for edit in averaged_names]
    # Net drops use photographs that have all three pictures, so that drop - net_drop is the control's own drop.
    nets = np.where(np.isnan(drops), np.nan, outcomes.matrix(controls) - share)
    answers = np.maximum(runs.max(axis=0), base_runs.max())
    net_answers = np.maximum(answers, [outcomes.runs_of(control).max() for control in controls])
    drop, net = (
        _tested(outcomes, with_average(parts, averaged), averaged, with_sum(counts, averaged), edited, starts, settings)
        for parts, counts, starts in ((drops, answers, [ORIGINAL] * len(edited)), (nets, net_answers, controls))
    )
    rows = []
    for index, edit in enumerate([*edited, *([AVERAGE] if averaged else [])]):
        if edit == AVERAGE:
            accuracy = float(np.nanmean(np.where(np.isnan(drops), np.nan, share)[:, averaged], axis=0).mean())
            entries: Row = {"kind": AVERAGE, "accuracy": accuracy, "edits": len(averaged), "white_box": False}
            entries["original_accuracy"] = accuracy + float(drop.mean[-1]) / POINTS
            control = "each edit's own" if all(controls[at] in outcomes.edits for at in averaged) else None
        elif (paired := ~np.isnan(drops[:, index])).any():
            entries = {**accuracy_entries(share[paired, index], int(answers[index]), settings.level)}
            entries |= {"kind": "control" if is_control[index] else "edit", "runs": int(runs[:, index].max())}
            entries |= {"original_accuracy": float(base[paired].mean()), "white_box": white_box[index]}
            control = controls[index]
        else:
            continue
        entries |= {"n": int(drop.sums.n[index]), **drop.entries(index, "drop", "low", "high", "p_value")}
        if control is not None and net.sums.n[index]:
            entries |= {"control": control, "net_n": int(net.sums.n[index])}
            entries |= net.entries(index, "net_drop", "net_low", "net_high", "net_p_value")
        rows.append({"model": outcomes.model, "edit": edit, "interval": drop.method[index], **entries})
    return rows


def _tested(
    outcomes: Outcomes,
    differences: np.ndarray,
    averaged: list[int],
    answers: np.ndarray,
    edited: list[str],
    against: list[str],
    settings: IntervalSettings,
) -> Estimates:
    """Return the tested estimates of each edit and of the average, whose column is the last.

    One run: McNemar's exact test; several runs, and the average: the sign-flip test. against: what each edit is
    measured against.
    """
    drop = estimates(differences, answers, outcomes.images, settings, unit=POINTS)
    runs = [[outcomes.parts_of(edit), outcomes.parts_of(start)] for edit, start in zip(edited, against, strict=True)]
    of_one_run = np.append(answers[:-1] == 1, False)
    p_values = mcnemar(np.rint(drop.sums.losses), np.rint(drop.sums.gains))
    return drop.tested(np.where(of_one_run, p_values, flip_tests(differences, averaged, runs)))


def flip_tests(differences: np.ndarray, averaged: list[int], runs: list[list[np.ndarray]]) -> np.ndarray:
    """Return the p-values of sign flips for each edit and for the average, whose column is the last.

    runs: for each edit the numbers of runs of all that its differences are computed from.
    """
    columns = [*([index] for index in range(len(runs))), averaged]
    p_values = []
    for column, chosen in zip(differences.T, columns, strict=True):
        counts = [part for at in chosen for part in runs[at]]
        p_values.append(sign_flip(column, lattice_of(*counts, parts=differences[:, chosen])))
    return np.array(p_values)


def with_sum(answers: np.ndarray, averaged: list[int]) -> np.ndarray:
    """Return how many predictions a difference averages at most: for each edit, and for the average over edits."""
    return np.append(answers, max(answers[averaged].sum(), 1))
