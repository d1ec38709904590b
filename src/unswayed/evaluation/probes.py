"""Probes: what models do with each picture, measured in worker processes, on a Ray cluster or as shards; all resume.

FOLDER/<kind>/<model>.parquet       the rows, complete or absent
FOLDER/<kind>/<model>.json          the card: settings, and which pictures could not be used
FOLDER/<kind>/parts/<model>/…       rows of an unfinished run
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

import pyarrow as pa
import torch

from unswayed.errors import BadPicture, CannotWrite, UserError, reason_of
from unswayed.files.tables import columns_of, read_checked
from unswayed.files.whole import Json, read_json, write_json
from unswayed.jobs import EngineSettings
from unswayed.jobs.monitor import Monitor
from unswayed.jobs.parts import ItemTable
from unswayed.jobs.resources import copies, in_lanes, one_thread
from unswayed.jobs.table_job import SHARES_EACH, Reply, Share, TableJob, journal_at
from unswayed.models import Classifier
from unswayed.models.label_mapping import LabelMapping, map_labels
from unswayed.sources import Source
from unswayed.specs import slug_of

if TYPE_CHECKING:
    import polars as pl


Careful = Callable[[str, str], None]
"""Is called with a kind (`picture` or `model`) and a name before that one is used."""
Key = tuple[str, str]
"""A model, empty if the probe needs none, and a kind of probe."""
JOURNALS = ".journals"
Loaded = TypeVar("Loaded")


class Probe(contextlib.ExitStack, Generic[Loaded]):
    """The rows of every picture of a table; a subclass says how a picture is loaded and what its rows are.

    A picture that `load` cannot read, or that `measure` refuses as a BadPicture, becomes a failure with its reason and
    is tried again by the next run. Contexts that a subclass enters are open as long as the probe is.
    """

    def __init__(self, table: ItemTable) -> None:
        super().__init__()
        self.table = table

    def load(self, picture: str) -> Loaded:
        raise NotImplementedError

    def measure(self, picture: str, loaded: Loaded) -> list[Json]:
        raise NotImplementedError


@dataclass(frozen=True)
class ProbeResult:
    """The result of probing one model: its file, the pictures measured now and before, and the failures."""

    path: Path
    measured: int
    resumed: int
    failures: dict[str, str]

    def record(self, what: str, failures: dict[str, str], notes: list[str]) -> None:
        """Add what happened to the failures and notes of a study; what: the model or network."""
        failures |= {f"{what}, {picture}": reason for picture, reason in self.failures.items()}
        notes.append(f"{self.path}: {self.measured} pictures measured now, {self.resumed} before")


def run_probe(probe: Probe, progress: Callable[[int], None] | None = None) -> ProbeResult:
    """The rows of every picture in the probe's file; those of an earlier run with equal settings are kept."""
    with probe:
        resumed, failures = measure_pictures([probe], probe.table.ids, progress)
    return _merge(probe.table, resumed, failures)


def measure_pictures(
    probes: Sequence[Probe],
    ids: Sequence[str],
    progress: Callable[[int], None] | None = None,
    skipped: Mapping[str, str] = MappingProxyType({}),
    careful: Careful | None = None,
) -> tuple[int, dict[str, str]]:
    """Measure the pictures that have no rows yet, into part files; returns how many had them, and the failures.

    probes: equal ones, each with its own copy of the model, for one thread each. skipped: pictures that are not
    measured, with the reason; careful: called with each picture and with the model before they are used.
    """
    table, parts = probes[0].table, probes[0].table.parts()
    done = set(table.rows()[table.id_column].to_pylist())
    todo = [picture for picture in ids if picture not in done and picture not in skipped]
    failures = {picture: reason for picture, reason in skipped.items() if picture in ids}
    if progress and len(ids) > len(todo):
        progress(len(ids) - len(todo))
    for picture, rows in _measured(probes, todo, careful):
        if progress:
            progress(1)
        if isinstance(rows, str):
            failures[picture] = rows
        else:
            parts.add(pa.Table.from_pylist(rows, table.schema))
    parts.flush()
    return len(ids) - len(todo), failures


