"""The parts of unswayed by the protocols of MAITE, so that its programs use them as they are.

    from maite.tasks import evaluate
    from unswayed.benchmark.maite import Augmentation, Dataset

    evaluate(model=model, dataset=Dataset("bench"), metric=metric, augmentation=Augmentation(lighting=-2))

`Dataset` is a benchmark, for image classification or object detection; `Augmentation` is an edit; `classifier` and
`detector` make a MAITE model one of ours. The protocols are structural, so nothing of MAITE is imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from unswayed.benchmark.folder import Benchmark
from unswayed.choices import check_choice
from unswayed.errors import UserError
from unswayed.labels import LabelSpace
from unswayed.models.classifier import Classifier
from unswayed.models.label_mapping import imagenet_or
from unswayed.models.objects import ObjectModel
from unswayed.models.transforms import Transform
from unswayed.models.wrappers import LogProbabilities
from unswayed.rendering.layers import Renderer
from unswayed.rendering.photograph import EditValue, Request, chain_of, edit_photograph, read_scene
from unswayed.scene import Scene, frame
from unswayed.sources.coco import box_of, read_objects
from unswayed.sources.pictures import read_mask, read_picture

Task = Literal["classify", "detect"]


@dataclass(frozen=True, eq=False)
class Boxes:
    """The objects of a picture: boxes (n, 4) as left, top, right, bottom in pixels, labels (n,) and scores (n,)."""

    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


class Dataset:
    """A benchmark's finished pictures, (3, H, W) uint8, or those of one edit.

    task: with `classify` a target is one-hot, (classes,) float32; with `detect` it is the box of the edited object, and
    then those of the others, as they are in the edited picture. Of each datum, `id` is the picture's, and `mask`
    (H, W) bool shows its object, for an `Augmentation`. Pictures without a label and, with `detect`, those without a
    visible object are left out.
    """

    def __init__(self, benchmark: str | Path, edit: str | None = None, task: Task = "classify") -> None:
        check_choice("task of a MAITE data set", task, Task)
        opened = Benchmark(benchmark)
        self.root, self.labels, self.task = opened.root, opened.labels, task
        classes = dict(enumerate(self.labels.classes))
        self.metadata: object = {"id": f"{self.root.name}{'' if edit is None else f'/{edit}'}", "index2label": classes}
        rows = (opened if edit is None else opened.edit(edit)).manifest.to_pylist()
        self.rows = [row for row in rows if row["status"] == "ok" and row.get("label") is not None]
        if task == "detect":
            self.rows = [row for row in self.rows if row.get("mask_path") and self._mask(row).any()]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int, /) -> tuple[np.ndarray, object, dict[str, object]]:
        return self.get_input(index), self.get_target(index), self.get_metadata(index)

    def get_input(self, index: int, /) -> np.ndarray:
        return np.ascontiguousarray(read_picture(self.root / self.rows[index]["path"]).transpose(2, 0, 1))

    def get_target(self, index: int, /) -> object:
        row = self.rows[index]
        if self.task == "classify":
            return np.eye(len(self.labels), dtype=np.float32)[row["label"]]
        others = [other for other in read_objects(row.get("objects"), row["sample_id"]) if other.label is not None]
        boxes = np.array([box_of(self._mask(row)), *(other.box for other in others)], np.float32)
        labels = np.array([row["label"], *(other.label for other in others)], np.int64)
        return Boxes(boxes, labels, np.ones(len(labels), np.float32))

    def get_metadata(self, index: int, /) -> dict[str, object]:
        row = self.rows[index]
        mask = {"mask": self._mask(row)} if row.get("mask_path") else {}
        return {"id": row["sample_id"], **{name: row[name] for name in ("source_id", "edit", "run")}, **mask}

    def _mask(self, row: Mapping[str, Any]) -> np.ndarray:
        return read_mask(self.root / row["mask_path"]) > 0.5


class Augmentation:
    """Edits the object of every picture of a batch, by the edits of `unswayed.edit`, such as `size=0.05`.

    The object is what the datum's `mask` shows, otherwise what is in the first box of its target. Pictures are
    (3, H, W) uint8, or floating point in [0, 1]; they return as squares of the same kind, `pixels` on a side or as
    large as they are. The first box becomes that of the edited object; the others stay where they are. A picture that
    cannot be edited is only framed, and its datum says why in `not_edited`. settings: fields of
    `unswayed.rendering.photograph.Request`, such as `renderer`, by default `paste`.
    """

    def __init__(
        self, *, seed: int = 0, pixels: int | None = None, settings: Mapping[str, Any] | None = None, **edits: EditValue
    ) -> None:
        self.request = Request(chain_of(edits), **{"renderer": "paste", **(settings or {})})
        self.seed, self.pixels = seed, pixels
        self.metadata: object = {"id": f"unswayed {', '.join(f'{name}={value}' for name, value in edits.items())}"}

    @cached_property
    def _renderer(self) -> Renderer:
        return self.request.open_renderer()

    def __call__(
        self, batch: tuple[Sequence[Any], Sequence[Any], Sequence[Any]], /
    ) -> tuple[list[Any], list[Any], list[Any]]:
        made = [self._edited(*datum) for datum in zip(*batch, strict=True)]
        pictures, targets, metadata = ([datum[part] for datum in made] for part in range(3))
        return pictures, targets, metadata

    def _edited(
        self, picture: object, target: object, metadata: Mapping[str, object]
    ) -> tuple[np.ndarray, object, dict[str, object]]:
        values, boxes = np.asarray(picture), np.asarray(getattr(target, "boxes", np.zeros((0, 4))))
        levels = values if values.dtype == np.uint8 else np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
        scene = frame(_scene(np.ascontiguousarray(levels.transpose(1, 2, 0)), boxes, metadata))
        digest = hashlib.blake2b(f"{self.seed} {metadata['id']}".encode(), digest_size=4).digest()
        request = replace(self.request, seed=int.from_bytes(digest, "big"), size=self.pixels or len(scene.image))
        told = {}
        try:
            edited = edit_photograph(request, scene, renderer=self._renderer)
            pixels, mask = np.asarray(edited.image), np.asarray(edited.mask) > 127
        except UserError as error:
            framed = scene.resized((request.size, request.size))
            pixels, mask, told = framed.image, framed.mask > 0.5, {"not_edited": error.given}
        pixels = np.ascontiguousarray(pixels.transpose(2, 0, 1))
        if len(boxes):
            target = _moved(target, scene, mask, request.size / len(scene.image))
        same = pixels if values.dtype == np.uint8 else (pixels / 255).astype(values.dtype)
        return same, target, {**metadata, **told, "mask": mask}


def _scene(image: np.ndarray, boxes: np.ndarray, metadata: Mapping[str, object]) -> Scene:
    """The picture with its object's mask; the other boxes are parts, which are framed with it."""
    places = [tuple(box) for box in np.rint(boxes).astype(int).clip(0).tolist()]
    if "mask" not in metadata and not places:
        raise UserError(
            f"the datum {metadata['id']!r} does not say where its object is",
            allowed="a `mask` (H, W) in the metadata of the datum, or boxes in its target",
        )
    if "mask" in metadata:
        scene = read_scene(image, np.asarray(metadata["mask"]))
    else:
        left, top, right, bottom = places[0]
        scene = read_scene(image, (left, top, right - left, bottom - top))
    parts = {}
    for number, (left, top, right, bottom) in enumerate(places[1:], 1):
        parts[str(number)] = np.zeros(scene.mask.shape, bool)
        parts[str(number)][top:bottom, left:right] = True
    return replace(scene, parts=parts)


