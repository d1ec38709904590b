"""`Evaluator`: opens models and classifies shares of the pictures with them, in this process or in a worker process.

A model's card holds its weights, transform and pictures, and the fingerprint of all three.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import torch

from unswayed.errors import UserError, reason_of
from unswayed.files.records import versions
from unswayed.files.whole import canonical, read_json
from unswayed.jobs.parts import FLOATS, Parts, finished_card
from unswayed.jobs.resources import free_bytes
from unswayed.jobs.settings import device_at
from unswayed.jobs.table_job import Journal, Reply, Share
from unswayed.models.classifier import Classifier
from unswayed.models.from_python import classes_hash
from unswayed.models.heads import check_framing
from unswayed.models.label_mapping import LabelMapping, map_labels
from unswayed.models.opening import open_model
from unswayed.specs import is_same_model, slug_of, split_alias

from .inputs import Pictures
from .model_cards import FINGERPRINT, PARTS
from .passes import ModelPass, Pass
from .settings import EvaluateSettings

FORMAT = 2  # raised when the meaning of a column changes, so that old predictions are replaced
ADAPTATION_BATCH = 64  # fixed, since batch-norm statistics depend on it
# Fixed, because the last digits of a prediction depend on it. A batch that does not fit into memory is divided.
CPU_BATCH, GPU_BATCH = 32, 256


@dataclass(frozen=True, eq=False)
class OpenedModel:
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
        return Parts(parts_folder(folder, self.slug, self.fingerprint, self.size))


@dataclass(frozen=True)
class FinishedModel:
    """A model whose predictions are complete; stored_as: the other name under which the folder has them, if any."""

    stored_as: str | None = None


@dataclass(frozen=True, eq=False)
class _LoadedModel:
    """A loaded model whose classes match and whose predictions are not finished."""

    name: str
    model: Classifier
    mapping: LabelMapping
    fingerprint: str


@dataclass
class Evaluator:
    """Classifies shares of the pictures; keeps its models open for the next share.

    objects: the models that are no names, by their names; they run in this process. lanes: how many batches a CPU
    classifies beside each other; processes: how many evaluators share the machine; counted: called with the number of
    new predictions after every batch.
    """

    pictures: Pictures
    folder: Path
    settings: EvaluateSettings
    specs: Mapping[str, str | Classifier]
    grouping: Any = None
    save_every: float = 10.0
    lanes: int = 1
    processes: int = 1
    counted: Callable[[int], None] | None = None
    opened: dict[str, _LoadedModel | Reply] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """What another process gets: it opens the models itself."""
        specs = {name: model for name, model in self.specs.items() if isinstance(model, str)}
        return {**self.__dict__, "specs": specs, "opened": {}, "counted": None}

    def journal(self, share: Share) -> Path:
        return self.folder / PARTS / f"{slug_of(str(share.tables[0]))}.{share.number}-{share.count}.journal"

    def __call__(self, share: Share, device: str | None = None) -> list[Reply]:
        """What became of each model; the predictions are in the part files."""
        device = device_at(device, self.settings.device)
        replies: list[Reply] = []
        with contextlib.ExitStack() as stack:
            journal = stack.enter_context(Journal(self.journal(share))) if share.careful else None
            for ready in self._side_by_side(share, device, replies, journal):
                for together in _passes(ready):
                    replies += self._classify(share, together, journal)
        return replies

    def _classify(self, share: Share, ready: Sequence[_LoadedModel], journal: Journal | None) -> list[Reply]:
        size = self._batch_size(ready)
        models = [
            ModelPass(
                loaded.model,
                loaded.mapping,
                Parts(parts_folder(self.folder, loaded.model.slug, loaded.fingerprint, size), self.save_every),
            )
            for loaded in ready
        ]
        settings = self.settings
        work = Pass(self.pictures, models, size, settings.workers, self.lanes, self.processes, share, journal)
        for count in work.run():
            if self.counted is not None:
                self.counted(count)
        replies = []
        for loaded, progress in zip(ready, models, strict=True):
            card = model_card(loaded.model, loaded.mapping, self.pictures, loaded.fingerprint)
            opened = OpenedModel(
                loaded.model.name, loaded.model.slug, loaded.fingerprint, loaded.mapping, card, size, len(work.plan)
            )
            replies.append(Reply(loaded.name, opened, progress.error))
        return replies

    def _side_by_side(
        self, share: Share, device: str | None, replies: list[Reply], journal: Journal | None
    ) -> Iterator[list[_LoadedModel]]:
        """Yield groups of models that fit into memory together and share a pass; add the others to the replies."""
        ready: list[_LoadedModel] = []
        for name in [name for name in self.opened if name not in share.tables]:
            del self.opened[name]
        for name in map(str, share.tables):
            if journal is not None:
                journal("model", name)
            model = self.opened[name] = self.opened.get(name) or self._open(name, device)
            if isinstance(model, Reply):
                replies.append(model)
                continue
            ready.append(model)
            if not _fits_beside([other.model for other in ready]):
                yield ready
                for other in ready:
                    del self.opened[other.name]
                ready = []
        if ready:
            yield ready

    def _open(self, name: str, device: str | None) -> _LoadedModel | Reply:
        """Open a model; a reply if it fails or its predictions are complete."""
        pictures, spec = self.pictures, self.specs[name]
        try:
            if isinstance(spec, str):
                model = open_model(spec, device=device, precision=self.settings.precision, labels=pictures.labels)
            else:
                model = spec
            model = model.with_transform(self.settings.transform)
            check_framing(model, pictures.frame)
            mapping = map_labels(model.labels, pictures.labels, pictures.needed, self.grouping)
            size = None if model.adapt is None else self.settings.batch_size or ADAPTATION_BATCH
            fingerprint = fingerprint_of(model, mapping, pictures, size)
            _check_owner(self.folder, model)
        except (Exception, SystemExit) as error:
            return Reply(name, error=reason_of(error))
        if is_finished(self.folder, model.slug, fingerprint):
            return Reply(name, FinishedModel())
        if isinstance(spec, str) and split_alias(spec)[0] is None:
            known = _stored_as(self.folder, spec, partial(fingerprint_of, model, mapping, pictures, size))
            if known is not None:
                return Reply(name, FinishedModel(known))
        return _LoadedModel(name, model, mapping, fingerprint)

    def _batch_size(self, ready: Sequence[_LoadedModel]) -> int:
        """The given batch size, or that of an unfinished run in this folder, or the usual one."""
        if self.settings.batch_size is not None:
            return self.settings.batch_size
        if ready[0].model.adapt is not None:
            return ADAPTATION_BATCH
        begun = [_begun_size(self.folder, loaded.model.slug, loaded.fingerprint) for loaded in ready]
        return next((size for size in begun if size), None) or batch_size_for(str(ready[0].model.device))


def batch_size_for(device: str) -> int:
    """The usual number of pictures in a batch on this kind of device."""
    return CPU_BATCH if torch.device(device).type == "cpu" else GPU_BATCH


def fingerprint_of(
    model: Classifier,
    mapping: LabelMapping,
    pictures: Pictures,
    adaptation: int | None = None,
    named: tuple[str, str] | None = None,
) -> str:
    """The SHA-256 of everything that determines the predictions; if it is unchanged they are not made again.

    adaptation: the size of the batches that a model adapts to, which its statistics depend on; named: another name of
    the model, and what opens it under that name.
    """
    name, spec = named or (model.name, model.spec)
    parts = {
        "format": FORMAT,
        "model": name,
        # An alias says nothing about the model, and two models with the same weights can compute different things.
        **({"spec": spec} if spec != name else {}),
        "weights": model.weights_hash,
        "code": model.origin.get("code_sha256") if model.origin else classes_hash(model.module),
        "settings": model.origin.get("settings"),
        "adaptation": adaptation,
        "transform": model.transform.to_json(),
        "precision": model.precision,
        "mapping": mapping.to_json(),
        "labels": list(pictures.labels.classes),
        "pictures": pictures.described["sha256"],
    }
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def model_card(model: Classifier, mapping: LabelMapping, pictures: Pictures, fingerprint: str) -> dict[str, Any]:
    """The part of the card that is known before the predictions are made.

    white_box: whether adversarial pictures attack this model: the guide has the same weights or the same name.
    """
    return {
        **model.card(),
        "spec": model.spec,
        "labels": pictures.labels.to_json(),
        "model_labels": {"name": model.labels.name, "classes": len(model.labels)},
        "mapping": {key: value for key, value in mapping.to_json().items() if key != "members"},
        "benchmark": pictures.described,
        "white_box": bool({model.weights_hash, model.spec.partition("+")[0]} & pictures.guides),
        "versions": versions(),
        "floats": FLOATS,
        FINGERPRINT: fingerprint,
    }


def is_evaluated(model: Classifier, card: Mapping[str, Any]) -> bool:
    """Whether the model is the one of a card, as far as that states its weights and its code."""
    code = (card.get("origin") or {}).get("code_sha256")
    return card.get("weights_sha256") in (None, model.weights_hash) and code in (None, model.origin.get("code_sha256"))


def is_finished(folder: Path, slug: str, fingerprint: str) -> bool:
    """Whether `folder` contains the complete predictions with this fingerprint."""
    path = folder / f"{slug}.parquet"
    card = finished_card(path, FINGERPRINT, fingerprint)
    try:
        return card is not None and parquet.read_metadata(path).num_rows == card.get("rows")
    except (OSError, pa.ArrowException):
        return False


def parts_folder(folder: Path, slug: str, fingerprint: str, size: int | str) -> Path:
    """The folder of the parts, which depend on the batch size: those of another one would not fit together."""
    return folder / PARTS / f"{slug}-{fingerprint[:12]}-{size}"


def all_parts(folder: Path, slug: str) -> list[Path]:
    """The folders of all unfinished runs of a model, also those with earlier settings."""
    pattern = re.compile(re.escape(slug) + r"-[0-9a-f]{12}-\d+")
    return [path for path in (folder / PARTS).glob("*-*-*") if pattern.fullmatch(path.name)]


def _begun_size(folder: Path, slug: str, fingerprint: str) -> int | None:
    """The batch size of an unfinished run with the same fingerprint, or None."""
    begun = sorted((folder / PARTS).glob(parts_folder(folder, slug, fingerprint, "*").name))
    sizes = (path.name.rpartition("-")[2] for path in begun)
    return next((int(size) for size in sizes if size.isdigit()), None)


def _fits_beside(models: Sequence[Classifier]) -> bool:
    """Whether one more model like the largest of these would leave half of the memory for the pictures."""
    largest = max((model.nbytes for model in models), default=0)
    return 2 * largest < free_bytes(torch.device(str(models[-1].device))) // 2


def _passes(ready: Sequence[_LoadedModel]) -> Iterator[list[_LoadedModel]]:
    """Yield groups of models that share a pass: those on one device, but each model that adapts on its own."""
    for device in dict.fromkeys(str(loaded.model.device) for loaded in ready):
        shared = [loaded for loaded in ready if loaded.model.adapt is None and str(loaded.model.device) == device]
        if shared:
            yield shared
    yield from ([loaded] for loaded in ready if loaded.model.adapt is not None)


def _stored_as(folder: Path, spec: str, fingerprint_as: Callable[..., str]) -> str | None:
    """The other name under which the folder has the finished predictions of this same model, or None."""
    for path in sorted(folder.glob("*.parquet")):
        file = path.with_suffix(".json")
        card = read_json(file) if file.is_file() else {}
        if isinstance(card, dict) and {FINGERPRINT, "model"} <= card.keys():
            name = str(card["model"])
            stored = str(card.get("spec") or name)
            if is_same_model(spec, stored) and is_finished(folder, path.stem, fingerprint_as(named=(name, stored))):
                return name
    return None


def _check_owner(folder: Path, model: Classifier) -> None:
    """Refuse a model whose file already belongs to another model."""
    file = folder / f"{model.slug}.json"
    card = read_json(file) if file.is_file() else None
    if isinstance(card, dict) and card.get("model", model.name) != model.name:
        raise UserError(
            f"{file} belongs to the predictions of {card['model']!r}, whose file has the same name",
            allowed="another folder -o",
        )
