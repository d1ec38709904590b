"""`run_evaluation`: classify every picture, decoded once, with every model; a stopped evaluation resumes.

PREDICTIONS/<model>.parquet, <model>.json     written once every picture is classified
PREDICTIONS/<model>.failed.json     why the model could not be evaluated
PREDICTIONS/.parts/<model>-<fingerprint>-<batch size>/000000-000007.parquet     batches 0 to 7, while it runs
PREDICTIONS/.parts/<model>.lock     held by the process that evaluates the model, or merges the parts of shards
"""

from __future__ import annotations

import contextlib
import time
import warnings as python_warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from unswayed.choices import one_line, takes
from unswayed.errors import CannotWrite, UnswayedWarning, UserError
from unswayed.files.locks import Lock
from unswayed.files.storage import local_copy, refresh
from unswayed.files.whole import make_folder, read_json, remove_file, remove_folder
from unswayed.jobs import WorkerState, processes_on_a_machine
from unswayed.jobs.monitor import Monitor, View
from unswayed.jobs.table_job import SHARES_EACH, Reply, TableJob
from unswayed.models.classifier import Classifier
from unswayed.models.label_mapping import read_groups
from unswayed.models.opening import MODELS, model_spec
from unswayed.specs import model_key, slug_of, split_alias

from .evaluator import Evaluator, FinishedModel, OpenedModel, all_parts, batch_size_for, is_finished
from .finishing import finish, forget_failures, record_failure
from .inputs import Pictures, open_pictures
from .model_cards import FAILED, PARTS, require_room
from .reading import read_predictions
from .settings import EvaluateSettings

if TYPE_CHECKING:
    import polars as pl

GROUP = 8  # models that share a decoding pass where several worker processes share the models


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
    specs = _named(models)
    for model in models:
        if isinstance(model, str):
            MODELS.load(model_spec(model).kind)
    target = (
        pictures if isinstance(pictures, Pictures) else open_pictures(str(pictures), settings.limit, settings.verify)
    )
    grouping = read_groups(settings.groups) if settings.groups is not None else None
    folder = make_folder(local_copy(output))
    evaluator = Evaluator(target, folder, settings, specs, grouping, save_every, torch.get_num_threads())
    require_room(folder, target.described["identity"], target.rows)

    def shown(view: View) -> None:
        if progress is not None:
            progress(view.done, view.total)
        if show is not None:
            show(view)

    with Monitor(folder, "evaluate", "predictions", shown) as monitor:
        return EvaluationRun(evaluator, monitor, remarks).run()


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
    chosen = [models] if isinstance(models, str) or not isinstance(models, Sequence) else list(models)
    done = run_evaluation(benchmark, chosen, output, settings, progress=progress)
    failures = [f"{name} failed: {reason}" for name, reason in done.failed.items()]
    for text in [*(line for lines in done.warnings.values() for line in lines), *failures]:
        python_warnings.warn(text, UnswayedWarning, stacklevel=2)
    good = [*done.scored, *done.skipped]
    if not good:
        raise UserError("no model could be evaluated:\n" + "\n".join(failures))
    return read_predictions(output, good)


