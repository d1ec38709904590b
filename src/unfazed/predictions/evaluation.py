"""`run_evaluation`: classify every picture, decoded once, with every model; a stopped evaluation resumes."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from unfazed.engine.trial import try_alone
from unfazed.errors import UserError
from unfazed.files import make_folder, read_json, remove_file, remove_folder, write_json
from unfazed.labels import LabelSpace
from unfazed.locks import Lock
from unfazed.models.classifier import Classifier
from unfazed.models.heads import check_framing
from unfazed.models.label_mapping import LabelMapping, map_labels, read_groups
from unfazed.models.registry import model_key, model_spec, open_model, opener, split_alias
from unfazed.specs import slug_of
from unfazed.storage import local_copy, refresh

from .batch_sizes import batch_size_for, fits_beside
from .card import fingerprint_of, make_card
from .contract import chance_of
from .identity import require_room
from .inputs import ORIGINAL, Pictures, open_pictures
from .passes import Job, Pass
from .settings import EvaluateSettings
from .storage import FAILED, PARTS, Parts, begun_size, is_finished, parts_of, write_predictions

ADAPTATION_BATCH = 64  # fixed, since batch-norm statistics depend on it
RUNS_CODE = ("python",)  # sources whose models can end the whole process
ENOUGH = 256  # pictures below which re-estimated batch-norm statistics are worth a warning


@dataclass(frozen=True)
class Evaluation:
    """The result of a run: models evaluated now, already finished, and failed with the reason; warnings by model, also
    those of finished models;
    remarks: about the pictures, such as masks that were not counted as photographs."""

    folder: Path
    pictures: int
    scored: tuple[str, ...]
    skipped: tuple[str, ...]
    failed: dict[str, str]
    warnings: dict[str, list[str]]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Ready:
    """A loaded model whose classes match and whose predictions do not exist yet."""

    model: Classifier
    mapping: LabelMapping
    fingerprint: str
    lock: Lock


def run_evaluation(
    pictures: str | Path | Pictures,
    models: Sequence[str | Classifier],
    output: str | Path,
    settings: EvaluateSettings | None = None,
    *,
    save_every: float = 10.0,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Classify the pictures with every model; write one Parquet file and one card per model to `output`.

    pictures: a benchmark's folder or `images:FOLDER`. save_every: seconds between part files. progress: called with
    the number of predictions made so far and in total.

    A model whose predictions exist already, with the same weights, transform and pictures, is skipped. A model that
    fails is recorded as <model>.failed.json and the others continue; an unknown model source is refused at the start.
    Several processes may write to one folder, each with different models.
    """
    if not models:
        raise UserError("no model is given", allowed="-m lite:0 -m timm:resnet50 …", run="unfazed models")
    settings = EvaluateSettings() if settings is None else settings
    started = time.time()
    models, remarks = _distinct(models)
    _check_names(models)
    for model in models:
        if isinstance(model, str):
            opener(model_spec(model).kind)
    target = (
        pictures if isinstance(pictures, Pictures) else open_pictures(str(pictures), settings.limit, settings.verify)
    )
    grouping = read_groups(settings.groups) if settings.groups is not None else None
    folder = make_folder(local_copy(output))
    require_room(folder, target.described["identity"], target.rows)
    scored: list[str] = []
    skipped: list[str] = []
    failed: dict[str, str] = {}
    warnings: dict[str, list[str]] = {}

    def prepare(model: str | Classifier) -> _Ready | None:
        name = _name(model)
        named = not isinstance(model, str) or split_alias(model)[0] is not None
        try:
            if isinstance(model, str):
                if model_spec(model).kind in RUNS_CODE:
                    try_alone(functools.partial(_tried, model, target.labels))
                model = open_model(model, device=settings.device, precision=settings.precision, labels=target.labels)
            model = model.with_transform(settings.transform)
            check_framing(model, target.frame)
            mapping = map_labels(model.labels, target.labels, target.needed, grouping)
            size = None if model.adapt is None else settings.batch_size or ADAPTATION_BATCH
            fingerprint = fingerprint_of(model, mapping, target, size)
            _check_place(folder, model)
        except (Exception, SystemExit) as error:
            failed[name] = record_failure(folder, name, error)
            return None
        finished = is_finished(folder, model.slug, fingerprint)
        if not finished and not named:
            known = _known_as(folder, partial(fingerprint_of, model, mapping, target, size))
            if known is not None:
                remarks.append(f"{name} is the same model as {known}, whose predictions are already in {folder}")
                skipped.append(known)
                return None
        lock, ours = Lock(folder / PARTS / f"{model.slug}.lock"), False
        if not finished:
            locks.callback(lock.release)
            ours = lock.take()
            refresh(folder)
            # Checked again with the lock, because another process may just have finished it.
            finished = is_finished(folder, model.slug, fingerprint)
        if finished:
            left = parts_of(folder, model.slug)  # by a run that was killed when everything else was done
            if left and (ours or lock.take()):
                _remove(left)
            lock.release()
            with contextlib.suppress(OSError):
                remove_file(folder / f"{model.slug}{FAILED}")
            skipped.append(model.name)
            warnings[model.name] = list(read_json(folder / f"{model.slug}.json").get("warnings", []))
            return None
        if not ours:
            failed[model.name] = f"another process is evaluating it into {folder}: wait for it, or choose another -o"
            return None
        return _Ready(model, mapping, fingerprint, lock)

    done = 0
    with contextlib.ExitStack() as locks:
        for together in _side_by_side(models, prepare):
            for ready in _passes(together):
                size = _batch_size(folder, ready, settings.batch_size)
                jobs = [_job(folder, one, size, save_every) for one in ready]
                for count in Pass(target, jobs, size, settings.workers).run():
                    done += count
                    if progress:
                        progress(done + len(target) * (len(skipped) + len(failed)), len(target) * len(models))
                for job, one in zip(jobs, ready, strict=True):
                    try:
                        if job.error is not None:
                            raise UserError(job.error)
                        warnings[job.model.name] = _finish(folder, job, target, settings)
                        scored.append(job.model.name)
                    except UserError as error:
                        failed[job.model.name] = record_failure(folder, job.model.name, error)
                    finally:
                        one.lock.release()
    with contextlib.suppress(OSError):
        (folder / PARTS).rmdir()  # once it is empty
    if not failed:
        _forget_failures(folder, started)
    return Evaluation(folder, len(target), tuple(scored), tuple(skipped), failed, warnings, (*target.remarks, *remarks))


