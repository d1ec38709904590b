"""`run_evaluation`: classify every picture, decoded once, with every model; a stopped evaluation resumes.

PREDICTIONS/<model>.parquet, <model>.json     written once every picture is classified
PREDICTIONS/<model>.failed.json     why the model could not be evaluated
PREDICTIONS/.parts/<model>-<fingerprint>-<batch size>/000000-000007.parquet     batches 0 to 7, while it runs
PREDICTIONS/.parts/<model>.lock     held by the process that evaluates the model, or merges the parts of shards
"""

from __future__ import annotations

import contextlib
import itertools
import warnings as python_warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import torch

from unswayed.benchmark.rows import SOURCE_EDIT
from unswayed.choices import OneLine, takes
from unswayed.errors import CannotWrite, UnswayedWarning, UserError, reason_of
from unswayed.files.locks import Lock
from unswayed.files.storage import local_copy, refresh
from unswayed.files.tables import array_of, read_checked
from unswayed.files.whole import Json, make_folder, read_json, remove_file, remove_folder, write_json
from unswayed.jobs import engine_of
from unswayed.jobs.monitor import Monitor, View
from unswayed.jobs.parts import Parts, write_table
from unswayed.jobs.table_job import SHARES_EACH, Reply, TableJob
from unswayed.models.heads import training_overlap
from unswayed.models.label_mapping import read_groups
from unswayed.models.opening import MODELS, Model, is_service, model_spec
from unswayed.specs import model_key, slug_of, split_alias

from .contract import chance_of, suspect_exchange
from .evaluator import Evaluator, OpenedModel, all_parts, batch_size_for, is_finished
from .inputs import ORIGINAL, Pictures, open_pictures
from .model_cards import FAILED, FINGERPRINT, PARTS, SCHEMA, require_room
from .settings import EvaluateSettings

if TYPE_CHECKING:
    import polars as pl

ENOUGH = 256  # pictures below which re-estimated batch-norm statistics are worth a warning
GROUP = 8  # models that share a decoding pass where several worker processes share the models


