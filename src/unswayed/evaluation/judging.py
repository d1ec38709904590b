"""Judging answers: what a model found or said about a picture, against what is known about its object, as a row.

The object's box and mask, and those of the other objects, are those of the edited picture itself, exact to the pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unswayed.errors import UserError
from unswayed.labels import OVERLAP, Task
from unswayed.models.answering import Answer
from unswayed.models.label_mapping import LabelMapping
from unswayed.models.opening import Model
from unswayed.sources.coco import Box, OtherObject, box_of, read_objects, run_length_mask, run_lengths

NOTHING = -1  # the predicted class where nothing, or nothing that the benchmark has a class for, was found
MOST_BOXES = 100  # of a picture that are stored, as COCO's evaluation counts them
Columns = dict[str, object]


@dataclass(frozen=True, eq=False)
class Truth:
    """What is known about a picture: the class of its object, its mask (H, W) bool, and the other objects."""

    label: int | None
    mask: np.ndarray | None
    others: tuple[OtherObject, ...] = ()

    @staticmethod
    def read(label: int | None, mask: np.ndarray | None, objects: str | None, where: str) -> Truth:
        """mask: (H, W) in [0, 1]; objects: the other objects as the manifest's JSON text."""
        return Truth(label, None if mask is None else mask > 0.5, read_objects(objects, where))

    @cached_property
    def box(self) -> Box | None:
        """The object's box; None if there is no mask, or nothing of the object is visible."""
        return None if self.mask is None else box_of(self.mask)


def box_overlaps(boxes: np.ndarray, other: Sequence[float]) -> np.ndarray:
    """(n,) IoU of boxes (n, 4), left, top, right, bottom, with one other.

    >>> box_overlaps(np.array([[0, 0, 2, 2], [4, 4, 5, 5]]), (0, 0, 2, 1)).tolist()
    [0.5, 0.0]
    """
    boxes, single = np.asarray(boxes, np.float64).reshape(-1, 4), np.asarray(other, np.float64)
    shared = np.minimum(boxes[:, 2:], single[2:]) - np.maximum(boxes[:, :2], single[:2])
    inside = np.prod(np.maximum(shared, 0), axis=1)
    whole = np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1) + np.prod(
        np.maximum(single[2:] - single[:2], 0)
    )
    return inside / np.maximum(whole - inside, 1e-9)


def overlaps_with(answer: Answer, truth: Truth) -> np.ndarray:
    """(n,) IoU of each box or mask of an answer with the object."""
    if answer.masks is None:
        assert answer.boxes is not None and truth.box is not None
        return box_overlaps(answer.boxes, truth.box)
    assert truth.mask is not None
    shared = (answer.masks & truth.mask).sum((1, 2))
    return np.asarray(shared / np.maximum(1, answer.masks.sum((1, 2)) + truth.mask.sum() - shared))


def judged_rows(
    model: Model, answers: Sequence[Answer], truths: Sequence[Truth | None], mapping: LabelMapping
) -> list[Columns | str]:
    """The columns of each picture's row that depend on the model's answer, where columns that do not apply are missing;
    or why the question has no right answer. `predicted` is the label if and only if the answer is right.
    """
    rows: list[Columns | str] = []
    for answer, truth in zip(answers, truths, strict=True):
        assert truth is not None  # what is known is read for every model that answers
        unasked = _unasked(model.task, truth, mapping)
        rows.append(
            unasked or {"task": model.task, **_JUDGES[model.task](answer, truth, mapping, model), **answer.more}
        )
    return rows


def _unasked(task: Task, truth: Truth, mapping: LabelMapping) -> str | None:
    if truth.label is not None and not mapping.members[truth.label]:
        return f"the model has no class for {mapping.target.classes[truth.label]!r}"
    if task == "answer":
        return None
    if truth.label is None:
        return "the class of the object is unknown"
    return None if truth.box is not None else "there is no mask" if truth.mask is None else "the object is hidden"


def _text(answer: Answer, truth: Truth, mapping: LabelMapping, model: Model) -> Columns:
    """`answer`: right if the class that the text means is the object's."""
    said = [mapping.targets.get(int(index), NOTHING) for index in answer.classes]
    predicted = said[0] if said else NOTHING
    scores = dict(zip(reversed(said), reversed(answer.scores.tolist()), strict=True))
    return {
        "predicted": predicted,
        "probability": _number(scores.get(predicted)),
        "true_probability": None if not scores or truth.label is None else _number(scores.get(truth.label)),
        "correct": None if truth.label is None else predicted == truth.label,
        "found_class": model.labels.classes[int(answer.classes[0])] if said else None,
        "answer_text": answer.text,
        "outcome": answer.outcome,
    }


