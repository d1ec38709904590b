"""Predictions as data frames: one model after another, what models share, and their state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
from typing_extensions import TypeIs

from unswayed.errors import UserError, unknown
from unswayed.files.records import read_object
from unswayed.files.tables import column_names, read_checked
from unswayed.files.whole import Json
from unswayed.jobs.resources import prefetch
from unswayed.specs import is_same_model

from .model_cards import FAILED, KEYS, PARTS, PICTURE, STORED, prediction_files, read_cards


class ForeignFrame(Protocol):
    """A frame of another library, such as pandas, that follows the data frame interchange protocol."""

    def __dataframe__(self, *arguments: object, **options: object) -> object: ...


Predictions = str | Path | pl.DataFrame | pl.LazyFrame | ForeignFrame

COLUMNS = ("model", "source_id", "edit", "run", "correct")


def is_frame(predictions: Predictions) -> TypeIs[pl.DataFrame | pl.LazyFrame | ForeignFrame]:
    """Whether predictions are a frame, of polars or of another library, and not a folder or file."""
    return isinstance(predictions, pl.DataFrame | pl.LazyFrame) or hasattr(predictions, "__dataframe__")


def polars_frame(predictions: Any) -> pl.DataFrame | pl.LazyFrame:
    """A frame of any library as one of polars; polars's own as it is."""
    if isinstance(predictions, pl.DataFrame | pl.LazyFrame):
        return predictions
    if hasattr(predictions, "__arrow_c_stream__"):
        return pl.DataFrame(predictions)
    return pl.from_dataframe(predictions)


