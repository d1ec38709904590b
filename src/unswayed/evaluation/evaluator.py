"""`Evaluator`: opens models and classifies shares of the pictures with them, in this process or in a worker process.

A model's card holds its weights, transform and pictures, and the fingerprint of all three.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
import torch

from unswayed.errors import UserError, reason_of
from unswayed.files.records import versions
from unswayed.files.whole import Json, hash_values, read_json
from unswayed.jobs import choose_device, device_at
from unswayed.jobs.parts import FLOATS, Parts, finished_card
from unswayed.jobs.resources import free_bytes
from unswayed.jobs.table_job import Journal, Reply, Share, journal_at
from unswayed.labels import Task
from unswayed.models.classifier import Classifier
from unswayed.models.from_python import classes_hash
from unswayed.models.label_mapping import LabelMapping, map_labels, map_objects
from unswayed.models.opening import Model, open_any
from unswayed.specs import is_same_model, slug_of, split_alias

from .inputs import Pictures
from .model_cards import FINGERPRINT, FORMAT, PARTS
from .passes import ModelPass, Pass
from .settings import EvaluateSettings

if TYPE_CHECKING:
    from unswayed.models.chat_server import Budget

ADAPTATION_BATCH = 64  # fixed, since batch-norm statistics depend on it
# Fixed, because the last digits of a prediction depend on it. A batch that does not fit into memory is divided.
CPU_BATCH, GPU_BATCH = 32, 256


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """What is known about an open model, without its network: enough to merge its predictions and to write its card.

    table: the model as it was given; card: what is known before the predictions are made; size: of its batches;
    batches: how many there are.
    """

    table: str
    name: str
    slug: str
    mapping: LabelMapping
    card: Json
    size: int = 0
    batches: int = 0

    @property
    def task(self) -> Task:
        task: Task = self.card.get("task") or "classify"
        return task

    @property
    def fingerprint(self) -> str:
        return str(self.card[FINGERPRINT])

    def folder(self, output: Path, size: int | str) -> Path:
        """The folder of the parts, which depend on the batch size: those of another one would not fit together."""
        return output / PARTS / f"{self.slug}-{self.fingerprint[:12]}-{size}"


# An open model whose predictions are not finished.
Loaded = tuple[Model, OpenedModel]


@dataclass
class Evaluator:
    """Classifies shares of the pictures; keeps its models open for the next share.

    specs: the models by their names in tables; those that are no names run in this process. lanes: how many batches a
    CPU classifies beside each other; processes: how many evaluators share the machine; counted: called with the number
    of new predictions after every batch. tell: called with what the answers of a server will cost; budget: of all
    models that are asked elsewhere.
    """

    pictures: Pictures
    folder: Path
    settings: EvaluateSettings
    specs: Mapping[str, str | Model]
    grouping: Any = None
    save_every: float = 10.0
    lanes: int = 1
    processes: int = 1
    counted: Callable[[int], None] | None = None
    tell: Callable[[str], None] | None = None
    budget: Budget | None = None
    opened: dict[str, Loaded | Reply] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, object]:
        """What another process gets: it opens the models itself."""
        specs = {name: model for name, model in self.specs.items() if isinstance(model, str)}
        return {**self.__dict__, "specs": specs, "opened": {}, "counted": None, "tell": None, "budget": None}

    def journal(self, share: Share) -> Path:
        return self.folder / PARTS / f"{slug_of(str(share.tables[0]))}.{share.number}-{share.count}.journal"

    def __call__(self, share: Share, device: str | None = None) -> list[Reply]:
        """What became of each model: an OpenedModel whose predictions are in the part files, or the name under which
        the folder has all its predictions already."""
        replies: list[Reply] = []
        gpu = choose_device(device_at(device, self.settings.device))
        if gpu.type == "cuda" and not share.careful:
            from .picture_readers import prepare_readers

            prepare_readers()
            threading.Thread(target=_start_libraries, args=(gpu,), daemon=True).start()
        with contextlib.ExitStack() as stack:
            journal = stack.enter_context(journal_at(self.journal(share))) if share.careful else None
            for ready in self._side_by_side(share, device, replies, journal):
                # Classifiers on one device share a pass, and so do other models, but each that adapts has its own.
                passes: dict[str, list[Loaded]] = {}
                for model, opened in sorted(ready, key=lambda loaded: loaded[0].adapt is not None):
                    kind = "" if isinstance(model, Classifier) else "answers on "
                    key = f"{kind}{model.device}" if model.adapt is None else f"{opened.table} adapts"
                    passes.setdefault(key, []).append((model, opened))
                for together in passes.values():
                    replies += self._classify(share, together, journal)
        return replies

    def _classify(self, share: Share, ready: Sequence[Loaded], journal: Journal | None) -> list[Reply]:
        size = self._batch_size(ready)
        parts = [Parts(opened.folder(self.folder, size), self.save_every) for _, opened in ready]
        models = [ModelPass(model, opened.mapping, own) for (model, opened), own in zip(ready, parts, strict=True)]
        workers = self.settings.workers
        work = Pass(self.pictures, models, size, workers, self.lanes, self.processes, share, journal)
        for count in work.run():
            if self.counted is not None:
                self.counted(count)
        return [
            Reply(opened.table, replace(opened, size=size, batches=len(work.plan)), progress.error)
            for (_, opened), progress in zip(ready, models, strict=True)
        ]

    def _side_by_side(
        self, share: Share, device: str | None, replies: list[Reply], journal: Journal | None
    ) -> Iterator[list[Loaded]]:
        """Yield groups of models that fit into memory together and share a pass; add the others to the replies."""
        ready: list[Loaded] = []
        self.opened = {name: loaded for name, loaded in self.opened.items() if name in share.tables}
        for name in map(str, share.tables):
            # One more model like the largest of these must leave half of the memory for the pictures.
            most = max((model.nbytes for model, _ in ready), default=0)
            if ready and 2 * most >= free_bytes(torch.device(str(ready[-1][0].device))) // 2:
                yield ready
                for _, opened in ready:
                    del self.opened[opened.table]
                ready = []
            if journal is not None:
                journal("model", name)
            loaded = self.opened[name] = self.opened.get(name) or self._open(name, device)
            if isinstance(loaded, Reply):
                replies.append(loaded)
            else:
                ready.append(loaded)
        if ready:
            yield ready

    def _open(self, name: str, device: str | None) -> Loaded | Reply:
        """Open a model; a reply if it fails or its predictions are complete."""
        pictures, settings, spec = self.pictures, self.settings, self.specs[name]
        frame, needed = pictures.frame, pictures.needed
        try:
            model: Model
            if isinstance(spec, str):
                where = device_at(device, settings.device)
                model = open_any(spec, device=where, precision=settings.precision, labels=pictures.labels)
            else:
                model = spec
            if isinstance(model, Classifier):
                model = model.with_transform(settings.transform)
                model.check_framing(frame)
            # A detector of other classes sees the pictures of those that it has; a question must have a right answer.
            mapped = map_labels if model.task in ("classify", "answer") else map_objects
            mapping = mapped(model.labels, pictures.labels, needed, self.grouping)
            size = None if model.adapt is None else settings.batch_size or ADAPTATION_BATCH
            card, determining = _described(model, mapping, pictures, size)
            opened = OpenedModel(name, model.name, model.slug, mapping, card)
            _check_owner(self.folder / f"{opened.slug}.json", model.name)
            finished = is_finished(self.folder, opened.slug, opened.fingerprint)
            if model.task == "answer" and not finished:
                from .answers import begin, budget_of

                self.budget = self.budget or budget_of(settings)
                begin(model, pictures, self.budget, self.tell)
        except (Exception, SystemExit) as error:
            return Reply(name, error=reason_of(error))
        if finished:
            return Reply(name, name)
        if isinstance(spec, str) and split_alias(spec)[0] is None:
            known = _stored_as(self.folder, spec, determining)
            if known is not None:
                return Reply(name, known)
        return model, opened

    def _batch_size(self, ready: Sequence[Loaded]) -> int:
        """The given batch size, or that of an unfinished run in this folder, or the usual one."""
        if self.settings.batch_size is not None:
            return self.settings.batch_size
        if ready[0][0].adapt is not None:
            return ADAPTATION_BATCH
        patterns = [opened.folder(self.folder, "*").name for _, opened in ready]
        begun = [path.name for pattern in patterns for path in sorted((self.folder / PARTS).glob(pattern))]
        sizes = [size for size in (name.rpartition("-")[2] for name in begun) if size.isdigit()]
        return int(sizes[0]) if sizes else batch_size_for(str(ready[0][0].device))


def _start_libraries(device: torch.device) -> None:
    """Let a GPU load what its first convolution needs, in a second or more, while the models are opened."""
    pixel = torch.zeros(1, 1, 1, 1, device=device)
    torch.nn.functional.conv2d(pixel, pixel)


def batch_size_for(device: str) -> int:
    """The usual number of pictures in a batch on this kind of device."""
    return CPU_BATCH if torch.device(device).type == "cpu" else GPU_BATCH


def _described(
    model: Model, mapping: LabelMapping, pictures: Pictures, adaptation: int | None
) -> tuple[dict[str, object], dict[str, object]]:
    """The part of the card that is known before the predictions are made, and what determines the predictions.

    Predictions with the same fingerprint, the SHA-256 of what determines them, are not made again. adaptation: the size
    of the batches that a model adapts to, which its statistics depend on. white_box in the card: whether adversarial
    pictures attack this model: the guide has the same weights or the same name.
    """
    spec, mapped = model.spec, mapping.to_json()
    code = model.origin.get("code_sha256")
    if isinstance(model, Classifier) and not model.origin:
        code = classes_hash(model.module)
    card = model.card()
    labels, weights = pictures.labels.to_json(), card["weights_sha256"]
    determining = {
        "format": FORMAT,
        "task": model.task,
        "weights": weights,
        "code": code,
        "settings": model.origin.get("settings"),
        "adaptation": adaptation,
        "transform": card["transform"],
        "precision": model.precision,
        "mapping": mapped,
        "labels": list(pictures.labels.classes),
        "pictures": pictures.described["sha256"],
    }
    if code is not None:  # a user's own network may compute with what is neither in its state nor in its code
        determining["answers"] = model.answers_hash
    return {
        **card,
        "format": FORMAT,
        "spec": spec,
        "labels": labels,
        "model_labels": {"name": model.labels.name, "classes": len(model.labels.classes)},
        "mapping": {key: value for key, value in mapped.items() if key != "members"},
        "benchmark": pictures.described,
        "white_box": bool({weights, spec.partition("+")[0]} & pictures.guides),
        FINGERPRINT: _fingerprint(determining, model.name, spec),
        "versions": versions(),
        "floats": FLOATS,
    }, determining


def _fingerprint(determining: Mapping[str, object], name: str, spec: str) -> str:
    # An alias says nothing about the model, and two models with the same weights can compute different things.
    return hash_values([{**determining, "model": name, **({"spec": spec} if spec != name else {})}])[0]


def is_evaluated(model: Model, card: Mapping[str, Any]) -> bool:
    """Whether the model is the one of a card, as far as that states its weights and its code."""
    code = (card.get("origin") or {}).get("code_sha256")
    return card.get("weights_sha256") in (None, model.weights_hash) and code in (None, model.origin.get("code_sha256"))


def is_finished(folder: Path, slug: str, fingerprint: str) -> bool:
    """Whether `folder` contains the complete predictions with this fingerprint."""
    path = folder / f"{slug}.parquet"
    card = finished_card(path, FINGERPRINT, fingerprint) if path.is_file() else None
    try:
        return card is not None and parquet.read_metadata(path).num_rows == card.get("rows")
    except (OSError, pa.ArrowException):
        return False


def all_parts(folder: Path, slug: str) -> list[Path]:
    """The folders of all unfinished runs of a model, also those with earlier settings."""
    pattern = re.compile(re.escape(slug) + r"-[0-9a-f]{12}-\d+")
    return [path for path in (folder / PARTS).glob("*-*-*") if pattern.fullmatch(path.name)]


def _stored_as(folder: Path, spec: str, determining: Mapping[str, object]) -> str | None:
    """The other name under which the folder has the finished predictions of this same model, or None."""
    for path in sorted(folder.glob("*.parquet")):
        file = path.with_suffix(".json")
        card = read_json(file) if file.is_file() else {}
        if isinstance(card, dict) and {FINGERPRINT, "model"} <= card.keys():
            name = str(card["model"])
            stored = str(card.get("spec") or name)
            if is_same_model(spec, stored) and is_finished(folder, path.stem, _fingerprint(determining, name, stored)):
                return name
    return None


def _check_owner(file: Path, model: str) -> None:
    """Refuse a model whose card would replace that of another model."""
    card = read_json(file) if file.is_file() else None
    if isinstance(card, dict) and card.get("model", model) != model:
        raise UserError(
            f"{file} belongs to the predictions of {card['model']!r}, whose file has the same name",
            allowed="another folder -o",
        )