@dataclass(frozen=True, repr=False)
class Evaluation(OneLine):
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
    models: Sequence[str | Model],
    output: str | Path,
    settings: EvaluateSettings | None = None,
    *,
    save_every: float = 10.0,
    progress: Callable[[int, int], None] | None = None,
    show: Callable[[View], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Evaluation:
    """Classify the pictures with every model; write one Parquet file and one card per model to `output`.

    pictures: a benchmark's folder or `images:FOLDER`. save_every: seconds between part files. progress: called with
    the number of predictions made so far and in total; show: with the whole state of the run; tell: with what the
    answers of a server will cost, before the first is asked for.

    A model whose predictions exist already, with the same weights, transform and pictures, is skipped. A model that
    fails is recorded as <model>.failed.json and the others continue; an unknown model source is refused at the start.
    Several processes may write to one folder, each with different models, or each with another shard.

    Models that are given by name run in a worker process, so that a model or a picture that ends it fails alone. On
    several devices and on a Ray cluster, worker processes share the pictures. The predictions are the same bytes. A
    model object runs in this process, and so does a model that a server answers for.
    """
    if not models:
        raise UserError("no model is given", allowed="-m lite:0 -m timm:resnet50 …", run="unswayed models")
    settings = EvaluateSettings() if settings is None else settings
    specs, remarks = _named(models)
    for model in specs.values():
        if isinstance(model, str):
            MODELS.require(model_spec(model).kind)
    if settings.budget is not None:
        from .answers import budget_of

        budget_of(settings)  # a wrong budget is refused at once
    target = (
        pictures if isinstance(pictures, Pictures) else open_pictures(str(pictures), settings.limit, settings.verify)
    )
    if settings.repeats:
        from .answers import with_repeats

        target = with_repeats(target, settings.repeats)
    grouping = read_groups(settings.groups) if settings.groups is not None else None
    folder = make_folder(local_copy(output))
    evaluator = Evaluator(target, folder, settings, specs, grouping, save_every, torch.get_num_threads())
    evaluator.tell = tell
    require_room(folder, target.described["identity"], target.rows)

    def count(view: View) -> None:
        if progress is not None:
            progress(view.done, view.total)
        if show is not None:
            show(view)

    with Monitor(folder, "evaluate", "predictions", count if progress or show else None) as monitor:
        return EvaluationRun(evaluator, monitor, remarks).run()


class EvaluationRun:
    """One call of `run_evaluation`: which model is where, and what became of it."""

    def __init__(self, evaluator: Evaluator, monitor: Monitor, remarks: list[str]) -> None:
        self.evaluator, self.folder, self.pictures = evaluator, evaluator.folder, evaluator.pictures
        self.number, self.shards = evaluator.settings.parts
        total = len(self.pictures) * len(evaluator.specs) // self.shards
        self.job = TableJob(evaluator.settings, monitor, total)
        self.remarks = remarks
        self.locks: dict[str, Lock] = {}
        self.became: dict[str, Literal["scored", "skipped", "unfinished"]] = {}
        self.failed: dict[str, str] = {}
        self.warnings: dict[str, list[str]] = {}
        self.stored_as: dict[str, str] = {}

    def run(self) -> Evaluation:
        earlier, specs = _failures(self.folder), self.evaluator.specs
        try:
            ours = [name for name in specs if self._lock(name)]
            refresh(self.folder)
            # In this process: a model object, and one that a server answers for.
            here = [name for name in ours if not isinstance(spec := specs[name], str) or is_service(spec)]
            apart = [name for name in ours if name not in here]
            evaluator = replace(self.evaluator, opened={})
            self.job.count(0)
            done_here = self.job.run(evaluator, [here], here=self.job.devices[0]) if here else ()
            for name, replies in itertools.chain(done_here, self._run_apart(apart) if apart else ()):
                self._conclude(str(name), replies)
        finally:
            for lock in self.locks.values():
                lock.release()
        with contextlib.suppress(OSError):
            (self.folder / PARTS).rmdir()  # once it is empty
        if not self.failed:
            for path, *_ in earlier & _failures(self.folder):  # such as a misspelled name
                if not path.with_name(path.name.removesuffix(FAILED) + ".parquet").is_file():
                    with contextlib.suppress(OSError):
                        remove_file(path)
        order = dict.fromkeys([*specs, *self.became])
        kinds: Json = {
            kind: tuple(name for name in order if self.became.get(name) == kind)
            for kind in ("scored", "skipped", "unfinished")
        }
        return Evaluation(
            self.folder,
            len(self.pictures),
            failed={name: self.failed[name] for name in order if name in self.failed},
            warnings=self.warnings,
            remarks=(*self.pictures.remarks, *self.remarks),
            stored_as=self.stored_as,
            **kinds,
        )

    def _lock(self, name: str) -> bool:
        """Take the lock of a model, or of this shard of it; if another process has it, the model fails."""
        suffix = "" if self.shards == 1 else f".{self.number}-{self.shards}"
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

    def _run_apart(self, names: Sequence[str]) -> Iterator[tuple[Hashable, list[Reply]]]:
        """Run the models in worker processes: they share a decoding pass, on several devices in groups."""
        devices, settings = self.job.devices, self.evaluator.settings
        processes = engine_of(settings).on_a_machine(settings, devices)
        evaluator = replace(self.evaluator, processes=processes, lanes=max(1, self.evaluator.lanes // processes))
        together = GROUP if len(devices) > 1 else len(names)
        groups = [names[start : start + together] for start in range(0, len(names), together)]
        batches = -(-len(self.pictures) // (settings.batch_size or batch_size_for(devices[0])))
        wanted = 1 if len(devices) == 1 else -(-SHARES_EACH * len(devices) // len(groups))
        shares = max(1, min(wanted, batches // self.shards))
        return self.job.run(evaluator, groups, shares)

    def _conclude(self, name: str, replies: Sequence[Reply]) -> None:
        """Write what became of a model, now that all its shares of this run are done."""
        error = next((reply.error for reply in replies if reply.error is not None), None)
        results = [reply.result for reply in replies if reply.result is not None]
        known = next((result for result in results if isinstance(result, str)), None)
        try:
            if error is not None:
                raise UserError(error)
            if known is None:
                self._merge(name, results[0])
            elif known == name:
                self._skip(name)
            else:
                self.stored_as[name] = known
                stored = f"whose predictions are already in {self.folder}"
                self.remarks.append(f"{name} is the same model as {known}, {stored}")
                self.became.setdefault(known, "skipped")
        except CannotWrite:
            raise  # this is no failure of the model
        except UserError as problem:
            self._fail(name, record_failure(self.folder, name, problem))
        finally:
            self.locks.pop(name).release()
        if name in self.failed or name in self.stored_as or self.became.get(name) == "skipped":
            self.job.count(len(self.pictures) // self.shards)

    def _merge(self, name: str, opened: OpenedModel) -> None:
        """Write the predictions of a model if all parts are there; if another shard is still at work, that is later."""

        def parts() -> Parts:
            return Parts(opened.folder(self.folder, opened.size))

        def merge() -> bool:
            made = parts()
            if missing := opened.batches - len(made.done):
                raise UserError(f"{missing} batches of {name} are missing", run="the same command")
            self.warnings[name] = _finish(self.folder, opened, made, self.pictures, self.evaluator.settings)
            self.became[name] = "scored"
            return True

        def already() -> bool | None:
            return self._skip(name) if is_finished(self.folder, opened.slug, opened.fingerprint) else None

        lock = self.folder / PARTS / f"{opened.slug}.lock"
        if self.job.merged(lock, lambda: len(parts().done) == opened.batches, already, merge) is None:
            self.became[name] = "unfinished"

    def _skip(self, name: str) -> bool:
        """Skip a model whose predictions are complete, and remove what a killed run left behind."""
        slug = slug_of(name)
        for folder in all_parts(self.folder, slug):
            remove_folder(folder)
        with contextlib.suppress(OSError):
            remove_file(self.folder / f"{slug}{FAILED}")
        self.became[name] = "skipped"
        self.warnings[name] = list(read_json(self.folder / f"{slug}.json").get("warnings", []))
        return True

    def _fail(self, name: str, reason: str) -> None:
        self.failed[name] = reason
        self.job.failed = len(self.failed)


@takes(EvaluateSettings)
def evaluate(
    benchmark: str | Path,
    models: str | Model | Sequence[str | Model],
    output: str | Path,
    settings: EvaluateSettings,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> pl.DataFrame:
    """Return the predictions of every model for a benchmark's folder or `images:FOLDER`, one row per picture and model.

    They are stored in `output`, one Parquet file and one card per model, and reused the next time. progress: called
    with the number of predictions made so far and in total.
    """
    from .reading import read_predictions

    chosen = [models] if isinstance(models, str) or not isinstance(models, Sequence) else list(models)
    done = run_evaluation(benchmark, chosen, output, settings, progress=progress)
    failures = [f"{name} failed: {reason}" for name, reason in done.failed.items()]
    for text in [*(line for lines in done.warnings.values() for line in lines), *failures]:
        python_warnings.warn(text, UnswayedWarning, stacklevel=2)
    if not done.scored and not done.skipped:
        raise UserError("no model could be evaluated:\n" + "\n".join(failures))
    return read_predictions(output, [*done.scored, *done.skipped])


def _named(models: Sequence[str | Model]) -> tuple[dict[str, str | Model], list[str]]:
    """The models by their names in tables, and a remark about each that is left out since it is named twice, by
    whatever path; two different ones with the same file name are refused.

    An alias is a name that was asked for, so a model with an alias is kept beside the same one without it.
    """
    named: dict[str, str | Model] = {}
    remarks: list[str] = []
    seen: dict[tuple[str | None, str], str] = {}
    files: dict[str, str] = {}
    for model in dict.fromkeys(models):
        name = model if isinstance(model, str) else model.name
        if isinstance(model, str):
            alias = split_alias(model)[0]
            first = seen.setdefault((alias, model_key(model)), model)
            if first is not model:
                remarks.append(f"{model} is the same model as {first} and is evaluated once")
                continue
            name = alias or model
        slug = slug_of(name)
        if slug in files:
            raise UserError(
                f"two models would be stored as {slug}.parquet: {files[slug]!r} and {name!r}",
                allowed="different names: Classifier(…, name=…); or one -o for each",
            )
        files[slug], named[name] = name, model
    return named, remarks


def _finish(
    folder: Path, model: OpenedModel, parts: Parts, pictures: Pictures, settings: EvaluateSettings
) -> list[str]:
    """Write the model's Parquet file and then its card, which marks the predictions as complete; returns warnings."""
    table, notes = _merged(parts), parts.notes()
    unreadable, checked = notes["unreadable"], notes["check"]
    if table.num_rows + len(unreadable) != len(pictures):
        parts.remove()
        raise UserError(
            f"the parts of {model.name} contain {table.num_rows} predictions for {len(pictures)} pictures; they "
            "were deleted",
            run="the same command again",
        )
    bad = next((f"first {picture}: {reason}" for picture, reason in unreadable.items()), "")
    if not table.num_rows:
        parts.remove()  # the cause may be the folder, not the pictures
        raise UserError(f"none of the {len(pictures)} pictures can be read, {bad}")
    seen = training_overlap(model.name, model.card["origin"], pictures.photographs)
    # By lists, since Arrow imports pandas, which takes a second, to compare with a text or to fill with a number.
    is_original = [edit == ORIGINAL for edit in table["edit"].to_pylist()]
    labels, predicted, correct = (
        [*itertools.compress(table[name].to_pylist(), is_original)] for name in ("label", "predicted", "correct")
    )
    answered = (np.array([-1 if index is None else index for index in values]) for values in (labels, predicted))
    # The check before the evaluation sees some of the originals, and this one all of them.
    suspected = checked.get("suspicion") or suspect_exchange(model.name, pictures.labels, *answered)
    answers: Json = {}
    silent, spoken = None, list[str]()
    if model.task == "answer":
        from .answers import summary

        answers, silent, spoken = summary(model.name, table, model.mapping.classes)
    suspicion = "; ".join(doubt for doubt in (suspected, silent, pictures.doubt, seen.suspicion) if doubt) or None
    told = [*map(str, checked.get("remarks", [])), *filter(None, [seen.remark, model.card["origin"].get("assumed")])]
    told += spoken
    warnings = [*filter(None, [suspicion]), *told]
    few = [number for number in notes["adapted"].values() if number < ENOUGH]
    if few:
        warnings.append(
            f"{model.name}: the batch-norm statistics of {len(few)} edits come from at most {max(few)} pictures"
        )
    # Copies of the photographs have no mask, which only models that find objects need.
    without = [picture for picture in unreadable if model.task == "classify" or f"/{SOURCE_EDIT}/" not in picture]
    if without:
        what = "cannot be read" if model.task == "classify" else "are left out"
        warnings.append(f"{model.name}: {len(without)} pictures {what}, first {without[0]}: {unreadable[without[0]]}")
    subset = pictures.subset
    of_subset = {"classes": len(subset), **_accuracy(table["subset_correct"].to_pylist())} if subset else {}
    results = {
        "settings": settings.on_card(),
        "rows": table.num_rows,
        "unreadable": unreadable,
        "originals": {**_accuracy(correct), "chance": chance_of(model.mapping, model.task)},
        **({"subset": of_subset} if of_subset else {}),
        **({"answers": answers} if answers else {}),
        "suspicion": suspicion,
        # Every table of numbers repeats the remarks about a benchmark's masks and photographs.
        "remarks": [*told, *(() if pictures.spec.startswith("images:") else pictures.remarks)],
        "warnings": warnings,
    }
    write_table(folder / f"{model.slug}.parquet", table, {**model.card, **results}, FINGERPRINT)
    remove_file(folder / f"{model.slug}{FAILED}")
    for left in all_parts(folder, model.slug):
        remove_folder(left)
    return warnings


def _accuracy(correct: Sequence[bool | None]) -> dict[str, object]:
    known = [right for right in correct if right is not None]
    return {"n": len(known), "accuracy": float(np.mean(known)) if known else None}


def _merged(parts: Parts) -> pa.Table:
    """All parts as one table in the order of the pictures; one that was made twice is in it once."""
    try:
        tables = [read_checked(path, {}) for path in parts.files()]
    except UserError:
        parts.remove()  # the next run makes them again
        raise
    table = pa.concat_tables(tables, promote_options="permissive")
    _, rows = np.unique(table["order"].to_pylist(), return_index=True)  # `to_numpy` imports pandas
    table = table.take(array_of(rows, pa.int64()))
    # Dictionaries are made again, since those of the parts depend on how the batches were divided.
    plain = pa.schema([(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMA])
    return table.select(SCHEMA.names).cast(plain).cast(SCHEMA).combine_chunks()


def record_failure(folder: Path, name: str, error: BaseException) -> str:
    """Write why a model could not be evaluated; its earlier predictions are kept."""
    reason = reason_of(error)
    write_json(folder / f"{slug_of(name)}{FAILED}", {"model": name, "error": reason})
    return reason


def _failures(folder: Path) -> set[tuple[Path, int, int]]:
    """The records of models that failed, each with its inode and time, which differ in a later one."""
    records = set()
    for path in folder.glob(f"*{FAILED}"):
        with contextlib.suppress(OSError):  # another run has just removed it
            records.add((path, path.stat().st_ino, path.stat().st_mtime_ns))
    return records