class EvaluationRun:
    """One call of `run_evaluation`: which model is where, and what became of it."""

    def __init__(self, evaluator: Evaluator, monitor: Monitor, remarks: list[str]) -> None:
        self.evaluator, self.folder, self.pictures = evaluator, evaluator.folder, evaluator.pictures
        self.job = TableJob(evaluator.settings, monitor, len(self.pictures) * len(evaluator.specs))
        self.job.total //= self.job.shard[1]
        self.remarks = remarks
        self.locks: dict[str, Lock] = {}
        self.became: dict[str, Literal["scored", "skipped", "unfinished"]] = {}
        self.failed: dict[str, str] = {}
        self.warnings: dict[str, list[str]] = {}
        self.stored_as: dict[str, str] = {}

    def run(self) -> Evaluation:
        started, specs = time.time(), self.evaluator.specs
        try:
            ours = [name for name in specs if self._lock(name)]
            refresh(self.folder)
            self.job.count(0)
            self._run_here([name for name in ours if isinstance(specs[name], Classifier)])
            self._run_apart([name for name in ours if isinstance(specs[name], str)])
        finally:
            for lock in self.locks.values():
                lock.release()
        with contextlib.suppress(OSError):
            (self.folder / PARTS).rmdir()  # once it is empty
        if not self.failed:
            forget_failures(self.folder, started)
        order = [*specs, *(name for name in self.became if name not in specs)]
        scored, skipped, unfinished = (
            tuple(name for name in order if self.became.get(name) == kind)
            for kind in ("scored", "skipped", "unfinished")
        )
        return Evaluation(
            self.folder,
            len(self.pictures),
            scored,
            skipped,
            {name: self.failed[name] for name in order if name in self.failed},
            self.warnings,
            (*self.pictures.remarks, *self.remarks),
            unfinished,
            self.stored_as,
        )

    def _lock(self, name: str) -> bool:
        """Take the lock of a model, or of this shard of it; if another process has it, the model fails."""
        number, count = self.job.shard
        suffix = "" if count == 1 else f".{number}-{count}"
        lock = Lock(self.folder / PARTS / f"{slug_of(name)}{suffix}.lock")
        try:
            taken = lock.take()
        except UserError:
            taken = True  # nothing can be written here, and finished predictions need no writing
        if taken:
            self.locks[name] = lock
        else:
            self._fail(name, f"another process is evaluating it into {self.folder}: wait for it, or choose another -o")
        return taken

    def _run_here(self, names: Sequence[str]) -> None:
        """Run the models in this process."""
        if not names:
            return
        evaluator, device = replace(self.evaluator, opened={}), self.job.devices[0]

        def watch(states: Sequence[WorkerState]) -> None:
            self.job.monitor.watch([replace(state, name=device, device=device) for state in states])

        for name, replies in self.job.run(evaluator, [names], here=watch):
            self._conclude(str(name), replies)

    def _run_apart(self, names: Sequence[str]) -> None:
        """Run the models in worker processes: they share a decoding pass, on several devices in groups."""
        if not names:
            return
        devices, settings = self.job.devices, self.evaluator.settings
        processes = processes_on_a_machine(settings, devices)
        evaluator = replace(self.evaluator, processes=processes, lanes=max(1, self.evaluator.lanes // processes))
        together = GROUP if len(devices) > 1 else len(names)
        groups = [names[start : start + together] for start in range(0, len(names), together)]
        batches = -(-len(self.pictures) // (settings.batch_size or batch_size_for(devices[0])))
        wanted = 1 if len(devices) == 1 else -(-SHARES_EACH * len(devices) // len(groups))
        shares = max(1, min(wanted, batches // self.job.shard[1]))
        for name, replies in self.job.run(evaluator, groups, shares):
            self._conclude(str(name), replies)

    def _conclude(self, name: str, replies: Sequence[Reply]) -> None:
        """Write what became of a model, now that all its shares of this run are done."""
        error = next((reply.error for reply in replies if reply.error is not None), None)
        results = [reply.result for reply in replies if reply.result is not None]
        finished = next((result for result in results if isinstance(result, FinishedModel)), None)
        try:
            self.job.monitor.check_folder()
            if error is not None:
                raise UserError(error)
            if finished is None:
                self._merge(name, results[0])
            elif finished.stored_as is None:
                self._already(name)
            else:
                self.stored_as[name] = known = finished.stored_as
                self.remarks.append(
                    f"{name} is the same model as {known}, whose predictions are already in {self.folder}"
                )
                self.became.setdefault(known, "skipped")
        except CannotWrite:
            raise  # this is no failure of the model
        except UserError as problem:
            self._fail(name, record_failure(self.folder, name, problem))
        finally:
            self.locks.pop(name).release()
        if name in self.failed or name in self.stored_as or self.became.get(name) == "skipped":
            self.job.count(len(self.pictures) // self.job.shard[1])

    def _merge(self, name: str, opened: OpenedModel) -> None:
        """Write the predictions of a model if all parts are there; if another shard is still at work, that is later."""

        def missing() -> int:
            return opened.batches - len(opened.parts(self.folder).done)

        def merge() -> bool:
            if missing():
                raise UserError(f"{missing()} batches of {name} are missing", run="the same command")
            self.warnings[name] = finish(self.folder, opened, self.pictures, self.evaluator.settings)
            self.became[name] = "scored"
            return True

        def already() -> bool | None:
            return self._already(name) if is_finished(self.folder, opened.slug, opened.fingerprint) else None

        lock = self.folder / PARTS / f"{opened.slug}.lock"
        if self.job.merged(lock, lambda: not missing(), already, merge) is None:
            self.became[name] = "unfinished"

    def _already(self, name: str) -> bool:
        """Skip a model whose predictions are complete, and remove what a killed run left behind."""
        slug = slug_of(name)
        for parts in all_parts(self.folder, slug):
            remove_folder(parts)
        with contextlib.suppress(OSError):
            remove_file(self.folder / f"{slug}{FAILED}")
        self.became[name] = "skipped"
        self.warnings[name] = list(read_json(self.folder / f"{slug}.json").get("warnings", []))
        return True

    def _fail(self, name: str, reason: str) -> None:
        self.failed[name] = reason
        self.job.failed = len(self.failed)


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


def _named(models: Sequence[str | Classifier]) -> dict[str, str | Classifier]:
    """The models by their names in tables; two with the same file name are refused."""
    named: dict[str, str | Classifier] = {}
    files: dict[str, str] = {}
    for model in models:
        name = (split_alias(model)[0] or model) if isinstance(model, str) else model.name
        slug = slug_of(name)
        if slug in files:
            raise UserError(
                f"two models would be stored as {slug}.parquet: {files[slug]!r} and {name!r}",
                allowed="different names: Classifier(…, name=…); or one -o for each",
            )
        files[slug], named[name] = name, model
    return named
