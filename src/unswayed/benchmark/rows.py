"""What a benchmark's folder holds: its files by name, its card, a row per picture, the manifest, and reviews."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal, get_args

from unswayed.choices import check_choice
from unswayed.errors import CannotWrite, UserError
from unswayed.files.locks import alone
from unswayed.files.records import checked, checked_rows, read_object, refuse_newer, require_fields
from unswayed.files.tables import columns_of, read_checked
from unswayed.files.whole import Json, flat_record, parquet_columns, parse_json, write_bytes, write_records

if TYPE_CHECKING:
    import pyarrow


CARD = "benchmark.json"
FORMAT = 1  # of a benchmark on disk; raised when an older program would misread it
MANIFEST = "manifest.parquet"
ROWS = "rows"
IMAGES = "images"
MASKS = "masks"
CACHE = ".cache"
LOCK = ".lock"
CARD_LOCK = ".card-lock"
WORST_MASKS = "masks-worst.jpg"

# The unchanged source file, which no drop is computed from; `original` is its framed picture.
SOURCE_EDIT = "source"
ORIGINAL_EDIT = "original"
VALID = 0.5  # the least score of a valid picture: a fault that just reaches its limit


def row_path(source_id: str) -> str:
    return f"{ROWS}/{source_id}.json"


def picture_path(edit: str, source_id: str, run: int = 0, suffix: str = ".png", folder: str = IMAGES) -> str:
    """
    >>> picture_path("size-0.05", "dog"), picture_path("position", "dog", run=1, folder="masks")
    ('images/size-0.05/dog.png', 'masks/position/dog.run1.png')
    """
    return f"{folder}/{edit}/{source_id}{f'.run{run}' if run else ''}{suffix}"


OK, SKIPPED, FAILED = "ok", "skipped", "failed"
# The columns of a row's files and of their hashes.
FILES = {"image": ("path", "sha256"), "mask": ("mask_path", "mask_sha256")}
Record = Json  # a row of the manifest as pyarrow reads it


@dataclass(frozen=True)
class Row:
    """One row of the manifest, about one picture.

    parameters: the edit's, by name; requested: the requested pixel rate, or None; pixel_rate: the achieved one,
    measured on the written mask; values: requested and random values (position, degrees, the scene that a background
    came from); measures: the renderer's measurements of the picture; level, attribute, control: the edit's level in a
    sweep, what it changes, and the edit that its drop is also compared with; guide: the classifier that an
    adversarial background attacks; notes: how the scene was made (a mask made by GrabCut, padding); validity: the
    score in [0, 1] of `validity.judge`, None if it was not measured, with its reasons and faults; objects: the other
    objects in the picture, as `sources.coco` writes them.
    """

    source_id: str
    edit: str
    run: int = 0
    status: str = OK
    reason: str | None = None
    parameters: Json = field(default_factory=dict)
    seed: int = 0
    label: int | None = None
    path: str | None = None
    sha256: str | None = None
    mask_path: str | None = None
    mask_sha256: str | None = None
    pixel_rate: float | None = None
    requested: float | None = None
    border_contact: float | None = None
    attribute: str | None = None
    level: str | None = None
    control: str | None = None
    guide: str | None = None
    values: Json = field(default_factory=dict)
    measures: Json = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    validity: float | None = None
    validity_reasons: list[str] = field(default_factory=list)
    validity_measures: dict[str, float] = field(default_factory=dict)
    objects: str | None = None

    @property
    def sample_id(self) -> str:
        return f"{self.source_id}/{self.edit}/{self.run}"

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells it from the other rows of its source, of whatever build."""
        return self.edit, self.run, self.seed


def template_row(record: Record) -> Row:
    """Return what the rows of an edit share; record: the edit as a card lists it."""
    level = record["level"]
    return Row(
        "",
        record["name"],
        parameters=record["parameters"],
        attribute=record["attribute"],
        level=f"{level:g}" if isinstance(level, float) else level,
        control=record["control"],
    )


