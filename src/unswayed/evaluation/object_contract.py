"""The check of a detector or segmenter before it is evaluated: are its boxes, inputs and classes those that are stated?

Nearly every detector that seems to fail is only read wrongly. If the object is found clearly more often with its
corners exchanged, another box format, boxes as shares of the picture, another order of classes, or another
preprocessing, the model is evaluated as stated, with a suspicion about the cause in its card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unswayed.errors import UserError
from unswayed.labels import OVERLAP, WORDS
from unswayed.models.answering import Answer
from unswayed.models.box_decoding import corners
from unswayed.models.label_mapping import LabelMapping
from unswayed.models.objects import Inputs, ObjectModel
from unswayed.models.transforms import IMAGENET_MEAN, IMAGENET_STD
from unswayed.sources.pictures import read_picture

from .contract import clearly_better, sanity_sample, suspect_order
from .judging import NOTHING, Columns, Truth, judged_rows, overlaps_with

Change = Callable[[np.ndarray, np.ndarray], np.ndarray]  # boxes, and (width, height, width, height) of their picture
TRIED = 48  # originals that other inputs are tried on
FITTING = 0.7  # the least share of the objects of a seen class that another box format must fit
ENOUGH = 20  # originals from which a rate near zero is suspicious
RARELY = 0.05  # a rate near zero
BOTH = 0.5  # the least share of the originals that two mistakes at once must explain
UNLIKELY = 0.1  # how much more of the originals two mistakes must explain than one


def check_objects(
    model: ObjectModel,
    mapping: LabelMapping,
    paths: Sequence[str],
    answers: Sequence[Answer],
    truths: Sequence[Truth],
    judged: Sequence[Columns | str],
) -> tuple[list[str], list[str]]:
    """Return what is suspicious about a model, and remarks for a reader of its numbers, from its answers on originals.

    paths, answers, truths, judged: of each original.
    """
    asked = [position for position, row in enumerate(judged) if not isinstance(row, str)]
    if not asked:
        raise UserError(
            f"{model.name} cannot be asked about any of {len(judged)} originals: {judged[0]}",
            allowed="pictures with masks, of classes that the model has",
        )
    left_out = len(judged) - len(asked)
    remarks = [f"{model.name} is not asked about {left_out} of {len(judged)} originals"] if left_out else []
    tried = sanity_sample(asked, TRIED)
    few = ([listed[position] for position in tried] for listed in (paths, answers, truths))
    right = [not isinstance(row := judged[position], str) and bool(row["correct"]) for position in tried]
    suspicion = _Check(model, mapping, np.array(right), *few).cause()
    return ([suspicion] if suspicion else []), remarks


@dataclass(eq=False)
class _Check:
    """One model's answers about some originals, all of which it can be asked about; stated: which of them are right."""

    model: ObjectModel
    mapping: LabelMapping
    stated: np.ndarray
    paths: list[Any]
    answers: list[Any]
    truths: list[Any]

    def cause(self) -> str | None:
        """The likely cause of a low rate, in a sentence; None if nothing is suspicious."""
        count, rate, measure = len(self.stated), float(self.stated.mean()), WORDS[self.model.task].measure
        told = f"{self.model.name}: {measure} on {count} originals is {rate:.1%}"
        if not clearly_better(np.ones_like(self.stated), self.stated):
            return None
        best = max(self._causes(rate), key=lambda cause: cause[0], default=None)
        if best is not None:
            return f"{told}; suspected: {best[1]}"
        seen = int(self._seen().sum()) if self.model.task == "detect" else 0
        if 2 * seen >= count and 2 * rate < seen / count:
            return (
                f"{told}; suspected: the boxes. The class of the object is found in {seen} of {count}, but its box "
                "does not fit, which no other box format explains: an output may be clipped or quantized too coarsely"
            )
        if rate <= RARELY and count >= ENOUGH:
            return (
                f"{told}; no other box format, class order or common preprocessing explains it: the weights may be "
                "untrained, or the outputs may be read by the wrong decoding"
            )
        return None

    def _causes(self, rate: float) -> Iterator[tuple[float, str]]:
        """What explains the answers clearly better: how much it is preferred, the share of the originals that would be
        right, and a sentence. Two mistakes at once are less likely than one."""
        for part, text, fitting, answers in self._readings():
            rows = judged_rows(self.model, answers, self.truths, self.mapping)
            right = np.array([not isinstance(row, str) and bool(row["correct"]) for row in rows])
            if right.mean() >= fitting and clearly_better(right, self.stated):
                yield float(right.mean()), f"{part}. With {text} it would be {right.mean():.1%}"
            elif (order := self._order(answers)) is not None and order[1] >= max(BOTH, rate + UNLIKELY):
                yield order[1] - UNLIKELY, f"{part} and the label order. With {text}: {order[0]}"
        if (order := self._order(self.answers)) is not None:
            yield order[1], f"the label order. {order[0]}"

    def _readings(self) -> Iterator[tuple[str, str, float, Sequence[Answer]]]:
        """Other readings of the same model: what is read otherwise, how, the least share that it must explain, and the
        answers."""
        images = list(map(read_picture, self.paths))
        if self.model.task == "detect":
            prepared = [self.model.prepare(image) for image in images]
            found = list(self.model.find([picture.values for picture in prepared]))
            # The right format fits nearly all objects whose class is seen at all; a lucky one only some.
            fitting = FITTING * self._seen().mean()
            for text, change in _CHANGES.items():
                yield "the boxes", text, fitting, _changed(self.model, found, change).answer(prepared)
        for text, inputs in _inputs(self.model.inputs):
            other = replace(self.model, inputs=inputs)
            try:
                answers = other.answer([other.prepare(image) for image in images])
            except Exception:  # a network may take only inputs of its own kind
                continue
            yield "the preprocessing", text, 0.0, answers

    def _order(self, answers: Sequence[Answer]) -> tuple[str, float] | None:
        """The order of classes with which what lies on the object would be right, and that share of the originals."""
        classes = np.array([_at_object(answer, truth) for answer, truth in zip(answers, self.truths, strict=True)])
        at = np.flatnonzero(classes >= 0)
        if len(at) < 4:
            return None
        labels = np.array([truth.label for truth in self.truths])
        cause = suspect_order(self.model.labels, self.mapping, classes[at], labels[at], self.stated[at])
        if cause is None:
            return None
        told = cause.explanation.replace("accuracy would be", "of what it finds, right would be")
        return told, cause.accuracy * len(at) / len(self.stated)

    def _seen(self) -> np.ndarray:
        """On which of the originals the object's class is found anywhere."""
        pairs = zip(self.answers, self.truths, strict=True)
        members = self.mapping.members
        return np.array([np.isin(answer.classes[answer.scores >= answer.threshold], members[truth.label]).any()
                         for answer, truth in pairs])  # fmt: skip