def _measured(
    probes: Sequence[Probe], ids: Sequence[str], careful: Careful | None
) -> Iterator[tuple[str, list[Json] | str]]:
    """Every picture with its rows, or with the reason why it has none, in order; an error of the model is raised."""

    def alone(probe: Probe, picture: str) -> tuple[str, list[Json] | str]:
        if careful is not None:
            careful("picture", picture)
        loaded = _loaded(probe.load, picture)
        if careful is not None:
            careful("model", probe.table.path.stem)
        return measured(probe, *loaded)

    def measured(probe: Probe, picture: str, loaded: object) -> tuple[str, list[Json] | str]:
        try:
            if isinstance(loaded, BadPicture):
                raise loaded
            return picture, probe.measure(picture, loaded)
        except BadPicture as problem:
            return picture, str(problem)

    if careful is not None or len(probes) > 1:
        yield from in_lanes(alone, probes, ids)
        return
    for picture, loaded in loaded_ahead(probes[0].load, ids):
        with one_thread():
            answer = measured(probes[0], picture, loaded)
        yield answer


def loaded_ahead(load: Callable[[str], Loaded], ids: Sequence[str]) -> Iterator[tuple[str, Loaded | BadPicture]]:
    """Every id with the result of `load`, or what prevents one; a few pictures are loaded in advance."""
    return in_lanes(_loaded, [load] * 2, ids)


def _loaded(load: Callable[[str], Loaded], picture: str) -> tuple[str, Loaded | BadPicture]:
    try:
        return picture, load(picture)
    except BadPicture as problem:
        return picture, problem
    except Exception as error:
        return picture, BadPicture(f"{type(error).__name__}: {error}")


def _merge(table: ItemTable, resumed: int, failures: Mapping[str, str]) -> ProbeResult:
    table.merge(failures)
    return ProbeResult(table.path, len(table.ids) - resumed - len(failures), resumed, dict(failures))


class Opened(NamedTuple):
    """What measures the pictures of a table.

    original: what each lane of a CPU has a copy of, such as a model; probe: the probe of a copy; device: where it runs;
    size: its bytes.
    """

    original: Any
    probe: Callable[[Any], Probe]
    device: str
    size: int


# Opens what a model, a kind of probe, a share and a device ask for, also in another process, to which it is sent; in
# the first share it also checks the model, and calls what it is given with each picture and the model before.
Opener = Callable[[str, str, Share, "str | None", "Careful | None"], Opened]


@dataclass
class ProbeWork:
    """Measures shares of the pictures of probes.

    pictures: how many a probe has; lanes: how many of them a CPU measures beside each other, or the threads of a model
    that cannot be copied; counted: called with the number of pictures measured now.
    """

    opener: Opener
    folder: Path
    pictures: int
    lanes: int = 1
    counted: Callable[[int], None] | None = None

    def journal(self, share: Share) -> Path:
        ((model, kind),) = cast(tuple[Key], share.tables)
        return self.folder / JOURNALS / f"{slug_of(model)}.{kind}.{share.number}-{share.count}.json"

    def __call__(self, share: Share, device: str | None = None) -> list[Reply]:
        torch.set_num_threads(self.lanes)
        ((model, kind),) = cast(tuple[Key], share.tables)
        try:
            with contextlib.ExitStack() as stack:
                journal = stack.enter_context(journal_at(self.journal(share))) if share.careful else None
                opened = self.opener(model, kind, share, device, journal)
                # With care, the last entry of the journal must be the only picture in work.
                beside = self.lanes if opened.device.startswith("cpu") and not share.careful else 1
                originals = copies(opened.original, beside, self.pictures, opened.size)
                probes = [stack.enter_context(opened.probe(original)) for original in originals]
                own = share.of(probes[0].table.ids)
                resumed, failures = measure_pictures(probes, own, self.counted, dict(share.skipped), journal)
                return [Reply((model, kind), (probes[0].table, resumed, failures))]
        except CannotWrite:
            raise  # this is no failure of the model
        except (Exception, SystemExit) as error:  # whatever one model does, the others are measured
            return [Reply((model, kind), error=reason_of(error))]


