"""One model's predictions as a matrix of photographs by edits, with the share of correct runs in each cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from unswayed.errors import UserError
from unswayed.evaluation.predictions import Predictions, each_model


@dataclass(frozen=True, eq=False)
class Outcomes:
    """One model's predictions.

    images: source ids, sorted; edits: names; share: (images, edits) float64 in [0, 1], the share of correct runs, NaN
    if there is none; runs: (images, edits) int64, the number of runs; parts: (images, edits) int64, shares are
    multiples of its inverse; None: the runs.
    """

    model: str
    images: tuple[str, ...]
    edits: tuple[str, ...]
    share: np.ndarray
    runs: np.ndarray
    parts: np.ndarray | None = None

    def of(self, edit: str) -> np.ndarray:
        """Return (images,) the share of correct runs, all NaN for an edit without predictions."""
        return self.share[:, self.edits.index(edit)] if edit in self.edits else np.full(len(self.images), np.nan)

    def runs_of(self, edit: str) -> np.ndarray:
        return self.runs[:, self.edits.index(edit)] if edit in self.edits else np.zeros(len(self.images), dtype=int)

    def parts_of(self, edit: str) -> np.ndarray:
        return self.runs_of(edit) if self.parts is None else self.parts[:, self.edits.index(edit)]


def each_outcomes(predictions: Predictions, models: Sequence[str] | None = None) -> Iterator[Outcomes]:
    """Yield the outcomes of each model, or of `models`; those of the same photographs share one list of ids."""
    images: tuple[str, ...] | None = None
    for name, rows in each_model(predictions, models=models):
        found = outcomes(name, rows, images)
        images = found.images
        yield found


def outcomes(model: str, rows: pl.DataFrame, images: tuple[str, ...] | None = None) -> Outcomes:
    """Return the model's rows (source_id, edit, run, correct) as Outcomes; the rows' order does not matter.

    images: ids to use if they cover the rows (so that models share one list), else the rows' own. Refused: the same
    picture twice, and rows without a prediction.
    """
    _refuse_gaps(model, rows)
    edits = tuple(sorted(rows["edit"].unique().to_list()))
    codes = None
    if images is not None:
        codes = rows["source_id"].cast(pl.Enum(images), strict=False).to_physical()
    if codes is None or codes.null_count():
        images = tuple(sorted(rows["source_id"].unique().to_list()))
        codes = rows["source_id"].cast(pl.Enum(images)).to_physical()
    assert images is not None
    edit_codes = rows["edit"].cast(pl.Enum(edits)).to_physical()
    cells = codes.to_numpy().astype(np.int64) * len(edits) + edit_codes.to_numpy()
    size = len(images) * len(edits)
    runs = np.bincount(cells, minlength=size)
    if runs.max() > 1:
        _refuse_duplicates(model, rows, cells)
    right = np.bincount(cells, weights=rows["correct"].to_numpy(), minlength=size)
    share = np.divide(right, runs, out=np.full(size, np.nan), where=runs > 0)
    shape = (len(images), len(edits))
    return Outcomes(model, images, edits, share.reshape(shape), runs.reshape(shape))


def _refuse_gaps(model: str, rows: pl.DataFrame) -> None:
    unlabeled = rows.filter(pl.col("correct").is_null())
    if unlabeled.height:
        first = unlabeled["source_id"][0]
        raise UserError(
            f"{unlabeled.height} pictures of {model} have no label, such as those of {first}, so their predictions are "
            "neither right nor wrong",
            allowed="photographs with labels: class folders, or a labels.csv with a label in every row",
            run="unswayed build … -o ANOTHER, after labeling or removing these photographs",
        )
    for column in ("source_id", "edit"):
        missing = rows[column].null_count()
        if missing:
            raise UserError(
                f"{missing} rows of {model} have no {column}", allowed="complete rows", run="unswayed evaluate … again"
            )


def _refuse_duplicates(model: str, rows: pl.DataFrame, cells: np.ndarray) -> None:
    run = rows["run"].fill_null(0).to_numpy().astype(np.int64)
    _, first, counts = np.unique(cells * (run.max() + 1) + run, return_index=True, return_counts=True)
    if counts.max() > 1:
        row = rows.row(int(first[counts.argmax()]), named=True)
        raise UserError(
            f"{int((counts > 1).sum())} pictures of {model} occur more than once, "
            f"such as {row['source_id']}, edit {row['edit']}, run {row['run']}",
            allowed="one row per picture",
            run="unswayed evaluate … into a new folder",
        )
