"""`run_evaluation`: classify every picture, decoded once, with every model; a stopped evaluation resumes."""

from __future__ import annotations

import contextlib
import time
import warnings as python_warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from unswayed.choices import one_line, takes
from unswayed.errors import CannotWrite, UnswayedWarning, UserError
from unswayed.files.locks import Lock
from unswayed.files.storage import local_copy, refresh
from unswayed.files.whole import make_folder, read_json, remove_file
from unswayed.jobs import Outcome, WorkerState, places_of, processes_on_a_machine, run_tasks
from unswayed.jobs.monitor import Monitor, View
from unswayed.jobs.settings import shard_of
from unswayed.jobs.table_job import isolate
from unswayed.models.classifier import Classifier
from unswayed.models.label_mapping import read_groups
from unswayed.models.opening import MODELS, model_spec
from unswayed.specs import model_key, slug_of, split_alias

from .batch_sizes import batch_size_for
from .finishing import finish, forget_failures, record_failure, remove_parts
from .inputs import Pictures, open_pictures
from .model_cards import FAILED, PARTS, require_room
from .reading import read_predictions
from .settings import EvaluateSettings
from .storage import is_finished, parts_of
from .worker import Answer, Evaluator, Opened, Part, name_of

if TYPE_CHECKING:
    import polars as pl

GROUP = 8  # models that share a decoding pass where several worker processes share the models
PARTS_EACH = 4  # parts for each worker process, so that none waits long for the last one


@one_line
@dataclass(frozen=True)
class Evaluation:
    """The result of a run: models evaluated now, already finished, and failed with the reason; warnings by model, also
    those of finished models; unfinished: models of which other shards have not made all parts yet;
    remarks: about the pictures, such as masks that were not counted as photographs; stored_as: the name under which
    the folder already has the predictions of a model that was given by another path."""

    folder: Path
    pictures: int
    scored: tuple[str, ...]
    skipped: tuple[str, ...]
    failed: dict[str, str]
    warnings: dict[str, list[str]]
    remarks: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    stored_as: dict[str, str] = field(default_factory=dict)


def run_evaluation(
    pictures: str | Path | Pictures,
    models: Sequence[str | Classifier],
    output: str | Path,
    settings: EvaluateSettings | None = None,
    *,
    save_every: float = 10.0,
    progress: Callable[[int, int], None] | None = None,
    show: Callable[[View], None] | None = None,
) -> Evaluation:
    """Classify the pictures with every model; write one Parquet file and one card per model to `output`.

    pictures: a benchmark's folder or `images:FOLDER`. save_every: seconds between part files. progress: called with
    the number of predictions made so far and in total; show: with the whole state of the run.

    A model whose predictions exist already, with the same weights, transform and pictures, is skipped. A model that
    fails is recorded as <model>.failed.json and the others continue; an unknown model source is refused at the start.
    Several processes may write to one folder, each with different models, or each with another shard.

    Models that are given by name run in a worker process, so that a model or a picture that ends it fails alone. On
    several devices and on a Ray cluster, worker processes share the pictures. The predictions are the same bytes. A
    `Classifier` runs in this process.
    """
    if not models:
        raise UserError("no model is given", allowed="-m lite:0 -m timm:resnet50 …", run="unswayed models")
    settings = EvaluateSettings() if settings is None else settings
    models, remarks = _distinct(models)
    _check_names(models)
    for model in models:
        if isinstance(model, str):
            MODELS.load(model_spec(model).kind)
    target = (
        pictures if isinstance(pictures, Pictures) else open_pictures(str(pictures), settings.limit, settings.verify)
    )
    evaluator = Evaluator(
        target,
        make_folder(local_copy(output)),
        settings,
        read_groups(settings.groups) if settings.groups is not None else None,
        save_every,
        torch.get_num_threads(),
    )
    require_room(evaluator.folder, target.described["identity"], target.rows)

    def shown(view: View) -> None:
        if progress is not None:
            progress(view.done, view.total)
        if show is not None:
            show(view)

    with Monitor(evaluator.folder, "evaluate", "predictions", shown) as monitor:
        return _Run(evaluator, models, monitor, remarks).run()