def run_probes(
    opener: Opener, probes: Sequence[Key], folder: Path, engine: EngineSettings, monitor: Monitor, pictures: int
) -> Iterator[tuple[Key, ProbeResult | str | None]]:
    """Each pair of a model and a kind of probe with its result, the reason why it failed, or None if other shards
    have not measured all pictures yet; pictures: of one probe, for the count of what is done."""
    job = TableJob(engine, monitor, pictures * len(probes))
    job.total //= job.engine.parts[1]
    devices = job.devices
    work = ProbeWork(opener, folder, pictures, max(1, torch.get_num_threads() // len(devices)))
    job.count(0)
    shares = SHARES_EACH * len(devices) if len(devices) > 1 else 1
    for key, replies in job.run(work, [[key] for key in probes], shares):
        result = _concluded(job, replies)
        job.failed += isinstance(result, str)
        yield cast(Key, key), result
    with contextlib.suppress(OSError):
        (folder / JOURNALS).rmdir()


def _concluded(job: TableJob, replies: Sequence[Reply]) -> ProbeResult | str | None:
    """The result of a probe of which all shares of this run are done."""
    error = next((reply.error for reply in replies if reply.error is not None), None)
    if error is not None:
        return error
    tables, before, failed = zip(*(reply.result for reply in replies), strict=True)
    table, resumed = tables[0], sum(before)
    failures = {picture: reason for of_share in failed for picture, reason in of_share.items()}
    number, shards = job.engine.parts
    notes = [table.folder / f"{table.key}.{shard}-{shards}.json" for shard in range(1, shards + 1)]

    def is_complete() -> bool:
        # Every shard leaves its failures; the one that finds those of all others merges.
        write_json(notes[number - 1], failures)
        return all(note.is_file() for note in notes)

    def finished() -> ProbeResult | None:
        return ProbeResult(table.path, 0, resumed, failures) if table.is_finished() else None

    def merge() -> ProbeResult:
        everything = failures if shards == 1 else {k: v for note in notes for k, v in read_json(note).items()}
        return _merge(table, resumed, everything)

    try:
        return job.merged(table.folder.with_suffix(".lock"), is_complete, finished, merge)
    except CannotWrite:
        raise
    except Exception as problem:
        return reason_of(problem)


def counter(show: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    """A function that adds to a count and shows it as (done, total)."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        show(done, total)

    return add


def read_probe(
    folder: str | Path, kind: str, slugs: Sequence[str] | None = None, schema: pa.Schema | None = None
) -> pl.DataFrame:
    """The rows of the models called `slugs` (all if None) in FOLDER/<kind>, concatenated; refused if they do not have
    the columns of `schema`."""
    import polars as pl

    names = sorted(file.stem for file in (Path(folder) / kind).glob("*.parquet"))
    chosen = names if slugs is None else [slug for slug in slugs if slug in names]
    if not chosen:
        raise UserError(
            f"{folder} holds no results of the kind '{kind}'", run="unswayed sensitivity SOURCE -m MODEL -o DIR"
        )
    filled = {field.name for field in schema or () if field.name != "notes" and field.type != pa.float64()}
    columns = {} if schema is None else columns_of(schema, filled)
    tables = [
        pl.DataFrame(read_checked(Path(folder) / kind / f"{slug}.parquet", columns, required=list(columns)))
        for slug in chosen
    ]
    try:
        return pl.concat(tables, how="diagonal")
    except pl.exceptions.PolarsError as error:
        raise UserError(f"the results in {folder}/{kind} do not have the same columns: {error}") from None


def source_mapping(model: Classifier, source: Source) -> LabelMapping:
    """The mapping from the model's classes to the source's; refused if a class that occurs has no counterpart."""
    occurring = {source.label_of(scene_id) for scene_id in source.ids}
    return map_labels(model.labels, source.labels, [label for label in occurring if label is not None])


def answers(logits: torch.Tensor, mapping: LabelMapping, label: int) -> list[Json]:
    """One dict per row of the model's logits (N, classes): predicted, probability, true_probability, correct.

    Classes and probabilities are those of the pictures' label space.
    """
    if not logits.isfinite().all():
        raise UserError("the model returns NaN or infinite logits", allowed="finite logits")
    probabilities = mapping.apply(logits).double().softmax(1)
    best, predicted = probabilities.max(1)
    truth = probabilities[:, label]
    return [
        {"predicted": p, "probability": b, "true_probability": t, "correct": p == label}
        for p, b, t in zip(predicted.tolist(), best.tolist(), truth.tolist(), strict=True)
    ]
