"""A probe over many pictures that can be stopped and resumed: one Parquet file and one JSON card per model.

FOLDER/<kind>/<model>.parquet       the rows, complete or absent
FOLDER/<kind>/<model>.json          the card: settings, and which pictures could not be used
FOLDER/<kind>/parts/<model>/…       rows of an unfinished run
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from unfazed.engine.threads import FLOATS
from unfazed.errors import BadPicture, UserError
from unfazed.files import canonical, remove_folder, write_json, write_parquet
from unfazed.records import read_object
from unfazed.tables import read_checked, stored_text
from unfazed.versions import versions

if TYPE_CHECKING:
    import polars as pl

Report = Callable[[str, int, int], None]
_PART_SECONDS = 20.0
KEY = b"unfazed.key"
_AHEAD = 4


@dataclass(frozen=True)
class Outcome:
    """The result of probing one model: its file, the pictures measured now and before, and the failures."""

    path: Path
    measured: int
    resumed: int
    failures: dict[str, str]

    def record(self, what: str, failures: dict[str, str], notes: list[str]) -> None:
        """Add what happened to the failures and notes of a study; what: the model or network."""
        failures |= {f"{what}, {one}": reason for one, reason in self.failures.items()}
        notes.append(f"{self.path}: {self.measured} measured now, {self.resumed} before")


def run_probe(
    path: Path,
    settings: dict[str, Any],
    ids: Sequence[str],
    load: Callable[[str], Any],
    measure: Callable[[str, Any], list[dict[str, Any]]],
    schema: pa.Schema,
    progress: Callable[[int], None] | None = None,
    id_column: str = "source_id",
) -> Outcome:
    """The rows of every id, in the order of `ids`, in `path`; rows of an earlier run with equal settings are kept,
    also those of pictures that are not among `ids`.

    load: decodes one picture, in a prefetching thread; measure: its rows, each with its id in `id_column`.
    A picture that `load` cannot read, or that `measure` refuses as a BadPicture, becomes a failure with its reason
    and is tried again by the next run.
    """
    key = hashlib.sha256(canonical(settings).encode()).hexdigest()[:16]
    parts = path.parent / "parts" / path.stem
    kept = _kept(path, parts, key, schema, id_column)
    done = set(kept[id_column].to_pylist())
    todo = [one for one in ids if one not in done]
    resumed = len(ids) - len(todo)
    failures: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    tables, since = [kept], time.monotonic()
    if progress and resumed:
        progress(resumed)
    for one, loaded in prefetched(load, todo):
        try:
            if isinstance(loaded, Exception):
                raise loaded
            rows += measure(one, loaded)
        except BadPicture as problem:
            failures[one] = str(problem)
        except Exception as problem:
            if not isinstance(loaded, Exception):
                raise
            failures[one] = f"{type(problem).__name__}: {problem}"
        if progress:
            progress(1)
        if rows and time.monotonic() - since > _PART_SECONDS:
            # A new name for every part: process ids repeat, in containers always.
            tables.append(_write(parts / f"{key}-{uuid.uuid4().hex}.parquet", rows, schema))
            rows, since = [], time.monotonic()
    tables.append(pa.Table.from_pylist(rows, schema))
    table = _in_order(pa.concat_tables(tables), ids, id_column)
    if not len(table):
        reasons = "; ".join(dict.fromkeys(failures.values())) or "the source is empty"
        raise UserError(f"no picture could be measured: {reasons[:500]}")
    write_parquet(path, table.replace_schema_metadata({KEY: key}))
    pictures = len(set(table[id_column].to_pylist()))
    card = {"settings": settings, "key": key, "pictures": pictures, "failures": failures, "floats": FLOATS}
    write_json(path.with_suffix(".json"), {**card, "versions": versions()})
    remove_folder(parts)
    with contextlib.suppress(OSError):
        parts.parent.rmdir()
    return Outcome(path, len(todo) - len(failures), resumed, failures)


def counter(report: Report | None, what: str, total: int | None) -> Callable[[int], None] | None:
    """A function that adds to a count and reports it as (what, done, total); None without a report."""
    if report is None:
        return None
    done = 0

    def show(more: int) -> None:
        nonlocal done
        done += more
        report(what, done, total or 0)

    return show


def read_probe(folder: str | Path, kind: str, slugs: Sequence[str] | None = None) -> pl.DataFrame:
    """The rows of the models called `slugs` (all if None) in FOLDER/<kind>, concatenated."""
    import polars as pl

    names = sorted(file.stem for file in (Path(folder) / kind).glob("*.parquet"))
    chosen = names if slugs is None else [slug for slug in slugs if slug in names]
    if not chosen:
        raise UserError(
            f"{folder} holds no results of the kind '{kind}'", run="unfazed sensitivity SOURCE -m MODEL -o DIR"
        )
    tables = [pl.DataFrame(read_checked(Path(folder) / kind / f"{slug}.parquet", {})) for slug in chosen]
    try:
        # Results of an older version lack the columns that came later.
        return pl.concat(tables, how="diagonal")
    except pl.exceptions.PolarsError as error:
        raise UserError(f"the results in {folder}/{kind} do not have the same columns: {error}") from None


def prefetched(load: Callable[[str], Any], ids: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Every id with the result of `load` or its exception; a few pictures are loaded in advance."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        waiting: list[tuple[str, Future[Any]]] = []
        for one in ids:
            waiting.append((one, pool.submit(load, one)))
            if len(waiting) > _AHEAD:
                yield _result(*waiting.pop(0))
        for pair in waiting:
            yield _result(*pair)


def _result(one: str, future: Future[Any]) -> tuple[str, Any]:
    error = future.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return one, error if error is not None else future.result()


def _kept(path: Path, parts: Path, key: str, schema: pa.Schema, id_column: str) -> pa.Table:
    """Rows of earlier runs with equal settings; rows with other settings or other columns are ignored."""
    files = sorted(parts.glob(f"{key}-*.parquet"))
    if path.is_file() and _key_of(path) == key:
        files.append(path)
    tables, seen = [schema.empty_table()], set[str]()
    for file in files:
        try:
            table = read_checked(file, {})
        except UserError:  # a damaged file is measured again
            continue
        if not table.schema.equals(schema):
            continue
        names = set(table[id_column].to_pylist())
        if not names & seen:
            tables.append(table)
            seen |= names
    return pa.concat_tables(tables)


def _write(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    table = pa.Table.from_pylist(rows, schema)
    write_parquet(path, table)
    return table


def _key_of(path: Path) -> str | None:
    """The key of the settings in the file itself, since a stop can leave it beside an earlier card."""
    try:
        found = stored_text(path, KEY)
        card = path.with_suffix(".json")
        return read_object(card).get("key") if found is None and card.is_file() else found
    except UserError:  # a damaged file is measured again
        return None


def _in_order(table: pa.Table, ids: Sequence[str], id_column: str) -> pa.Table:
    """The rows of `ids` in their order, then those of other pictures, which an earlier run with more of them wrote."""
    position = {one: index for index, one in enumerate(ids)}
    order = [(position.get(one, len(position)), row) for row, one in enumerate(table[id_column].to_pylist())]
    return table.take(pa.array([row for _, row in sorted(order)], pa.int64()))
