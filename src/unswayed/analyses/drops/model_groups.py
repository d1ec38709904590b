"""Dropped accuracy of groups of models, such as transformers and convolutional networks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from unswayed.analyses.model_files import read_model_groups
from unswayed.analyses.statistics.intervals import Settings
from unswayed.errors import UserError, unknown
from unswayed.evaluation.facts import Facts, read_facts
from unswayed.evaluation.predictions import Predictions

from .drop_rows import finish, model_rows
from .outcomes import Outcomes, each_outcomes

EVERY = "all models"


def dropped_accuracy_of_groups(
    predictions: Predictions,
    groups: str | Path | None = None,
    *,
    facts: Facts | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pl.DataFrame:
    """Return the drop table of groups: one row per group and edit; `model` is the group, `models` its size.

    groups: a CSV with the column `model` and one column per grouping (architecture, training, …); None: all models
    only. A group's accuracy on a picture is the mean over its models, and intervals are over photographs:
    they describe the mean of these models, not of other models. A model that an edit attacks is left out of every
    group, and a picture that one of the group's models has not classified is left out of that group.
    """
    facts = read_facts(predictions) if facts is None else facts
    table = _read(groups)
    sums: dict[str, _Sum] = {}
    known = []
    for found in each_outcomes(predictions):
        known.append(found.model)
        if any(facts.is_white_box(found.model, edit) for edit in found.edits):
            continue
        for group in [EVERY, *table.get(found.model, [])]:
            sums.setdefault(group, _Sum()).add(found)
    for name in table:
        if name not in known:
            raise unknown("model", name, known)
    if not sums:
        raise UserError("every model here is white-box, so there is no average", allowed="at least one other model")
    settings = Settings(resamples, level, seed)
    rows_out: list[dict[str, Any]] = []
    for group, total in sums.items():
        for row in model_rows(total.mean(group), facts, settings):
            rows_out.append({**row, "models": total.count})
    return finish(rows_out, {"models": pl.Int64})


@dataclass
class _Sum:
    """The sum of several models' predictions, on the pictures that all of them classified.

    runs: the sums of their runs; parts: their least common multiples.
    """

    count: int = 0
    images: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    share: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    runs: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    parts: np.ndarray = field(default_factory=lambda: np.ones((0, 0), dtype=np.int64))

    def add(self, found: Outcomes) -> None:
        share, runs = found.share, found.runs
        if self.count and (found.images, found.edits) != (self.images, self.edits):
            images = tuple(sorted(set(self.images) & set(found.images)))
            edits = tuple(sorted(set(self.edits) & set(found.edits)))
            if not images or not edits:
                raise UserError(f"{found.model} shares no pictures with the other models of its group")
            share, runs = (_cut(one, found.images, found.edits, images, edits) for one in (share, runs))
            self.share, self.runs, self.parts = (
                _cut(one, self.images, self.edits, images, edits) for one in (self.share, self.runs, self.parts)
            )
            self.images, self.edits = images, edits
        elif not self.count:
            self.images, self.edits = found.images, found.edits
            self.share, self.runs, self.parts = np.zeros_like(share), np.zeros_like(runs), np.ones_like(runs)
        self.share = self.share + share
        self.runs = np.where((runs > 0) & ((self.runs > 0) | (self.count == 0)), self.runs + runs, 0)
        self.parts = np.lcm(self.parts, runs)
        self.count += 1

    def mean(self, name: str) -> Outcomes:
        # Shares of 2 and of 3 runs are sixths; the mean of both is twelfths.
        share, parts = self.share / self.count, self.parts * self.count
        return Outcomes(name, self.images, self.edits, share, self.runs, parts)


def _cut(
    matrix: np.ndarray,
    images: tuple[str, ...],
    edits: tuple[str, ...],
    kept_images: tuple[str, ...],
    kept_edits: tuple[str, ...],
) -> np.ndarray:
    rows = np.searchsorted(np.array(images), np.array(kept_images))
    return matrix[rows][:, [edits.index(edit) for edit in kept_edits]]


def _read(groups: str | Path | None) -> dict[str, list[str]]:
    """Return model -> the groups it belongs to, as `column: value`."""
    if groups is None:
        return {}
    table = read_model_groups(groups)
    columns = [name for name in table.columns if name != "model"]
    return {
        row["model"]: [f"{name}: {row[name]}" for name in columns if row[name]] for row in table.iter_rows(named=True)
    }
