"""`Evaluator`: opens models and classifies a part of the pictures with them, in this process or in a worker process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from unswayed.errors import UserError, reason_of
from unswayed.files.whole import read_json
from unswayed.jobs.settings import device_at
from unswayed.jobs.table_job import Journal
from unswayed.models.classifier import Classifier
from unswayed.models.heads import check_framing
from unswayed.models.label_mapping import LabelMapping, map_labels
from unswayed.models.opening import open_model
from unswayed.specs import is_same_model, slug_of, split_alias

from .batch_sizes import batch_size_for, fits_beside
from .card import fingerprint_of, model_card
from .inputs import Pictures
from .model_cards import PARTS
from .passes import Job, Pass
from .settings import EvaluateSettings
from .storage import Parts, begun_size, is_finished

ADAPTATION_BATCH = 64  # fixed, since batch-norm statistics depend on it


@dataclass(frozen=True)
class Part:
    """A task: part `number` of `count` equal parts of the pictures, classified by each of the models.

    skipped: pictures that end the process that reads them, with the reason. careful: one picture and one model at a
    time, with a journal that says afterwards which of them ended the process.
    """

    models: tuple[str | Classifier, ...]
    number: int = 0
    count: int = 1
    skipped: tuple[tuple[str, str], ...] = ()
    careful: bool = False

    @property
    def journal(self) -> str:
        return f"{slug_of(name_of(self.models[0]))}.{self.number}-{self.count}.journal"


@dataclass(frozen=True, eq=False)
class Opened:
    """What is known about an open model, without its network: enough to merge its predictions and to write its card.

    size: of its batches; batches: how many there are.
    """

    name: str
    slug: str
    fingerprint: str
    mapping: LabelMapping
    card: dict[str, Any]
    size: int
    batches: int

    def parts(self, folder: Path) -> Parts:
        return Parts(folder, self.slug, self.fingerprint, self.size)


@dataclass(frozen=True, eq=False)
class Answer:
    """What became of one model in one part: classified as `opened`, already `finished`, the `same_as` one that is
    finished, or failed with an `error`."""

    name: str
    opened: Opened | None = None
    finished: bool = False
    same_as: str | None = None
    error: str | None = None


@dataclass(frozen=True, eq=False)
class _Ready:
    """A loaded model whose classes match and whose predictions are not finished."""

    name: str
    model: Classifier
    mapping: LabelMapping
    fingerprint: str


@dataclass
class Evaluator:
    """Classifies parts of the pictures; keeps its models open for the next part.

    lanes: how many batches a CPU classifies beside each other; processes: how many evaluators share the machine;
    counted: called with the number of new predictions after every batch.
    """

    pictures: Pictures
    folder: Path
    settings: EvaluateSettings
    grouping: Any = None
    save_every: float = 10.0
    lanes: int = 1
    processes: int = 1
    counted: Callable[[int], None] | None = None
    opened: dict[str, _Ready | Answer] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """What another process gets: it opens the models itself."""
        return {**self.__dict__, "opened": {}, "counted": None}

    def __call__(self, part: Part, device: str | None = None) -> list[Answer]:
        """Return what became of each model; the predictions are in the part files."""
        device = device_at(device, self.settings.device)
        answers: list[Answer] = []
        with contextlib.ExitStack() as stack:
            path = self.folder / PARTS / part.journal
            journal = stack.enter_context(Journal(path)) if part.careful else None
            for ready in self._side_by_side(part, device, answers, journal):
                for together in _passes(ready):
                    answers += self._classify(part, together, journal)
        return answers

    def _classify(self, part: Part, ready: Sequence[_Ready], journal: Journal | None) -> list[Answer]:
        size = self._batch_size(ready)
        jobs = [
            Job(
                one.model,
                one.mapping,
                one.fingerprint,
                Parts(self.folder, one.model.slug, one.fingerprint, size, self.save_every),
            )
            for one in ready
        ]
        work = Pass(
            self.pictures,
            jobs,
            size,
            self.settings.workers,
            self.lanes,
            self.processes,
            (part.number, part.count),
            dict(part.skipped),
            journal,
        )
        for count in work.run():
            if self.counted is not None:
                self.counted(count)
        return [
            Answer(
                one.name,
                Opened(
                    job.model.name,
                    job.model.slug,
                    job.fingerprint,
                    job.mapping,
                    model_card(job.model, job.mapping, self.pictures, job.fingerprint),
                    size,
                    len(work.plan),
                ),
                error=job.error,
            )
            for job, one in zip(jobs, ready, strict=True)
        ]

    def _side_by_side(
        self, part: Part, device: str | None, answers: list[Answer], journal: Journal | None
    ) -> Iterator[list[_Ready]]:
        """Yield groups of models that fit into memory together and share a pass; add the others to the answers."""
        ready: list[_Ready] = []
        for key in [key for key in self.opened if key not in {name_of(model) for model in part.models}]:
            del self.opened[key]
        for model in part.models:
            name = name_of(model)
            if journal is not None:
                journal("model", name)
            one = self.opened[name] = self.opened.get(name) or self._open(model, device)
            if isinstance(one, Answer):
                answers.append(one)
                continue
            ready.append(one)
            if not fits_beside([other.model for other in ready]):
                yield ready
                for other in ready:
                    del self.opened[other.name]
                ready = []
        if ready:
            yield ready

    def _open(self, given: str | Classifier, device: str | None) -> _Ready | Answer:
        """Open a model; an answer if it fails or its predictions are complete."""
        name, pictures = name_of(given), self.pictures
        try:
            if isinstance(given, str):
                model = open_model(given, device=device, precision=self.settings.precision, labels=pictures.labels)
            else:
                model = given
            model = model.with_transform(self.settings.transform)
            check_framing(model, pictures.frame)
            mapping = map_labels(model.labels, pictures.labels, pictures.needed, self.grouping)
            size = None if model.adapt is None else self.settings.batch_size or ADAPTATION_BATCH
            fingerprint = fingerprint_of(model, mapping, pictures, size)
            _check_place(self.folder, model)
        except (Exception, SystemExit) as error:
            return Answer(name, error=reason_of(error))
        if is_finished(self.folder, model.slug, fingerprint):
            return Answer(name, finished=True)
        if isinstance(given, str) and split_alias(given)[0] is None:
            known = _known_as(self.folder, given, partial(fingerprint_of, model, mapping, pictures, size))
            if known is not None:
                return Answer(name, same_as=known)
        return _Ready(name, model, mapping, fingerprint)

    def _batch_size(self, ready: Sequence[_Ready]) -> int:
        """Return the given batch size, or that of an unfinished run in this folder, or the usual one."""
        if self.settings.batch_size is not None:
            return self.settings.batch_size
        if ready[0].model.adapt is not None:
            return ADAPTATION_BATCH
        begun = [begun_size(self.folder, one.model.slug, one.fingerprint) for one in ready]
        return next((size for size in begun if size), None) or batch_size_for(str(ready[0].model.device))


def name_of(model: str | Classifier) -> str:
    """Return the name of a model in tables: its alias if it has one."""
    return (split_alias(model)[0] or model) if isinstance(model, str) else model.name


def _passes(ready: Sequence[_Ready]) -> Iterator[list[_Ready]]:
    """Yield groups of models that share a pass: those on one device, but each model that adapts on its own."""
    for device in dict.fromkeys(str(one.model.device) for one in ready):
        shared = [one for one in ready if one.model.adapt is None and str(one.model.device) == device]
        if shared:
            yield shared
    yield from ([one] for one in ready if one.model.adapt is not None)


def _known_as(folder: Path, given: str, fingerprint_as: Callable[..., str]) -> str | None:
    """Return the other name under which the folder has the finished predictions of this same model, or None."""
    for path in sorted(folder.glob("*.parquet")):
        card = path.with_suffix(".json")
        known = read_json(card) if card.is_file() else {}
        if isinstance(known, dict) and {"fingerprint", "model"} <= known.keys():
            name = str(known["model"])
            spec = str(known.get("spec") or name)
            if is_same_model(given, spec) and is_finished(folder, path.stem, fingerprint_as(named=(name, spec))):
                return name
    return None


def _check_place(folder: Path, model: Classifier) -> None:
    """Refuse a model whose file already belongs to another model."""
    card = folder / f"{model.slug}.json"
    there = read_json(card) if card.is_file() else None
    if isinstance(there, dict) and there.get("model", model.name) != model.name:
        raise UserError(
            f"{card} belongs to the predictions of {there['model']!r}, whose file has the same name",
            allowed="another folder -o",
        )
