"""Probes of several models, in this process, in worker processes, on a Ray cluster or as shards; all resume."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Protocol

import torch

from unfazed.engine import EngineSettings, Outcome, places_of, run_tasks
from unfazed.engine.journal import Journal, isolate
from unfazed.engine.monitor import Monitor
from unfazed.engine.settings import shard_of
from unfazed.errors import CannotWrite, reason_of
from unfazed.files import read_json, write_json
from unfazed.locks import Lock
from unfazed.predictions.evaluation import PARTS_EACH, may_end_the_process
from unfazed.specs import slug_of
from unfazed.storage import refresh

from .run import Outcome as Measured
from .run import Probe, is_complete, measure_ids, merge

JOURNALS = ".journals"
Key = tuple[str, str]
"""A model, empty if the probe needs none, and a kind of probe."""


class Opener(Protocol):
    """Opens probes, also in another process, to which it is sent."""

    def open(
        self, name: str, kind: str, device: str | None, lanes: int, first: bool
    ) -> AbstractContextManager[list[Probe]]:
        """Equal probes of a model, up to one for each lane; first: of this model in this run, so that it is checked."""
        ...


@dataclass(frozen=True)
class Part:
    """A task: part `number` of `count` equal parts of the pictures of one probe of one model."""

    model: str
    kind: str
    number: int = 0
    count: int = 1
    skipped: tuple[tuple[str, str], ...] = ()
    careful: bool = False


@dataclass(frozen=True, eq=False)
class Answer:
    """What became of a part: the probe, how many of its pictures were measured before, failures."""

    probe: Probe | None = None
    resumed: int = 0
    failures: dict[str, str] | None = None
    error: str | None = None


@dataclass
class Prober:
    """Measures parts; counted: called with the number of pictures measured now."""

    opener: Opener
    folder: Path
    lanes: int = 1
    counted: Callable[[int], None] | None = None

    def __call__(self, part: Part, device: str | None = None) -> Answer:
        try:
            with contextlib.ExitStack() as stack:
                journal = stack.enter_context(Journal(_journal(self.folder, part))) if part.careful else None
                opened = self.opener.open(part.model, part.kind, device, self.lanes, part.number == 0)
                probes = stack.enter_context(opened)
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
    elsewhere = engine.engine != "local" or len(devices) > 1 or monitor.interrupted
    threads, done = torch.get_num_threads(), 0

    def counted(more: int) -> None:
        nonlocal done
        done += more
        monitor.count(done, pictures * len(probes) // shards, failed)

    def parts_of(keys: Sequence[Key], count: int) -> list[Part]:
        return [Part(*key, (number - 1) * count + place, count * shards) for key in keys for place in range(count)]

    apart = [key for key in probes if elsewhere or (key[0] and may_end_the_process(key[0]))]
    here = [key for key in probes if key not in apart]
    worker = Prober(opener, folder, max(1, threads // len(devices)))

    def run_apart(parts: Sequence[Part], places: Sequence[str] = devices) -> Iterator[Outcome[Part, Answer]]:
        return run_tasks(
            worker, parts, settings=engine, devices=places, apart=True, watch=monitor.watch, counted=counted
        )

    failed = 0
    answers: dict[Key, list[Answer]] = {}
    counted(0)
    in_this_process = run_tasks(Prober(opener, folder, threads), parts_of(here, 1), counted=counted)
    count = PARTS_EACH * len(devices) if len(devices) > 1 else 1
    in_others = run_apart(parts_of(apart, count)) if apart else iter(())
    for expected, outcome in chain(zip(repeat(1), in_this_process), zip(repeat(count), in_others)):
        key, answer = (outcome.task.model, outcome.task.kind), outcome.result
        if answer is None:
            careful = replace(outcome.task, careful=True)
            one_by_one = isolate(
                careful, lambda part: next(iter(run_apart([part], devices[:1]))), lambda part: _journal(folder, part)
            )
            answer = one_by_one[1].result or Answer(error=str(one_by_one[1].failure))
        answers.setdefault(key, []).append(answer)
        if len(answers[key]) == expected:
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