def _changed(model: ObjectModel, found: Sequence[Any], change: Change) -> ObjectModel:
    """A model that answers what was found in some pictures, with its boxes read otherwise."""

    def find(pictures: list[np.ndarray]) -> list[object]:
        return [
            (change(np.reshape(boxes, (-1, 4)), np.tile(picture.shape[1::-1], 2)), *rest)
            for picture, (boxes, *rest) in zip(pictures, found, strict=True)
        ]

    return replace(model, find=find)


def _at_object(answer: Answer, truth: Truth) -> int:
    """The class of the most certain box, or of the mask, that fits the object, whatever it is called; -1 for none."""
    fitting = np.flatnonzero((overlaps_with(answer, truth) >= OVERLAP) & (answer.scores >= answer.threshold))
    return int(answer.classes[fitting[0]]) if len(fitting) else NOTHING


def _inputs(own: Inputs | None) -> Iterator[tuple[str, Inputs]]:
    """Other common inputs, each in words."""
    if own is None:
        return
    half, zero, one = (0.5,) * 3, (0.0,) * 3, (1.0,) * 3
    swapped = "BGR" if own.channels == "RGB" else "RGB"
    fits = [fit for fit in ("letterbox", "center", "squash") if fit != own.fit]
    variants = {
        "pixels in [0, 255]": replace(own, scale=255.0, mean=zero, std=one),
        "pixels in [0, 1]": replace(own, scale=1.0, mean=zero, std=one),
        "pixels in [-1, 1]": replace(own, scale=1.0, mean=half, std=half),
        "ImageNet's mean and std": replace(own, scale=1.0, mean=IMAGENET_MEAN, std=IMAGENET_STD),
        f"channels as {swapped}": replace(own, channels=swapped),  # type: ignore[arg-type]
        **{f"fit `{fit}`": replace(own, fit=fit) for fit in fits},  # type: ignore[arg-type]
    }
    yield from ((text, inputs) for text, inputs in variants.items() if inputs != own)


# What the stated boxes would be in another format; each undoes one common mistake.
_CHANGES: dict[str, Change] = {
    "x and y exchanged": lambda boxes, sides: corners(boxes, "yxyx"),
    "boxes as left, top, width and height": lambda boxes, sides: corners(boxes, "xywh"),
    "boxes as center, width and height": lambda boxes, sides: corners(boxes, "cxcywh"),
    "corners where width and height were added": lambda boxes, sides: np.concatenate(
        [boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], 1
    ),
    "corners where half of the size was added": lambda boxes, sides: np.concatenate(
        [(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1
    ),
    "boxes as shares of the sides": lambda boxes, sides: boxes * sides,
    "boxes in pixels": lambda boxes, sides: boxes / sides,
    "shares of the sides, x and y exchanged": lambda boxes, sides: corners(boxes, "yxyx") * sides,
    "boxes of half their numbers": lambda boxes, sides: boxes / 2,
    "boxes of twice their numbers": lambda boxes, sides: boxes * 2,
}
