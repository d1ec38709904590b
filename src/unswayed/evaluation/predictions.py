"""Predictions as data frames: one model after another, what models share, their state, and their benchmark."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
from typing_extensions import TypeIs

from unswayed.benchmark.rows import CARD, MANIFEST, read_card, read_manifest
from unswayed.errors import UserError, unknown
from unswayed.files.records import read_object
from unswayed.files.storage import address, is_address, local_copy, place_of, reachable_copy
from unswayed.files.tables import column_names, read_checked
from unswayed.files.whole import Json, sha256
from unswayed.jobs.resources import prefetch
from unswayed.specs import is_same_model

from .model_cards import (
    FAILED,
    KEYS,
    PARTS,
    PICTURE,
    STORED,
    identity_in,
    identity_of,
    prediction_files,
    read_cards,
    rows_of,
    stored_differences,
)


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


def polars_table(table: pa.Table) -> pl.DataFrame:
    """A checked table of pyarrow as one of polars."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


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
    there = columns_of(predictions)
    wanted = dict.fromkeys([*COLUMNS, *(name for name in columns if name in there)])
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


def columns_of(predictions: Predictions) -> list[str]:
    """Return the names of the predictions' columns; for a folder, those of its first file."""
    if is_frame(predictions):
        return list(polars_frame(predictions).collect_schema())
    return column_names(prediction_files(predictions)[0])


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
    there = column_names(path)
    beside = [name for name in ("label", "predicted") if name in there] if "correct" in columns else []
    task = ["task"] if "probability" in columns and "task" in there else []
    wanted = list(dict.fromkeys([*columns, *beside, *task]))
    frame = polars_table(read_checked(path, STORED, select=wanted, required=columns, run=run))
    if frame.is_empty():
        raise UserError(f"{path} contains no rows", run="the same `unswayed evaluate` command again")
    if len(beside) == 2:
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
        classified = pl.col("task").cast(pl.String).fill_null("classify") == "classify" if task else pl.lit(True)
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
        columns = ["model", *KEYS, *({PICTURE} & set(columns_of(predictions)))]
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


@dataclass(frozen=True, eq=False)
class FoundBenchmark:
    """The folder, manifest and card of a benchmark; root and manifest None: it is not available, `absent` says why."""

    root: Path | None = None
    manifest: pl.DataFrame | None = None
    card: Json = field(default_factory=dict)
    absent: tuple[str, ...] = ()


def find_benchmark(
    predictions: Predictions,
    cards: Mapping[str, Json],
    given: str | Path | None = None,
    models: Sequence[str] | None = None,
) -> FoundBenchmark:
    """Return the benchmark on which these models, or all, were evaluated; a `given` one that is another is refused.

    A copy is the same benchmark, and so is one that has grown since. Cards of other programs state no identity, so
    their benchmark is used unchecked.
    """
    stated = [card for name, card in cards.items() if models is None or name in models]
    if given is not None:
        root = local_copy(given)
        card = read_card(root)
        manifest = polars_table(read_manifest(root, (), outside=True))
        lines = _differences(predictions, stated, root, card)
        if lines:
            raise UserError(
                f"{given} is not the benchmark that was evaluated; what differs:\n  " + "\n  ".join(lines),
                allowed="the benchmark of these predictions, wherever it is now, or a copy of it",
                run=f"unswayed evaluate {given} -m MODEL -o ANOTHER, for predictions on this benchmark",
            )
        return FoundBenchmark(root, manifest, card)
    absent = []
    described = [card["benchmark"] for card in cards.values() if isinstance(card.get("benchmark"), dict)]
    for path, stated_there in {about["path"]: about for about in described if about.get("path")}.items():
        try:
            foreign = _is_foreign(path, predictions)
            root = place_of(path) if foreign else reachable_copy(path)
        except UserError as error:
            absent.append(f"the card's path of the benchmark is {path[:200]!r}, which cannot be used ({error.given})")
            continue
        # A folder of `images:` has no manifest, and its cards state no hash of a benchmark's card.
        finished = os.path.isfile(root / MANIFEST)
        if not os.path.exists(root) or ("card_sha256" in stated_there and not finished):
            where = f"at {path}, which is not fetched because only a file names it"
            absent.append(f"the benchmark is {where if foreign else f'no longer at {path}'}")
        elif finished:
            card = read_card(root) if (root / CARD).is_file() else {}
            lines = _differences(predictions, stated, root, card)
            if not lines:
                return FoundBenchmark(root, polars_table(read_manifest(root, (), outside=True)), card)
            absent.append(f"the benchmark in {path} is not the one that was evaluated ({'; '.join(lines)})")
    unknown = "so its controls and levels are unknown and its pictures are not shown: give its place by --benchmark"
    return FoundBenchmark(absent=tuple(f"{reason}, {unknown}" for reason in absent))


def _is_foreign(path: str, predictions: Predictions) -> bool:
    """Whether a card names an address in a storage other than that of the predictions, which the user gave."""
    if not is_address(path):
        return False
    bucket = "/".join(address(place_of(path)).split("/")[:3])
    return is_frame(predictions) or not address(place_of(predictions)).startswith(f"{bucket}/")


def _differences(predictions: Predictions, stated: Sequence[Json], root: Path, card: Json) -> list[str]:
    """Return what differs between a benchmark and the one of the cards; nothing if one of them fits it."""
    identities = {stored["sha256"]: (stored, model) for model in stated if (stored := identity_in(model)) is not None}
    if not identities:
        return []
    if (root / CARD).is_file():
        bytes_now = sha256(root / MANIFEST), sha256(root / CARD)
        for _, model in identities.values():
            evaluated = model["benchmark"]
            if (str(evaluated.get("sha256")).partition(":")[0], evaluated.get("card_sha256")) == bytes_now:
                return []
    rows = rows_of(root, read_manifest(root, outside=True).to_pylist())
    now = identity_of(card, card.get("labels"), rows)
    assert not is_frame(predictions)  # only files have cards
    files = {path.stem: path for path in prediction_files(predictions)}
    words = ("in the predictions", f"in {root}")
    lines = [
        stored_differences(files[model["file"]], identity, now, rows, words, whole=True)
        for identity, model in identities.values()
    ]
    return min(lines, key=len)