def write_rows(root: Path, source_id: str, rows: Sequence[Row]) -> None:
    """Write the source's row file, whose existence means that every picture named in it exists."""
    # By name: `asdict` would copy each value, and what msgspec reads has no attributes of its own for defaults.
    records = [{column.name: getattr(row, column.name) for column in fields(Row)} for row in rows]
    text = _json({"source_id": source_id, "rows": records})
    write_bytes(root / row_path(source_id), f"{text}\n".encode())


def _json(value: object, margin: str = "\n") -> str:
    """The text of `write_json`, in a third of its time: Python's own encoder is slow where it indents."""
    if isinstance(value, dict) and value:
        lines = (f"{margin} {_scalar(name)}: {_json(value[name], margin + ' ')}" for name in sorted(value))
        return f"{{{','.join(lines)}{margin}}}"
    if isinstance(value, list) and value:
        return f"[{','.join(f'{margin} {_json(item, margin + chr(32))}' for item in value)}{margin}]"
    return _scalar(value)


_scalar = json.JSONEncoder(ensure_ascii=False).encode


def read_rows(root: Path, source_id: str) -> list[Row]:
    path, run = root / row_path(source_id), "delete it and build again"
    return checked_rows(Row, read_object(path, {"rows": list}, run)["rows"], str(path), run)


def kept_rows(root: Path, source_id: str) -> dict[tuple[str, int, int], Row]:
    """The rows of an earlier run whose pictures are there, by their keys: they stay as they are."""
    if not (root / row_path(source_id)).is_file():
        return {}
    return {row.key: row for row in read_rows(root, source_id) if row.status != FAILED}


def finished_sources(root: Path) -> set[str]:
    """Return the ids of the sources that have a row file."""
    return {path.stem for path in (root / ROWS).glob("*.json")}


def counts(statuses: Iterable[str]) -> dict[str, int]:
    """Return how often each status occurs: {"ok": …, "skipped": …, "failed": …}."""
    numbers = Counter(statuses)
    return {status: numbers[status] for status in (OK, SKIPPED, FAILED)}


def write_manifest(root: Path, rows: Iterable[Row]) -> None:
    """Write `manifest.parquet` in the order of `rows`; equal rows give equal bytes."""
    write_records(root / MANIFEST, schema(), [_values(row) for row in rows])


# Mappings and lists are JSON text, so that every Parquet reader can read them.
_COLUMNS = (
    "sample_id source_id edit run:int64 parameters seed:uint64 label:int64 path sha256 mask_path mask_sha256 "
    "pixel_rate:float64 requested:float64 border_contact:float64 status reason attribute level control guide "
    "values measures notes validity:float64 validity_reasons validity_measures objects"
)


@functools.cache
def schema() -> pyarrow.Schema:
    """Return the manifest's columns."""
    return parquet_columns(_COLUMNS)


def read_manifest(
    root: Path, needed: Sequence[str] = ("sample_id", "status", "path"), outside: bool = False
) -> pyarrow.Table:
    """The manifest of the benchmark in `root`, checked.

    needed: columns that it must have besides `_NEEDED`; outside: also one with paths that lead out of the folder.
    """
    if not (root / MANIFEST).is_file():
        raise UserError(
            f"{root} has no {MANIFEST}: its build did not finish", run="the same `unswayed build` command again"
        )
    run = "the same `unswayed build` command again, which rewrites it"
    columns = columns_of(schema(), filled=(*_NEEDED, "status"), ranges={"run": (0, 2**31)})
    table = read_checked(root / MANIFEST, columns, required=[*_NEEDED, *needed], run=run)
    for edit in table["edit"].unique().to_pylist():
        if edit in ("", ".") or leads_out(edit) or {"/", "\\"} & set(edit):
            raise UserError(
                f"{root / MANIFEST}, column 'edit' has {edit[:200]!r}, which is no name of a folder", run=run
            )
    for name in () if outside else ("path", "mask_path"):
        for number, path in enumerate(table[name].to_pylist() if name in table.column_names else (), 1):
            if path and leads_out(path):
                raise UserError(
                    f"{root / MANIFEST}, column '{name}', row {number} is {path[:200]!r}, outside the benchmark",
                    run=f"unswayed verify {root}",
                )
    return table


