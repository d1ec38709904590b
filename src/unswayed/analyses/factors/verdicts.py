"""Four definitions of a correct prediction: the label's class, its metaclass, and the ReaL labels in two ways."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unswayed.errors import UserError, unknown
from unswayed.sources.imagenet_x import Annotations

from .answers import Answers

# annotations, predicted (N,) -> (right (N,) bool, images that count (N,) bool)
Verdict = Callable[[Annotations, np.ndarray], tuple[np.ndarray, np.ndarray]]


def same_class(annotations: Annotations, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Correct if the prediction is the original label."""
    return predicted == annotations.labels, np.ones(len(predicted), bool)


def same_metaclass(annotations: Annotations, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Correct if prediction and label have the same of 17 metaclasses, one of which is `other`."""
    return annotations.metaclass_of_class[predicted] == annotations.metaclasses, np.ones(len(predicted), bool)


def in_real_labels(annotations: Annotations, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Correct if the prediction is a ReaL label; an image without any counts as wrong, as in the published tables."""
    return (_real(annotations) == predicted[:, None]).any(axis=1), np.ones(len(predicted), bool)


def in_real_labels_standard(annotations: Annotations, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Correct if the prediction is a ReaL label; an image without any is left out, as in ReaL's own protocol."""
    real = _real(annotations)
    return (real == predicted[:, None]).any(axis=1), real[:, 0] >= 0


RIGHT: dict[str, Verdict] = {
    "class": same_class,
    "metaclass": same_metaclass,
    "real": in_real_labels,
    "real-standard": in_real_labels_standard,
}


def judge(annotations: Annotations, answers: Answers, right: str = "class") -> tuple[np.ndarray, np.ndarray]:
    """Return (right, counted), each (N,) bool: `right` implies `counted`, which implies that there is a prediction."""
    if right not in RIGHT:
        raise unknown("definition of correct", right, RIGHT)
    correct, counted = RIGHT[right](annotations, answers.predicted)
    counted = counted & answers.seen
    return correct & counted, counted


def _real(annotations: Annotations) -> np.ndarray:
    if annotations.real is None:
        raise UserError("ReaL labels exist for validation images only", allowed="--partition val, or --right class")
    return annotations.real
