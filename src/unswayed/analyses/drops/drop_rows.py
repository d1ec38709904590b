"""The rows of a table of dropped accuracy: one for each photograph set, each edit, and the average over edits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from unswayed.analyses.columns import schema
from unswayed.analyses.statistics.intervals import Estimates, Settings, estimates
from unswayed.analyses.statistics.paired import holm, mcnemar, sign_flip, wilson_interval
from unswayed.errors import UserError
from unswayed.evaluation.facts import AVERAGE, ORIGINAL, SOURCE, Facts, averaged_edits, chosen_edits

from .outcomes import Outcomes

POINTS = 100.0

SCHEMA = schema(
    "model edit kind n runs accuracy accuracy_low accuracy_high original_accuracy drop low high relative_drop interval "
    "p_value p_holm control net_n net_drop net_low net_high net_p_value net_p_holm white_box edits"
)


def finish(rows: list[dict[str, Any]], extra: dict[str, Any] | None = None) -> pl.DataFrame:
    """Return the rows as one frame with corrected p-values; `extra`: types of further columns, put after `edit`."""
    names = list(SCHEMA)
    order = [*names[:2], *(extra or {}), *names[2:]]
    types = {**SCHEMA, **(extra or {})}
    frame = pl.DataFrame(rows, schema={name: types[name] for name in order}, infer_schema_length=None)
    # In percent of the accuracy on the originals: a model that has lost its accuracy there must not look robust.
    start = pl.col("original_accuracy")
    relative = pl.when((start > 1e-9) & pl.col("drop").is_not_null()).then(pl.col("drop") / start)
    return corrected(frame).with_columns(relative_drop=relative).with_columns(pl.col(pl.Float64).fill_nan(None))


def corrected(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with p_holm, the p_value corrected over all rows, and net_p_holm likewise; null: no test."""
    for name in ("p_value", "net_p_value"):
        if name in table.columns:
            adjusted = pl.Series(holm(table[name].fill_null(math.nan).to_numpy()), dtype=pl.Float64).fill_nan(None)
            table = table.with_columns(adjusted.alias(name.replace("value", "holm")))
    return table