def _name(model: str | Classifier) -> str:
    """The name of a model in tables: its alias if it has one."""
    return (split_alias(model)[0] or model) if isinstance(model, str) else model.name


def _distinct(models: Sequence[str | Classifier]) -> tuple[list[str | Classifier], list[str]]:
    """The models without those that are named twice, by whatever path, and a remark about each that was left out."""
    kept: list[str | Classifier] = []
    remarks: list[str] = []
    seen: dict[str, str] = {}
    for model in dict.fromkeys(models):
        if isinstance(model, str):
            key = model_key(model)
            if key in seen:
                remarks.append(f"{model} is the same model as {seen[key]} and is evaluated once")
                continue
            seen[key] = model
        kept.append(model)
    return kept, remarks


def _known_as(folder: Path, fingerprint_as: Callable[[str], str]) -> str | None:
    """The name of the finished predictions in the folder that this model would make under that name; None if there are
    none."""
    for path in sorted(folder.glob("*.parquet")):
        card = path.with_suffix(".json")
        known = read_json(card) if card.is_file() else {}
        if isinstance(known, dict) and {"fingerprint", "model"} <= known.keys():
            name = str(known["model"])
            if is_finished(folder, path.stem, fingerprint_as(name)):
                return name
    return None


def _forget_failures(folder: Path, before: float) -> None:
    """Remove earlier records of models that failed and have no predictions, such as a misspelled name."""
    for path in folder.glob(f"*{FAILED}"):
        with contextlib.suppress(OSError):
            predictions = path.with_name(path.name.removesuffix(FAILED) + ".parquet")
            if path.stat().st_mtime < before and not predictions.is_file():
                remove_file(path)


def _check_names(models: Sequence[str | Classifier]) -> None:
    """Refuse models with the same name or the same file name."""
    seen: dict[str, str] = {}
    for model in models:
        name = _name(model)
        if slug_of(name) in seen:
            raise UserError(
                f"two models would be stored as {slug_of(name)}.parquet: {seen[slug_of(name)]!r} and {name!r}",
                allowed="different names: Classifier(…, name=…); or one -o for each",
            )
        seen[slug_of(name)] = name


def _check_place(folder: Path, model: Classifier) -> None:
    """Refuse a model whose file already belongs to another model."""
    card = folder / f"{model.slug}.json"
    there = read_json(card) if card.is_file() else None
    if isinstance(there, dict) and there.get("model", model.name) != model.name:
        raise UserError(
            f"{card} belongs to the predictions of {there['model']!r}, whose file has the same name",
            allowed="another folder -o",
        )


def _tried(name: str, labels: LabelSpace) -> None:
    """Open a model and classify one gray picture, on the CPU."""
    model = open_model(name, device="cpu", labels=labels)
    side = model.transform.crop
    model.logits(model.from_pixels(torch.full((1, side, side, 3), 128, dtype=torch.uint8)))