def _moved(target: Any, scene: Scene, mask: np.ndarray, scale: float) -> Boxes:
    """The boxes of a target in the edited picture: that of the object by its mask, the others as they were framed."""
    framed = {int(name): box_of(part > 0.5) for name, part in scene.parts.items()}
    there = {0: box_of(mask), **{number: box and tuple(scale * side for side in box) for number, box in framed.items()}}
    kept = [number for number, box in there.items() if box]
    boxes = np.array([there[number] for number in kept], np.float32).reshape(-1, 4)
    return Boxes(boxes, np.asarray(target.labels)[kept], np.asarray(target.scores)[kept])


def classifier(
    model: Any, transform: Any = None, labels: Any = None, outputs: Literal["probabilities", "logits"] = "probabilities"
) -> Classifier:
    """A MAITE image classification model as one of ours, for `evaluate` and the other commands.

    transform: how a picture becomes (3, crop, crop), as for `Classifier`; by default pixels in [0, 1] at 256×256.
    labels: a LabelSpace or a list of names; by default the model's own `index2label`.
    """

    class Called(nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            answers = [torch.as_tensor(np.asarray(answer)) for answer in model(list(pixels))]
            return torch.stack(answers).to(pixels.device)

    check_choice("kind of outputs", outputs, Literal["probabilities", "logits"])
    module = LogProbabilities(Called()) if outputs == "probabilities" else Called()
    plain = Transform(256, 256, mean=(0.0,) * 3, std=(1.0,) * 3)
    return Classifier(module, transform or plain, _labels(model, labels), name=_name(model))


def detector(model: Any, labels: Any = None, **more: Any) -> ObjectModel:
    """A MAITE object detection model as one of ours; it gets whole pictures, (3, H, W) uint8.

    labels: as for `classifier`; more: fields of `ObjectModel`, such as `threshold`.
    """

    def find(pictures: list[np.ndarray]) -> list[Any]:
        answers = model([np.ascontiguousarray(picture.transpose(2, 0, 1)) for picture in pictures])
        scores = [np.asarray(answer.scores, np.float64) for answer in answers]  # (n,) or (n, classes)
        kept = [values.max(1, initial=0) if values.ndim == 2 else values for values in scores]
        return [(np.asarray(a.boxes), np.asarray(a.labels), value) for a, value in zip(answers, kept, strict=True)]

    return ObjectModel(find, _labels(model, labels), name=_name(model), **more)


def _labels(model: Any, labels: Any) -> LabelSpace:
    named = getattr(model, "metadata", {}).get("index2label") or {}
    if labels is None and (not named or sorted(named) != list(range(len(named)))):
        raise UserError(f"{_name(model)} does not name its classes from 0 on", allowed="labels=[…], in their order")
    listed = [str(named[index]) for index in sorted(named)] if labels is None else labels
    return listed if isinstance(listed, LabelSpace) else imagenet_or("maite", listed)


def _name(model: object) -> str:
    return str(getattr(model, "metadata", {}).get("id") or type(model).__name__)