def each_model(
    predictions: Predictions, columns: Sequence[str] = COLUMNS, models: Sequence[str] | None = None
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield each model's name and its rows with these columns, in the order of names; `models` keeps only those.

    A folder is read one file at a time, so that only one model is in memory.
    """
    seen: dict[str, str] = {}
    for where, frame in _frames(predictions, columns):
        for name in _names(frame):
            if name in seen:
                raise UserError(
                    f"the model {name} is in {seen[name]} and in {where}", allowed="one file per model; delete one"
                )
            seen[name] = where
            if models is None or name in models:
                yield name, plain_text(frame.filter(pl.col("model") == name))
    for name in models or ():
        if name not in seen:
            raise missing_model(name, seen, predictions)


def in_memory(
    predictions: Predictions, columns: Sequence[str] = (), keep: Callable[[pl.DataFrame], pl.DataFrame] | None = None
) -> pl.DataFrame:
    """Return all rows with `COLUMNS` and the existing ones of `columns`; each file is read once for several analyses.

    keep: what is kept of each model's rows, all if None. Text is stored as categories: about 40 bytes per row.
    """
    wanted = dict.fromkeys([*COLUMNS, *columns_of(predictions, columns)])
    frames = (rows if keep is None else keep(rows) for _, rows in each_model(predictions, list(wanted)))
    return pl.concat([rows.cast({pl.String: pl.Categorical()}) for rows in frames])


def common_predictions(predictions: Predictions, models: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the rows of these models, or of all, whose pictures all of them have classified."""
    columns = dict.fromkeys((*COLUMNS, *columns_of(predictions)))
    frames = [rows for _, rows in each_model(predictions, list(columns), models)]
    return pl.concat(shared_pictures(frames), how="vertical_relaxed")


def shared_pictures(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Return the rows of each frame whose pictures all frames have: the same photograph, edit, run and file."""
    keys = [*KEYS, *([PICTURE] if all(PICTURE in frame.columns for frame in frames) else [])]
    kept = frames[0].select(keys)
    for frame in frames[1:]:
        kept = kept.join(frame.select(keys), on=keys, how="semi", nulls_equal=True)
    if kept.is_empty():
        raise UserError(
            "the predictions have no picture in common", allowed="predictions with at least some common pictures"
        )
    return [frame.join(kept, on=keys, how="semi", nulls_equal=True) for frame in frames]


def columns_of(predictions: Predictions, wanted: Sequence[str] | None = None) -> list[str]:
    """Return the names of the predictions' columns, or the `wanted` ones of them; for a folder, of its first file."""
    if is_frame(predictions):
        there = list(polars_frame(predictions).collect_schema())
    else:
        there = column_names(prediction_files(predictions)[0])
    return there if wanted is None else [name for name in wanted if name in there]


def model_names(predictions: Predictions) -> list[str]:
    """Return the models' names, sorted."""
    return sorted({name for _, frame in _frames(predictions, ["model"]) for name in _names(frame)})


def _frames(predictions: Predictions, columns: Sequence[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    if is_frame(predictions):
        predictions = polars_frame(predictions)
    if isinstance(predictions, pl.LazyFrame):
        _require(predictions.collect_schema().names(), columns, "the frame")
        predictions = predictions.select(columns).collect()
    if isinstance(predictions, pl.DataFrame):
        _require(predictions.columns, columns, "the frame")
        if predictions.is_empty():
            raise UserError("the frame of predictions is empty", run="unswayed evaluate BENCH -m MODEL -o PREDICTIONS")
        yield "the frame", predictions.select(columns)
        return
    files = prediction_files(predictions)
    frames = ((path.name, _read(path, columns)) for path in files)
    yield from prefetch(frames, 1) if len(files) > 1 else frames  # the next is read while this one is processed


def _read(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    run = "unswayed evaluate BENCH -m MODEL -o PREDICTIONS"
    beside = ["label", "predicted"] * ("correct" in columns) + ["task"] * ("probability" in columns)
    wanted = list(dict.fromkeys([*columns, *beside]))
    frame = pl.DataFrame(read_checked(path, STORED, select=wanted, required=columns, run=run))
    if frame.is_empty():
        raise UserError(f"{path} contains no rows", run="the same `unswayed evaluate` command again")
    if {"correct", "label", "predicted"} <= set(frame.columns):
        wrong = frame.filter((pl.col("predicted") == pl.col("label")) != pl.col("correct"))
        for row in wrong.head(1).iter_rows(named=True):
            raise UserError(
                f"{path}: {wrong.height:,} rows contradict themselves, first one with the label {row['label']}, the "
                f"predicted class {row['predicted']} and correct = {row['correct']}",
                allowed="`correct` where the predicted class is the label",
                run="the same `unswayed evaluate` command again, into a new folder",
            )
    if "probability" in columns:
        # Models of other tasks may find nothing, and a server may give no probabilities.
        task = pl.col("task").cast(pl.String) if "task" in frame.columns else pl.lit(None, pl.String)
        classified = task.fill_null("classify") == "classify"
        if bare := frame.filter(pl.col("probability").is_null() & classified).height:
            raise UserError(
                f"{path}: {bare:,} rows of a classifier have no probability",
                allowed="a probability in every row",
                run=run,
            )
    return frame.select(columns)


def plain_text(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with dictionary columns as plain text, so that it can be joined with any other."""
    return frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))


def _names(frame: pl.DataFrame) -> list[str]:
    """Return the names of the frame's models, sorted."""
    names = frame["model"].unique().cast(pl.String).to_list()
    if None in names:
        raise UserError(f"{frame['model'].null_count()} rows have no model", allowed="a model in every row")
    return sorted(names)


def _require(there: Sequence[str], columns: Sequence[str], where: str) -> None:
    missing = [name for name in columns if name not in there]
    if missing:
        raise UserError(
            f"{where} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; it has {', '.join(there)}",
            run="unswayed evaluate BENCH -m MODEL -o PREDICTIONS",
        )


def missing_model(name: str, names: Iterable[str], predictions: Predictions) -> UserError:
    """Return the error for a model that is not among these names, with the name it is stored under if there is one."""
    for known, card in read_cards(predictions).items():
        if is_same_model(name, card.get("spec") or known):
            return UserError(
                f"the predictions of {name} are stored under the name '{known}'", run=f"the same command with '{known}'"
            )
    return unknown("model", name, names, run=None if is_frame(predictions) else f"ls {predictions}")


@dataclass(frozen=True)
class Overlap:
    """What several models have in common: photographs and pictures, and how many each of them has.

    each: name -> (photographs, pictures).
    """

    photographs: int
    pictures: int
    each: dict[str, tuple[int, int]]

    @property
    def complete(self) -> bool:
        """Whether every picture of every model is common."""
        return all(pictures == self.pictures for _, pictures in self.each.values())

    def __str__(self) -> str:
        parts = [
            f"{self.photographs:,} of {photographs:,} photographs and {self.pictures:,} of {pictures:,} pictures "
            f"of {name}"
            for name, (photographs, pictures) in self.each.items()
        ]
        return f"--common compares {', and '.join(parts)}"

    @property
    def brief(self) -> str:
        """The photographs alone: `1 of 16 and 1 of 20 photographs are common`."""
        parts = [f"{self.photographs:,} of {photographs:,}" for photographs, _ in self.each.values()]
        return f"{' and '.join(parts)} photographs are common"

    def to_json(self) -> Json:
        """Return the counts for a JSON file."""
        each = {
            name: {"photographs": photographs, "pictures": pictures}
            for name, (photographs, pictures) in self.each.items()
        }
        return {"photographs": self.photographs, "pictures": self.pictures, "of": each}


def overlap_of(sides: Sequence[tuple[str, Predictions, str]]) -> Overlap:
    """Return what the models have in common. sides: what to call each, its predictions and its name there."""
    frames = []
    for _, predictions, model in sides:
        columns = ["model", *KEYS, *columns_of(predictions, [PICTURE])]
        frames += [rows for _, rows in each_model(predictions, columns, models=[model])]
    common = shared_pictures(frames)[0]
    counts, *each = ((rows["source_id"].n_unique(), rows.height) for rows in (common, *frames))
    return Overlap(*counts, {name: own for (name, _, _), own in zip(sides, each, strict=True)})


@dataclass(frozen=True)
class ModelStanding:
    """One model, how many predictions of it are stored, and why it failed."""

    model: str
    state: Literal["finished", "unfinished", "failed"]
    predictions: int
    reason: str | None = None


def model_standings(folder: str | Path) -> list[ModelStanding]:
    """Return the models of a folder of predictions; changes nothing."""
    folder = Path(folder)
    standings = []
    for path in sorted(folder.glob("*.parquet")):
        card = path.with_suffix(".json")
        with contextlib.suppress(UserError):
            if card.is_file():
                model = str(read_object(card, {"model": str})["model"])
                standings.append(ModelStanding(model, "finished", _rows(path)))
    for path in sorted(folder.glob(f"*{FAILED}")):
        with contextlib.suppress(UserError):
            record = read_object(path, {"model": str, "error": str})
            standings.append(ModelStanding(record["model"], "failed", 0, record["error"]))
    for parts in sorted((folder / PARTS).glob("*-*-*")):
        if parts.is_dir():
            rows = sum(_rows(path) for path in parts.glob("*-*.parquet"))
            standings.append(ModelStanding(parts.name.rsplit("-", 2)[0], "unfinished", rows))
    return standings


def _rows(path: Path) -> int:
    try:
        return int(parquet.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):  # damaged, or just removed
        return 0


@dataclass(eq=False)
class PicturePair:
    """A photograph and its edit, (H, W, 3) uint8 each, that one model classified; the label is the true one."""

    model: str
    source_id: str
    edit: str
    label: int
    before: np.ndarray
    after: np.ndarray


HeatMaps = tuple[np.ndarray, np.ndarray]  # of both pictures of a pair, (H, W) each