def record_failure(folder: Path, name: str, error: BaseException) -> str:
    """Write why a model could not be evaluated; its earlier predictions are kept."""
    reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    write_json(folder / f"{slug_of(name)}{FAILED}", {"model": name, "error": reason})
    return reason


def _side_by_side(models: Sequence[Any], prepare: Callable[[Any], _Ready | None]) -> Iterator[list[_Ready]]:
    """Yield groups of models that fit into memory together and share a pass."""
    ready: list[_Ready] = []
    for model in models:
        one = prepare(model)
        if one is not None:
            ready.append(one)
            if not fits_beside([other.model for other in ready]):
                yield ready
                ready = []
    if ready:
        yield ready


def _passes(ready: Sequence[_Ready]) -> Iterator[list[_Ready]]:
    """Yield groups of models that share a pass: those on one device, but each model that adapts on its own."""
    for device in dict.fromkeys(str(one.model.device) for one in ready):
        shared = [one for one in ready if one.model.adapt is None and str(one.model.device) == device]
        if shared:
            yield shared
    yield from ([one] for one in ready if one.model.adapt is not None)


def _job(folder: Path, ready: _Ready, size: int, save_every: float) -> Job:
    parts = Parts(folder, ready.model.slug, ready.fingerprint, size, save_every)
    return Job(ready.model, ready.mapping, ready.fingerprint, parts)


def _batch_size(folder: Path, ready: Sequence[_Ready], asked: int | None) -> int:
    """Return the given batch size, or that of an unfinished run in this folder, or what fits into memory."""
    if asked is not None:
        return asked
    if ready[0].model.adapt is not None:
        return ADAPTATION_BATCH
    begun = [begun_size(folder, one.model.slug, one.fingerprint) for one in ready]
    return next((size for size in begun if size), None) or batch_size_for([one.model for one in ready])


def _finish(folder: Path, job: Job, pictures: Pictures, settings: EvaluateSettings) -> list[str]:
    """Write the model's Parquet file and then its card, which marks the predictions as complete."""
    table = job.parts.merged()
    unreadable = job.parts.note("unreadable")
    if table.num_rows + len(unreadable) != len(pictures):
        job.parts.remove()
        raise UserError(
            f"the parts of {job.model.name} contain {table.num_rows} predictions for {len(pictures)} pictures; they "
            "were deleted",
            run="the same command again",
        )
    if not table.num_rows:
        job.parts.remove()  # the cause may be the folder, not the pictures
        first = next(iter(unreadable))
        raise UserError(f"none of the {len(pictures)} pictures can be read, first {first}: {unreadable[first]}")
    suspicion = "; ".join(one for one in (job.parts.note("check").get("suspicion"), pictures.doubt) if one) or None
    warnings = [suspicion] if suspicion else []
    few = [seen for seen in job.parts.note("adapted").values() if seen < ENOUGH]
    if few:
        warnings.append(
            f"{job.model.name}: the batch-norm statistics of {len(few)} edits come from at most {max(few)} pictures"
        )
    if unreadable:
        first = next(iter(unreadable))
        warnings.append(
            f"{job.model.name}: {len(unreadable)} pictures cannot be read, first {first}: {unreadable[first]}"
        )
    of_originals = [
        right
        for right, edit in zip(*(table[name].to_pylist() for name in ("correct", "edit")), strict=True)
        if edit == ORIGINAL and right is not None
    ]
    results = {
        "settings": settings.on_card(),
        "rows": table.num_rows,
        "unreadable": unreadable,
        "originals": {
            "n": len(of_originals),
            "accuracy": float(np.mean(of_originals)) if of_originals else None,
            "chance": chance_of(job.mapping),
        },
        **_over_subset(table, pictures),
        "suspicion": suspicion,
        "warnings": warnings,
    }
    slug = job.model.slug
    write_predictions(table, folder / f"{slug}.parquet", job.fingerprint)
    write_json(folder / f"{slug}.json", make_card(job.model, job.mapping, pictures, job.fingerprint, results))
    remove_file(folder / f"{slug}{FAILED}")
    _remove(parts_of(folder, slug))
    return warnings


def _remove(folders: Sequence[Path]) -> None:
    for folder in folders:
        remove_folder(folder)


def _over_subset(table: pa.Table, pictures: Pictures) -> dict[str, Any]:
    """Return the part of the card about the classes that occur in a folder, if they are some of ImageNet's."""
    classes = pictures.subset
    if classes is None:
        return {}
    right = [one for one in table["subset_correct"].to_pylist() if one is not None]
    accuracy = float(np.mean(right)) if right else None
    return {"subset": {"classes": len(classes), "n": len(right), "accuracy": accuracy}}
