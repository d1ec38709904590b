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
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from unswayed.errors import BadPicture, UserError
from unswayed.files.records import read_object, versions
from unswayed.files.tables import read_checked, stored_text
from unswayed.files.whole import canonical, remove_folder, write_json, write_parquet
from unswayed.jobs.resources import FLOATS, in_lanes, one_thread

if TYPE_CHECKING:
    import polars as pl

Careful = Callable[[str, str], None]
"""Is told, with a kind (`picture` or `model`) and a name, what is used next."""
_PART_SECONDS = 20.0
KEY = b"unswayed.key"
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


@dataclass(frozen=True, eq=False)
class Probe:
    """What is measured: the rows of every picture of `ids`, for the file `path`.

    settings: everything that the rows depend on. load: decodes one picture; measure: its rows, each with its id in
    `id_column`. A picture that `load` cannot read, or that `measure` refuses as a BadPicture, becomes a failure with
    its reason and is tried again by the next run.
    """

    path: Path
    settings: dict[str, Any]
    ids: Sequence[str]
    load: Callable[[str], Any]
    measure: Callable[[str, Any], list[dict[str, Any]]]
    schema: pa.Schema
    id_column: str = "source_id"

    @property
    def key(self) -> str:
        return hashlib.sha256(canonical(self.settings).encode()).hexdigest()[:16]

    @property
    def parts(self) -> Path:
        """The folder with the rows of an unfinished run."""
        return self.path.parent / "parts" / self.path.stem

    def sendable(self) -> Probe:
        """The same without its functions, for another process that merges the rows."""
        return replace(self, load=str, measure=dict)  # type: ignore[arg-type]


def run_probe(probe: Probe, progress: Callable[[int], None] | None = None) -> Outcome:
    """The rows of every picture in the probe's file; those of an earlier run with equal settings are kept, also those
    of pictures that are not among its ids."""
    resumed, failures = measure_ids([probe], probe.ids, progress)
    return merge(probe, resumed, failures)


def measure_ids(
    probes: Sequence[Probe],
    ids: Sequence[str],
    progress: Callable[[int], None] | None = None,
    skipped: Mapping[str, str] | None = None,
    careful: Careful | None = None,
) -> tuple[int, dict[str, str]]:
    """Measure the ids that have no rows yet, into part files; returns how many had them, and the failures.

    probes: equal ones, each with its own copy of the model, for one thread each. skipped: ids that are not measured,
    with the reason; careful: called with each picture and with the model before they are used.
    """
    probe = probes[0]
    done = set(_kept(probe)[probe.id_column].to_pylist())
    todo = [one for one in ids if one not in done and one not in (skipped or {})]
    failures = {one: reason for one, reason in (skipped or {}).items() if one in ids}
    rows: list[dict[str, Any]] = []
    since = time.monotonic()

    def keep() -> None:
        if rows:
            # A new name for every part: process ids repeat, in containers always.
            write_parquet(
                probe.parts / f"{probe.key}-{uuid.uuid4().hex}.parquet", pa.Table.from_pylist(rows, probe.schema)
            )
            rows.clear()

    if progress and len(ids) > len(todo):
        progress(len(ids) - len(todo))
    for one, made in _measured(probes, todo, careful):
        if isinstance(made, str):
            failures[one] = made
        else:
            rows += made
        if progress:
            progress(1)
        if time.monotonic() - since > _PART_SECONDS:
            keep()
            since = time.monotonic()
    keep()
    return len(ids) - len(todo), failures


def _measured(
    probes: Sequence[Probe], ids: Sequence[str], careful: Careful | None
) -> Iterator[tuple[str, list[dict[str, Any]] | str]]:
    """Every id with its rows, or with the reason why it has none, in order."""
    if careful is not None or len(probes) > 1:

        def alone(probe: Probe, one: str) -> tuple[str, list[dict[str, Any]] | str]:
            if careful is not None:
                careful("picture", one)
            loaded = _attempt(probe.load, one)
            if careful is not None:
                careful("model", probe.path.stem)
            return one, _rows(probe, one, loaded)

        yield from in_lanes([partial(alone, probe) for probe in probes], ids)
        return
    with contextlib.closing(prefetched(probes[0].load, ids)) as loading:
        for one, loaded in loading:
            with one_thread():
                made = _rows(probes[0], one, loaded)
            yield one, made


