"""`run_evaluation`: every model over every picture, decoded once; stopped and taken up again at will."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unfazed.errors import UserError
from unfazed.files import read_json, write_json
from unfazed.models.classifier import Classifier
from unfazed.models.label_mapping import LabelMapping, map_labels, read_groups
from unfazed.models.registry import open_model, opener
from unfazed.models.specs import Spec, slug_of

from .card import fingerprint_of, make_card
from .memory import batch_size_for, fits_beside
from .passes import Job, Pass
from .pictures import ORIGINAL, Pictures, open_pictures
from .tables import PARTS, Parts, is_finished, write_predictions

ADAPTATION_BATCH = 64  # fixed, since batch-norm statistics depend on it
ENOUGH = 256  # pictures below which re-estimated batch-norm statistics are worth a warning
FAILED = ".failed.json"


@dataclass(frozen=True)
class Evaluation:
    """What a run did: models scored now, found finished before, and failed with the reason; warnings by model."""

    folder: Path
    pictures: int
    scored: tuple[str, ...]
    skipped: tuple[str, ...]
    failed: dict[str, str]
    warnings: dict[str, list[str]]


@dataclass(frozen=True, eq=False)
class _Ready:
    """A model that is open, whose classes fit, and whose predictions are not there yet."""

    model: Classifier
    mapping: LabelMapping
    fingerprint: str


def run_evaluation(
    pictures: str | Path | Pictures,
    models: Sequence[str | Classifier],
    output: str | Path,
    *,
    transform: str = "own",
    device: str | None = None,
    precision: str | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    groups: str | Path | None = None,
    limit: int | None = None,
    verify: bool = False,
    save_every: float = 10.0,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Classify the pictures with every model; one Parquet and one card a model in `output`.

    pictures: a benchmark's folder or `images:FOLDER`. transform: `own`, or `paper` (resize 256, crop 224). workers:
    processes that decode; chosen if None. groups: a JSON of the model's classes that stand for one of the
    benchmark's. verify: check every hash of the benchmark first. save_every: seconds between part files. progress:
    called with the number of answers there are and there will be.

    A model whose predictions are there already, with the same weights, transform and pictures, is left alone. A model
    that fails is recorded as <model>.failed.json and the others go on; a source that does not exist is refused first.
    """
    if not models:
        raise UserError("no model is named", allowed="-m lite:0 -m timm:resnet50 …", run="unfazed models")
    if batch_size is not None and batch_size < 1:
        raise UserError(f"the batch size is {batch_size}", allowed="1 or more")
    models = list(dict.fromkeys(models))
    for model in models:
        if isinstance(model, str):
            opener(Spec.parse(model).source)
    target = pictures if isinstance(pictures, Pictures) else open_pictures(str(pictures), limit, verify)
    grouping = read_groups(groups) if groups is not None else None
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    scored: list[str] = []
    skipped: list[str] = []
    failed: dict[str, str] = {}
    warnings: dict[str, list[str]] = {}

    def prepare(model: str | Classifier) -> _Ready | None:
        name = model if isinstance(model, str) else model.name
        try:
            if isinstance(model, str):
                model = open_model(model, device=device, precision=precision, labels=target.labels)
            model = model.with_transform(transform)
            mapping = map_labels(model.labels, target.labels, target.needed, grouping)
            fingerprint = fingerprint_of(model, mapping, target)
        except Exception as error:
            failed[name] = record_failure(folder, name, error)
            return None
        if is_finished(folder, model.slug, fingerprint):
            skipped.append(model.name)
            return None
        return _Ready(model, mapping, fingerprint)

    done = 0
    for together in _side_by_side(models, prepare):
        for ready in _passes(together):
            size = _batch_size(folder, [one.model for one in ready], batch_size)
            jobs = [_job(folder, one, size, save_every) for one in ready]
            for count in Pass(target, jobs, size, workers).run():
                done += count
                if progress:
                    progress(done + len(target) * (len(skipped) + len(failed)), len(target) * len(models))
            for job in jobs:
                if job.error is None:
                    warnings[job.model.name] = _finish(folder, job, target)
                    scored.append(job.model.name)
                else:
                    failed[job.model.name] = record_failure(folder, job.model.name, UserError(job.error))
    _forget_batch_size(folder)
    return Evaluation(folder, len(target), tuple(scored), tuple(skipped), failed, warnings)


def record_failure(folder: Path, name: str, error: Exception) -> str:
    """Write why a model could not be scored; predictions of an earlier state of it stay where they are."""
    reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    write_json(folder / f"{slug_of(name)}{FAILED}", {"model": name, "error": reason})
    return reason


def _side_by_side(models: Sequence[Any], prepare: Callable[[Any], _Ready | None]) -> Iterator[list[_Ready]]:
    """Models that fit into memory together, as many as do, share a pass; the others come in turns."""
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
    """Models on one device that do not adapt share a pass; each that adapts to its pictures has its own."""
    for device in dict.fromkeys(str(one.model.device) for one in ready):
        shared = [one for one in ready if one.model.adapt is None and str(one.model.device) == device]
        if shared:
            yield shared
    yield from ([one] for one in ready if one.model.adapt is not None)


def _job(folder: Path, ready: _Ready, size: int, save_every: float) -> Job:
    # Parts are cut by the batch size: with another one they would not fit together.
    parts = Parts(folder, ready.model.slug, f"{ready.fingerprint[:12]}-{size}", save_every)
    return Job(ready.model, ready.mapping, ready.fingerprint, parts)


def _batch_size(folder: Path, models: Sequence[Classifier], asked: int | None) -> int:
    """The size asked for; else that of an unfinished run in this folder, so that it goes on; else what fits."""
    if asked is not None:
        return asked
    if models[0].adapt is not None:
        return ADAPTATION_BATCH
    kept = folder / PARTS / "batch_size.json"
    if kept.is_file():
        return int(read_json(kept))
    size = batch_size_for(models)
    write_json(kept, size)
    return size


def _forget_batch_size(folder: Path) -> None:
    parts = folder / PARTS
    if parts.is_dir() and not any(path.is_dir() for path in parts.iterdir()):
        (parts / "batch_size.json").unlink(missing_ok=True)
        parts.rmdir()


def _finish(folder: Path, job: Job, pictures: Pictures) -> list[str]:
    """The model's Parquet and card, in this order: a card says that its predictions are whole."""
    table = job.parts.merged()
    unreadable = job.parts.note("unreadable")
    warnings = list(job.parts.note("check").get("warnings", []))
    few = [seen for seen in job.parts.note("adapted").values() if seen < ENOUGH]
    if few:
        warnings.append(
            f"{job.model.name}: batch-norm statistics of {len(few)} edits come from {max(few)} pictures or fewer"
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
        "rows": table.num_rows,
        "unreadable": unreadable,
        "originals": {"n": len(of_originals), "accuracy": float(np.mean(of_originals)) if of_originals else None},
        "warnings": warnings,
    }
    slug = job.model.slug
    write_predictions(table, folder / f"{slug}.parquet")
    write_json(folder / f"{slug}.json", make_card(job.model, job.mapping, pictures, job.fingerprint, results))
    (folder / f"{slug}{FAILED}").unlink(missing_ok=True)
    job.parts.remove()
    return warnings
