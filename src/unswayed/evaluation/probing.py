"""Probes of several models, in worker processes, on a Ray cluster or as shards; all resume."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from unswayed.errors import CannotWrite, reason_of
from unswayed.files.locks import Lock
from unswayed.files.storage import refresh
from unswayed.files.whole import read_json, write_json
from unswayed.jobs import EngineSettings, Outcome, places_of, run_tasks
from unswayed.jobs.monitor import Monitor
from unswayed.jobs.settings import shard_of
from unswayed.jobs.table_job import Journal, isolate
from unswayed.specs import slug_of

from .evaluation import PARTS_EACH
from .run import Careful, Probe, is_complete, measure_ids, merge
from .run import Outcome as Measured

JOURNALS = ".journals"
Key = tuple[str, str]
"""A model, empty if the probe needs none, and a kind of probe."""


@dataclass(frozen=True)
class Part:
    """A task: part `number` of `count` equal parts of the pictures of one probe of one model."""

    model: str
    kind: str
    number: int = 0
    count: int = 1
    skipped: tuple[tuple[str, str], ...] = ()
    careful: bool = False


class Opener(Protocol):
    """Opens probes, also in another process, to which it is sent."""

    def open(
        self, part: Part, device: str | None, lanes: int, careful: Careful | None
    ) -> AbstractContextManager[list[Probe]]:
        """Equal probes of the part's model, up to one for each lane; its first part also checks the model.

        careful: called with each picture and with the model before they are used.
        """
        ...


@dataclass(frozen=True, eq=False)
class Answer:
    """What became of a part: the probe, how many of its pictures were measured before, failures."""

    probe: Probe | None = None
    resumed: int = 0
    failures: dict[str, str] | None = None
    error: str | None = None


@dataclass
class Prober:
    """Measures parts.

    lanes: how many pictures a CPU measures beside each other, or the threads of a model that cannot be copied;
    counted: called with the number of pictures measured now.
    """

    opener: Opener
    folder: Path
    lanes: int = 1
    counted: Callable[[int], None] | None = None

    def __call__(self, part: Part, device: str | None = None) -> Answer:
        torch.set_num_threads(self.lanes)
        try:
            with contextlib.ExitStack() as stack:
                journal = stack.enter_context(Journal(_journal(self.folder, part))) if part.careful else None
                probes = stack.enter_context(self.opener.open(part, device, self.lanes, journal))
                ids = probes[0].ids
                own = ids[part.number * len(ids) // part.count : (part.number + 1) * len(ids) // part.count]
                resumed, failures = measure_ids(probes, own, self.counted, dict(part.skipped), journal)
                return Answer(probes[0].sendable(), resumed, failures)
        except CannotWrite:
            raise  # this is no failure of the model
        except (Exception, SystemExit) as error:  # whatever one model does, the others are measured
            return Answer(error=reason_of(error))


def run_probes(
    opener: Opener, probes: Sequence[Key], folder: Path, engine: EngineSettings, monitor: Monitor, pictures: int
) -> Iterator[tuple[Key, Measured | str | None]]:
    """Each pair of a model and a kind of probe with its outcome, the reason why it failed, or None if other shards
    have not measured all pictures yet; pictures: of one probe, for the count of what is done."""
    devices = places_of(engine)
    number, shards = shard_of(engine.shard) if engine.shard is not None else (1, 1)
    done = failed = 0

    def counted(more: int) -> None:
        nonlocal done
        done += more
        monitor.count(done, pictures * len(probes) // shards, failed)

    worker = Prober(opener, folder, max(1, torch.get_num_threads() // len(devices)))

    def run(parts: Sequence[Part], places: Sequence[str] = devices) -> Iterator[Outcome[Part, Answer]]:
        # Also a single device has a process for itself: a picture or a model that ends it fails alone.
        return run_tasks(
            worker, parts, settings=engine, devices=places, apart=True, watch=monitor.watch, counted=counted
        )

    answers: dict[Key, list[Answer]] = {}
    counted(0)
    count = PARTS_EACH * len(devices) if len(devices) > 1 else 1
    parts = [Part(*key, (number - 1) * count + place, count * shards) for key in probes for place in range(count)]
    for outcome in run(parts):
        key, answer = (outcome.task.model, outcome.task.kind), outcome.result
        if answer is None:
            careful = replace(outcome.task, careful=True)
            one_by_one = isolate(
                careful, lambda part: next(iter(run([part], devices[:1]))), lambda part: _journal(folder, part)
            )
            answer = one_by_one[1].result or Answer(error=str(one_by_one[1].failure))
        answers.setdefault(key, []).append(answer)
        if len(answers[key]) == count:
            monitor.check_folder()
            result = _merged(answers.pop(key), number, shards)
            failed += isinstance(result, str)
            yield key, result
    with contextlib.suppress(OSError):
        (folder / JOURNALS).rmdir()


def _merged(answers: Sequence[Answer], number: int, shards: int) -> Measured | str | None:
    """The outcome of a probe of which all parts of this run are done."""
    error = next((answer.error for answer in answers if answer.error is not None), None)
    probe = next((answer.probe for answer in answers if answer.probe is not None), None)
    if error is not None or probe is None:
        return error or "nothing was measured"
    failures = {one: reason for answer in answers for one, reason in (answer.failures or {}).items()}
    resumed = sum(answer.resumed for answer in answers)
    try:
        if shards == 1:
            return merge(probe, resumed, failures)
        if is_complete(probe):
            return Measured(probe.path, 0, resumed, failures)
        # Every shard leaves its failures; the one that finds those of all others merges.
        notes = [probe.parts / f"{probe.key}.{one}-{shards}.json" for one in range(1, shards + 1)]
        write_json(notes[number - 1], failures)
        refresh(probe.path.parent)  # for parts that other machines have made
        lock = Lock(probe.parts.with_suffix(".lock"))
        if not all(note.is_file() for note in notes) or not lock.take():
            return None
        try:
            everything = {one: reason for note in notes for one, reason in read_json(note).items()}
            return merge(probe, resumed, everything)
        finally:
            lock.release()
    except CannotWrite:
        raise
    except Exception as problem:
        return reason_of(problem)


def _journal(folder: Path, part: Part) -> Path:
    return folder / JOURNALS / f"{slug_of(part.model)}.{part.kind}.{part.number}-{part.count}.json"