def leads_out(path: str) -> bool:
    """Whether a path of the manifest is absolute or leads out of the benchmark's folder."""
    parts = PurePosixPath(path)
    return parts.is_absolute() or ".." in parts.parts or "\0" in path


# Every manifest has these.
_NEEDED = ("source_id", "edit", "run")


def record(row: Row) -> Record:
    """Return a row as a record of the manifest, in the order of its columns."""
    return flat_record(_values(row))


def _values(row: Row) -> Record:
    return {name: getattr(row, name) for name in schema().names}


def row_of(record: Record) -> Row:
    """Return the row of a record of the manifest; the inverse of `record`."""
    where = f"the manifest's row {record.get('sample_id')}"
    values = {column.name: record[column.name] for column in fields(Row) if record.get(column.name) is not None}
    for name in _JSON & values.keys():
        values[name] = parse_json(values[name], f"{where}, column '{name}'")
    return checked(Row, values, where)


_JSON = frozenset(("parameters", "values", "measures", "notes", "validity_reasons", "validity_measures"))


REVIEWS = "reviews.parquet"
REVIEWS_LOCK = ".reviews.lock"
REVIEWS_WAIT = 10.0  # seconds for another rater's answer to be written
Answer = Literal["valid", "unrecognizable", "artifact"]


@dataclass(frozen=True)
class Review:
    """One answer: the picture is valid, its object is unrecognizable, or it is spoiled by an artifact.

    blind: whether the rater saw neither the edit's name nor the class; seconds: from showing it to the answer.
    """

    sample_id: str
    source_id: str
    edit: str
    run: int
    rater: str
    answer: Answer
    blind: bool = False
    seconds: float | None = None

    def __post_init__(self) -> None:
        check_choice("answer", self.answer, Answer)


ANSWERS: tuple[Answer, ...] = get_args(Answer)


def read_reviews(root: Path) -> list[Review]:
    """All answers there are, in the order in which they were given; none where nobody has rated yet."""
    path = root / REVIEWS
    if not path.is_file():
        return []
    return checked_rows(Review, read_checked(path, {}).to_pylist(), str(path))


def add_review(root: Path, review: Review) -> None:
    """The answer in the file, in the place of an earlier one by the same rater on the same picture."""
    if not (root / CARD).is_file():
        raise CannotWrite(f"{root} is no benchmark any more: it has no {CARD}", run="unswayed review BENCHMARK")
    busy = f"{root / REVIEWS} is held by another process"
    with alone(root / REVIEWS_LOCK, busy, run="the answer once more", wait=REVIEWS_WAIT):
        key = (review.sample_id, review.rater)
        others = [other for other in read_reviews(root) if (other.sample_id, other.rater) != key]
        columns = parquet_columns("sample_id source_id edit run:int64 rater answer blind:bool seconds:float64")
        write_records(root / REVIEWS, columns, map(asdict, [*others, review]))


Card = Json
_KINDS = {
    "labels": Json,
    "source": Json | None,
    "recipe": Json | str | None,
    "runs": int | None,
    "grown": list[Json] | None,
}


def read_card(root: Path) -> Card:
    """Return the card of the benchmark in `root`; raises UserError if there is none."""
    if not (root / CARD).is_file():
        state = "does not exist" if not root.exists() else f"contains no {CARD}"
        raise UserError(f"{root} is not a benchmark: it {state}", run="unswayed build SOURCE -o BENCH")
    card = read_object(root / CARD, _KINDS, run="unswayed build SOURCE -o BENCH")
    refuse_newer(card, FORMAT, root / CARD)
    if isinstance(card.get("recipe"), dict):
        require_fields(card["recipe"], {"edits": list | None}, f"{root / CARD}, recipe")
        for number, item in enumerate(card["recipe"].get("edits") or (), 1):
            require_fields(
                item, {"name": str, "parameters": Json | None}, f"{root / CARD}, edit {number} of the recipe"
            )
    return card