@takes(EvaluateSettings)
def evaluate(
    benchmark: str | Path,
    models: str | Classifier | Sequence[str | Classifier],
    output: str | Path,
    settings: EvaluateSettings,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> pl.DataFrame:
    """Return the predictions of every model for a benchmark's folder or `images:FOLDER`, one row per picture and model.

    They are stored in `output`, one Parquet file and one card per model, and reused the next time. progress: called
    with the number of predictions made so far and in total.
    """
    names = [models] if isinstance(models, str) or not isinstance(models, Sequence) else list(models)
    done = run_evaluation(benchmark, names, output, settings, progress=progress)
    for text in [*(line for lines in done.warnings.values() for line in lines), *_failures(done.failed)]:
        python_warnings.warn(text, UnswayedWarning, stacklevel=2)
    good = [*done.scored, *done.skipped]
    if not good:
        raise UserError("no model could be evaluated:\n" + "\n".join(_failures(done.failed)))
    return read_predictions(output, good)


def _failures(failed: dict[str, str]) -> list[str]:
    return [f"{name} failed: {reason}" for name, reason in failed.items()]


@dataclass
class _Run:
    """One call of `run_evaluation`: which model is where, and what became of it."""

    evaluator: Evaluator
    models: Sequence[str | Classifier]
    monitor: Monitor
    remarks: list[str]
    locks: dict[str, Lock] = field(default_factory=dict)
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    expected: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[Part, Evaluator]] = field(default_factory=list)
    done: int = 0
    scored: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    stored_as: dict[str, str] = field(default_factory=dict)

    def run(self) -> Evaluation:
        started, folder, pictures = time.time(), self.evaluator.folder, self.evaluator.pictures
        try:
            ours = [model for model in self.models if self._lock(name_of(model))]
            apart = [model for model in ours if isinstance(model, str)]
            here = [model for model in ours if isinstance(model, Classifier)]
            refresh(folder)
            self._count(0)
            if here:
                self._run_here(here)
            if apart:
                self._run_apart(apart)
            for part, worker in self.broken:
                self._repeat_with_care(part, worker)
        finally:
            for lock in self.locks.values():
                lock.release()
        with contextlib.suppress(OSError):
            (folder / PARTS).rmdir()  # once it is empty
        if not self.failed:
            forget_failures(folder, started)
        order = {name_of(model): place for place, model in enumerate(self.models)}
        scored, skipped, unfinished = (
            tuple(sorted(names, key=lambda name: order.get(name, len(order))))
            for names in (self.scored, self.skipped, self.unfinished)
        )
        failed = {name: self.failed[name] for name in sorted(self.failed, key=lambda name: order.get(name, len(order)))}
        return Evaluation(
            folder,
            len(pictures),
            scored,
            skipped,
            failed,
            self.warnings,
            (*pictures.remarks, *self.remarks),
            unfinished,
            self.stored_as,
        )

    @cached_property
    def shard(self) -> tuple[int, int]:
        """Which part of the pictures is evaluated here, and of how many."""
        given = self.evaluator.settings.shard
        return shard_of(given) if given is not None else (1, 1)

    @cached_property
    def devices(self) -> list[str]:
        """The devices that models are placed on."""
        return places_of(self.evaluator.settings)

    def _lock(self, name: str) -> bool:
        """Take the lock of a model, or of this shard of it; if another process has it, the model fails."""
        number, count = self.shard
        suffix = "" if count == 1 else f".{number}-{count}"
        lock = Lock(self.evaluator.folder / PARTS / f"{slug_of(name)}{suffix}.lock")
        try:
            taken = lock.take()
        except UserError:
            taken = True  # nothing can be written here, and finished predictions need no writing
        if taken:
            self.locks[name] = lock
            return True
        self.failed[name] = (
            f"another process is evaluating it into {self.evaluator.folder}: wait for it, or choose another -o"
        )
        return False

    def _run_here(self, models: Sequence[Classifier]) -> None:
        """Run the models in this process."""
        number, count = self.shard
        here, device = replace(self.evaluator, opened={}), self.devices[0]

        def watch(states: Sequence[WorkerState]) -> None:
            self.monitor.watch([replace(state, name=device, device=device) for state in states])

        self.expected.update(name_of(model) for model in models)
        part = Part(tuple(models), number - 1, count)
        for outcome in run_tasks(here, [part], watch=watch, counted=self._count):
            self._settle(outcome.task, outcome.result, here)

    def _run_apart(self, models: Sequence[str]) -> None:
        """Run the models in worker processes."""
        processes = processes_on_a_machine(self.evaluator.settings, self.devices)
        worker = replace(self.evaluator, processes=processes, lanes=max(1, self.evaluator.lanes // processes))
        parts = self._parts(models)
        self.expected.update(name_of(model) for part in parts for model in part.models)
        for outcome in self._outcomes(worker, parts, self.devices):
            self._settle(outcome.task, outcome.result, worker)

    def _outcomes(
        self, worker: Evaluator, parts: Sequence[Part], devices: Sequence[str]
    ) -> Iterator[Outcome[Part, list[Answer]]]:
        return run_tasks(
            worker,
            parts,
            settings=worker.settings,
            devices=devices,
            apart=True,
            watch=self.monitor.watch,
            counted=self._count,
        )

    def _parts(self, models: Sequence[str]) -> list[Part]:
        """Return the tasks: models share a decoding pass, on several devices in groups with parts for every process."""
        together = GROUP if len(self.devices) > 1 else len(models)
        groups = [tuple(models[start : start + together]) for start in range(0, len(models), together)]
        size = self.evaluator.settings.batch_size or batch_size_for(self.devices[0])
        batches = -(-len(self.evaluator.pictures) // size)
        wanted = 1 if len(self.devices) == 1 else -(-PARTS_EACH * len(self.devices) // len(groups))
        number, shards = self.shard
        count = max(1, min(wanted, batches // shards))
        return [Part(group, (number - 1) * count + part, shards * count) for group in groups for part in range(count)]

    def _settle(self, part: Part, answers: Sequence[Answer] | None, worker: Evaluator) -> None:
        """Take the answers about a part; one that failed twice is repeated with care when the others are done."""
        if answers is None:
            self.broken.append((part, worker))
            return
        for answer in answers:
            self._answered(answer)

    def _answered(self, answer: Answer) -> None:
        self.answers.setdefault(answer.name, []).append(answer)
        self.expected[answer.name] -= 1
        if not self.expected[answer.name]:
            self._conclude(answer.name, self.answers.pop(answer.name))

    def _repeat_with_care(self, part: Part, worker: Evaluator) -> None:
        """Find out which picture or model ends the process: that one fails, and the others are done."""
        failed = [model for model in part.models if any(one.error for one in self.answers.get(name_of(model), []))]
        for model in failed:
            self._answered(Answer(name_of(model), error="it failed in another part"))
        part = replace(part, careful=True, models=tuple(model for model in part.models if model not in failed))
        while part.models:
            part, outcome, name = isolate(
                part,
                lambda one: next(iter(self._outcomes(worker, [one], self.devices[:1]))),
                lambda one: self.evaluator.folder / PARTS / one.journal,
            )
            if outcome.failure is None:
                self._settle(part, outcome.result, worker)
                return
            guilty = [model for model in part.models if name_of(model) == name] or part.models
            for model in guilty:
                self._answered(Answer(name_of(model), error=outcome.failure))
            part = replace(part, models=tuple(model for model in part.models if model not in guilty))

    def _conclude(self, name: str, answers: Sequence[Answer]) -> None:
        """Write what became of a model, now that all its parts in this run are done."""
        folder, pictures = self.evaluator.folder, self.evaluator.pictures
        error = next((answer.error for answer in answers if answer.error is not None), None)
        known = next((answer.same_as for answer in answers if answer.same_as is not None), None)
        try:
            self.monitor.check_folder()
            if error is not None:
                raise UserError(error)
            if known is not None:
                self.remarks.append(f"{name} is the same model as {known}, whose predictions are already in {folder}")
                self.stored_as[name] = known
                self.skipped += [known] if known not in self.skipped else []
            elif any(answer.finished for answer in answers):
                self._already(name)
            else:
                opened = next(answer.opened for answer in answers if answer.opened is not None)
                self._merge(name, opened)
        except CannotWrite:
            raise  # this is no failure of the model
        except UserError as problem:
            self.failed[name] = record_failure(folder, name, problem)
        finally:
            self.locks.pop(name).release()
        if name in self.failed or name in self.skipped or name in self.stored_as:
            self._count(len(pictures) // self.shard[1])

    def _merge(self, name: str, opened: Opened) -> None:
        """Write the predictions of a model if all parts are there; if another shard is still at work, that is later."""
        folder = self.evaluator.folder
        refresh(folder)  # for parts that other machines have made
        parts = opened.parts(folder)
        complete = parts.done >= set(range(opened.batches))
        merging = Lock(folder / PARTS / f"{opened.slug}.lock")
        if self.shard[1] > 1 and not (complete and merging.take()):
            self.unfinished.append(name)
            return
        try:
            if self.shard[1] > 1 and is_finished(folder, opened.slug, opened.fingerprint):
                self._already(name)
                return
            if not complete:
                raise UserError(
                    f"{opened.batches - len(parts.done)} batches of {name} are missing", run="the same command"
                )
            self.warnings[name] = finish(folder, opened, self.evaluator.pictures, self.evaluator.settings)
            self.scored.append(name)
        finally:
            merging.release()

    def _already(self, name: str) -> None:
        """Skip a model whose predictions are complete, and remove what a killed run left behind."""
        folder, slug = self.evaluator.folder, slug_of(name)
        remove_parts(parts_of(folder, slug))
        with contextlib.suppress(OSError):
            remove_file(folder / f"{slug}{FAILED}")
        self.skipped.append(name)
        self.warnings[name] = list(read_json(folder / f"{slug}.json").get("warnings", []))

    def _count(self, more: int) -> None:
        total = len(self.evaluator.pictures) * len(self.models) // self.shard[1]
        self.done = min(total, self.done + more)
        self.monitor.count(self.done, total, len(self.failed))


def _distinct(models: Sequence[str | Classifier]) -> tuple[list[str | Classifier], list[str]]:
    """The models without those that are named twice, by whatever path, and a remark about each that was left out.

    An alias is a name that was asked for, so a model with an alias is kept beside the same one without it.
    """
    kept: list[str | Classifier] = []
    remarks: list[str] = []
    seen: dict[tuple[str | None, str], str] = {}
    for model in dict.fromkeys(models):
        if isinstance(model, str):
            key = split_alias(model)[0], model_key(model)
            if key in seen:
                remarks.append(f"{model} is the same model as {seen[key]} and is evaluated once")
                continue
            seen[key] = model
        kept.append(model)
    return kept, remarks


def _check_names(models: Sequence[str | Classifier]) -> None:
    """Refuse models with the same name or the same file name."""
    seen: dict[str, str] = {}
    for model in models:
        name = name_of(model)
        if slug_of(name) in seen:
            raise UserError(
                f"two models would be stored as {slug_of(name)}.parquet: {seen[slug_of(name)]!r} and {name!r}",
                allowed="different names: Classifier(…, name=…); or one -o for each",
            )
        seen[slug_of(name)] = name