def _attempt(load: Callable[[str], Any], one: str) -> Any:
    try:
        return load(one)
    except Exception as error:
        return error


def _rows(probe: Probe, one: str, loaded: Any) -> list[dict[str, Any]] | str:
    """The rows of one picture, or the reason why it cannot be used; an error of the model is raised."""
    if isinstance(loaded, BadPicture):
        return str(loaded)
    if isinstance(loaded, Exception):
        return f"{type(loaded).__name__}: {loaded}"
    try:
        return probe.measure(one, loaded)
    except BadPicture as problem:
        return str(problem)


def merge(probe: Probe, resumed: int, failures: dict[str, str]) -> Outcome:
    """Write the file and then its card from the rows of all parts; UserError if those of a picture are lost."""
    table = _in_order(_kept(probe), probe.ids, probe.id_column)
    if not len(table):
        reasons = "; ".join(dict.fromkeys(failures.values())) or "the source is empty"
        raise UserError(f"no picture could be measured: {reasons[:500]}")
    measured = set(table[probe.id_column].to_pylist())
    lost = set(probe.ids) - measured - failures.keys()
    if lost:
        raise UserError(
            f"{len(lost)} of {len(probe.ids)} pictures have no rows in {probe.parts}, for example {min(lost)}: a part "
            "was deleted or damaged",
            run="the same command again, without --shard",
        )
    write_parquet(probe.path, table.replace_schema_metadata({KEY: probe.key}))
    pictures = len(measured)
    card = {"settings": probe.settings, "key": probe.key, "pictures": pictures, "failures": failures, "floats": FLOATS}
    write_json(probe.path.with_suffix(".json"), {**card, "versions": versions()})
    remove_folder(probe.parts)
    with contextlib.suppress(OSError):
        probe.parts.parent.rmdir()
    return Outcome(probe.path, len(probe.ids) - resumed - len(failures), resumed, failures)


def is_complete(probe: Probe) -> bool:
    """Whether the file has rows of every picture, or its card the reason why it has none.

    A run that is killed between the two leaves the card of earlier settings, or none.
    """
    place = probe.path.with_suffix(".json")
    if not probe.path.is_file() or not place.is_file() or _key_of(probe.path) != probe.key:
        return False
    card = read_object(place, {"failures": dict[str, str] | None})
    there = set(read_checked(probe.path, {})[probe.id_column].to_pylist())
    return card.get("key") == probe.key and there | set(card.get("failures") or {}) >= set(probe.ids)


def counter(show: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    """A function that adds to a count and shows it as (done, total)."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        show(done, total)

    return add


def read_probe(folder: str | Path, kind: str, slugs: Sequence[str] | None = None) -> pl.DataFrame:
    """The rows of the models called `slugs` (all if None) in FOLDER/<kind>, concatenated."""
    import polars as pl

    names = sorted(file.stem for file in (Path(folder) / kind).glob("*.parquet"))
    chosen = names if slugs is None else [slug for slug in slugs if slug in names]
    if not chosen:
        raise UserError(
            f"{folder} holds no results of the kind '{kind}'", run="unswayed sensitivity SOURCE -m MODEL -o DIR"
        )
    tables = [pl.DataFrame(read_checked(Path(folder) / kind / f"{slug}.parquet", {})) for slug in chosen]
    try:
        # Results of an older version lack the columns that came later.
        return pl.concat(tables, how="diagonal")
    except pl.exceptions.PolarsError as error:
        raise UserError(f"the results in {folder}/{kind} do not have the same columns: {error}") from None


def prefetched(load: Callable[[str], Any], ids: Sequence[str]) -> Generator[tuple[str, Any], None, None]:
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


def _kept(probe: Probe) -> pa.Table:
    """Rows of earlier runs with equal settings; rows with other settings or other columns are ignored."""
    files = sorted(probe.parts.glob(f"{probe.key}-*.parquet"))
    if probe.path.is_file() and _key_of(probe.path) == probe.key:
        files.append(probe.path)
    tables, seen = [probe.schema.empty_table()], set[str]()
    for file in files:
        try:
            table = read_checked(file, {})
        except UserError:  # a damaged file is measured again
            continue
        if not table.schema.equals(probe.schema):
            continue
        names = table[probe.id_column].to_pylist()
        # A picture that two processes measured is kept once.
        tables.append(table.filter(pa.array([name not in seen for name in names], pa.bool_())))
        seen |= set(names)
    return pa.concat_tables(tables)


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