def model_rows(
    found: Outcomes, facts: Facts, settings: Settings, edits: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return one model's rows of the table: the photographs, each edit, and the average over edits."""
    base = need_original(found)
    edited = [edit for edit in facts.sorted(found.edits) if edit not in (ORIGINAL, SOURCE)]
    if edits is not None:
        edits = chosen_edits(edits, [SOURCE, ORIGINAL, *edited, AVERAGE])
    rows = [photograph_row(found, edit, settings.level) for edit in (SOURCE, ORIGINAL) if edit in found.edits]
    if edited:
        rows += _edit_rows(found, base, edited, facts, settings)
    return [row for row in rows if edits is None or row["edit"] in edits]


def need_original(found: Outcomes) -> np.ndarray:
    """Return the share of correct predictions on each original; refused if there are none."""
    if ORIGINAL not in found.edits:
        raise UserError(
            f"the predictions of {found.model} have no edit '{ORIGINAL}', so there is no drop",
            allowed=f"edits: {', '.join(found.edits)} and {ORIGINAL}",
            run="unswayed evaluate BENCH -m MODEL -o PREDICTIONS",
        )
    return found.of(ORIGINAL)


def photograph_row(found: Outcomes, edit: str, level: float = 0.95) -> dict[str, Any]:
    """Return the row of `original` or `source`: an accuracy, no drop."""
    share, runs = found.of(edit), found.runs_of(edit)
    accuracy = accuracy_entries(share, int(runs.max()), level)
    return {
        "model": found.model,
        "edit": edit,
        "kind": edit,
        "n": int((runs > 0).sum()),
        "runs": int(runs.max()),
        **accuracy,
        "original_accuracy": accuracy["accuracy"] if edit == ORIGINAL else None,
        "white_box": False,
    }


def accuracy_entries(share: np.ndarray, runs: int, level: float = 0.95) -> dict[str, float]:
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


def with_average(differences: np.ndarray, averaged: list[int]) -> np.ndarray:
    """Return the columns and one more: each photograph's part in the mean of the averaged columns' means, or NaN.

    Without gaps that is the mean over columns; a column with gaps has the same weight as the others.
    """
    chosen = differences[:, averaged]
    there = ~np.isnan(chosen)
    part = np.where(there, chosen, 0.0) / np.maximum(there.sum(axis=0), 1)
    present = there.any(axis=1)
    mean = part.sum(axis=1) * present.sum() / max(len(averaged), 1)
    return np.column_stack([differences, np.where(present, mean, np.nan)])


def lattice_of(*runs: np.ndarray) -> int:
    """Return the least common multiple of the numbers of runs: their shares are multiples of its inverse."""
    return math.lcm(*(int(one) for one in np.unique(np.concatenate(runs)) if one > 0))


def _edit_rows(
    found: Outcomes, base: np.ndarray, edited: list[str], facts: Facts, settings: Settings
) -> list[dict[str, Any]]:
    share = np.stack([found.of(edit) for edit in edited], axis=1)
    runs = np.stack([found.runs_of(edit) for edit in edited], axis=1)
    base_runs = found.runs_of(ORIGINAL)
    drops = base[:, None] - share
    controls = [facts.control(edit) or "" for edit in edited]
    # Net drops use photographs that have all three pictures, so that drop - net_drop is the control's own drop.
    nets = np.where(np.isnan(drops), np.nan, np.stack([found.of(one) for one in controls], axis=1) - share)
    averaged = [edited.index(one) for one in averaged_edits(edited, facts)]

    answers = np.maximum(runs.max(axis=0), base_runs.max())
    net_answers = np.maximum(answers, [found.runs_of(one).max() for one in controls])
    drop = estimates(with_average(drops, averaged), _with_sum(answers, averaged), found.images, settings, unit=POINTS)
    net = estimates(with_average(nets, averaged), _with_sum(net_answers, averaged), found.images, settings, unit=POINTS)
    p_values = _p_values(found, edited, [ORIGINAL] * len(edited), drops, drop)
    net_p_values = _p_values(found, edited, controls, nets, net)
    rows = []
    for index, edit in enumerate(edited):
        paired = ~np.isnan(drops[:, index])
        if not paired.any():
            continue
        row = {
            "model": found.model,
            "edit": edit,
            "kind": "control" if facts.is_control(edit) else "edit",
            "runs": int(runs[:, index].max()),
            **accuracy_entries(share[paired, index], int(answers[index]), settings.level),
            "original_accuracy": float(base[paired].mean()),
            "p_value": float(p_values[index]),
            "white_box": facts.is_white_box(found.model, edit),
        }
        net_entries = _net_entries(net, index, controls[index])
        if net_entries:
            net_entries["net_p_value"] = float(net_p_values[index])
        rows.append(row | _drop_entries(drop, index) | net_entries)
    if averaged:
        there = np.where(np.isnan(drops), np.nan, share)[:, averaged]
        accuracy = float(np.nanmean(there, axis=0).mean())
        row = {
            "model": found.model,
            "edit": AVERAGE,
            "kind": AVERAGE,
            "accuracy": accuracy,
            "original_accuracy": accuracy + float(drop.mean[-1]) / POINTS,
            "white_box": False,
            "edits": len(averaged),
        }
        complete = all(controls[index] in found.edits for index in averaged)
        rows.append(row | _drop_entries(drop, -1) | (_net_entries(net, -1, "each edit's own") if complete else {}))
    return rows


def _drop_entries(drop: Estimates, at: int) -> dict[str, Any]:
    return {"n": int(drop.sums.n[at]), **drop.entries(at, "drop", "low", "high"), "interval": drop.method[at]}


def _net_entries(net: Estimates, at: int, control: str) -> dict[str, Any]:
    if not net.sums.n[at]:
        return {}
    return {"control": control, "net_n": int(net.sums.n[at]), **net.entries(at, "net_drop", "net_low", "net_high")}


def _p_values(found: Outcomes, edited: list[str], against: list[str], drops: np.ndarray, drop: Estimates) -> np.ndarray:
    """Return (edits,) p-values: of McNemar's exact test for one run, of the sign-flip test for several; against: what
    each edit's drop is measured against."""
    count = len(edited)
    p = mcnemar(np.rint(drop.sums.losses[:count]), np.rint(drop.sums.gains[:count]))
    for index in np.flatnonzero((drop.sums.answers[:count] > 1) & (drop.sums.n[:count] > 0)):
        lattice = lattice_of(found.parts_of(edited[index]), found.parts_of(against[index]))
        p[index] = sign_flip(drops[:, index], lattice)
    return p


def _with_sum(answers: np.ndarray, averaged: list[int]) -> np.ndarray:
    return np.append(answers, max(answers[averaged].sum(), 1))