def _number(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else float(value)


def _boxes(answer: Answer, truth: Truth, mapping: LabelMapping, model: Model) -> Columns:
    """`detect`: found if a box of the right class, not better placed on another object of it, overlaps the object's."""
    order = np.argsort(-answer.scores, kind="stable")[:MOST_BOXES]
    boxes = np.zeros((0, 4), np.float32) if answer.boxes is None else np.asarray(answer.boxes, np.float32)[order]
    scores, classes = answer.scores[order], answer.classes[order]
    answer = Answer(classes, scores, boxes, threshold=answer.threshold)
    assert truth.box is not None and truth.label is not None
    there = [(truth.label, truth.box), *((other.label, other.box) for other in truth.others)]
    objects = [(label, box) for label, box in there if label is not None and mapping.members[label]]
    matches = _matched(boxes, classes, objects, mapping)
    firsts = mapping.firsts  # breeds that the model calls dogs are one class
    stored = {
        "boxes": boxes.ravel().tolist(),
        "box_scores": scores.tolist(),
        "box_classes": [firsts.get(int(index), NOTHING) for index in classes],
        "box_matches": matches.tolist(),
        "truth_classes": [firsts[mapping.members[label][0]] for label, _ in objects],
    }
    own = np.flatnonzero((matches == 0) & (scores >= answer.threshold))
    columns, shown = _columns(answer, overlaps_with(answer, truth), own, truth.label, mapping, model)
    return {**columns, "box": None if shown is None else boxes[shown].tolist(), **stored}


def _matched(
    boxes: np.ndarray, classes: np.ndarray, objects: Sequence[tuple[int, Box]], mapping: LabelMapping
) -> np.ndarray:
    """(n,) the object that COCO's matching gives to each box, -1 for none: each box, the most certain first, takes the
    free object of its class that it overlaps most, if by half."""
    overlaps = np.stack([box_overlaps(boxes, box) for _, box in objects], 1)
    for number, (label, _) in enumerate(objects):
        overlaps[~np.isin(classes, mapping.members[label]), number] = -1
    matches = np.full(len(boxes), NOTHING)
    for number in range(len(boxes)):
        best = int(overlaps[number].argmax())
        if overlaps[number, best] >= OVERLAP:
            matches[number] = best
            overlaps[:, best] = -1
    return matches


def _columns(
    answer: Answer, overlaps: np.ndarray, own: np.ndarray, label: int, mapping: LabelMapping, model: Model
) -> tuple[Columns, int | None]:
    """The columns of detectors and segmenters alike, and the place of what a picture shows: the object, else what was
    found in its place, else the best of its class.

    overlaps: (n,) of what was found, the most certain first, with the object; own: places of what is the object.
    """
    match = int(own[0]) if len(own) else None
    sure = answer.scores >= answer.threshold
    right = np.isin(answer.classes, mapping.members[label]) & sure
    instead = np.flatnonzero(~right & sure & (overlaps >= OVERLAP))
    chosen = match
    if match is None and len(instead):
        chosen = int(instead[0])
    other = NOTHING if chosen is None else mapping.targets.get(int(answer.classes[chosen]), NOTHING)
    columns: Columns = {
        "predicted": label if match is not None else NOTHING if other == label else other,
        "probability": 0.0 if chosen is None else _number(answer.scores[chosen]),
        "true_probability": 0.0 if match is None else _number(answer.scores[match]),
        "correct": match is not None,
        "iou": float(overlaps[match] if match is not None else overlaps[right].max(initial=0)),
        "found_class": None if chosen is None else model.labels.classes[int(answer.classes[chosen])],
    }
    near = int(np.where(right, overlaps, -1).argmax()) if right.any() else None
    return columns, near if chosen is None else chosen


def _masks(answer: Answer, truth: Truth, mapping: LabelMapping, model: Model) -> Columns:
    """`segment`: found if the mask of the right class overlaps the object's; of a mask that covers all objects of its
    class, what lies on the others is left out."""
    assert truth.mask is not None and truth.label is not None
    masks = np.zeros((0, *truth.mask.shape), bool) if answer.masks is None else np.asarray(answer.masks, bool)
    if masks.shape[1:] != truth.mask.shape:
        raise UserError(
            f"{model.name} returns masks of {masks.shape[1:]} for a picture of {truth.mask.shape}",
            allowed="masks (n, H, W) of the picture's size",
        )
    same = mapping.members[truth.label]
    for other in truth.others if answer.merged else ():
        if other.label is not None and mapping.members[other.label] == same:
            masks = masks & (truth.mask | (run_length_mask(other.mask, *truth.mask.shape) == 0))
    overlaps = overlaps_with(replace(answer, masks=masks), truth)
    right = np.isin(answer.classes, same) & (answer.scores >= answer.threshold) & (overlaps >= OVERLAP)
    own = np.argsort(-np.where(right, overlaps, 0), kind="stable")[: right.sum()]
    columns, shown = _columns(answer, overlaps, own, truth.label, mapping, model)
    region = {} if shown is None else {"box": box_of(masks[shown]), "mask": run_lengths(masks[shown])}
    return {**columns, **region}


_JUDGES: Mapping[Task, Callable[[Answer, Truth, LabelMapping, Model], Columns]] = {
    "answer": _text,
    "detect": _boxes,
    "segment": _masks,
}
