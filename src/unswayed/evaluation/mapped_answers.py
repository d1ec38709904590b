"""A model's predictions in the label space of the pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unswayed.errors import UserError
from unswayed.models.label_mapping import LabelMapping, map_labels

if TYPE_CHECKING:
    import torch

    from unswayed.models import Classifier
    from unswayed.sources import Source


def source_mapping(model: Classifier, source: Source) -> LabelMapping:
    """The mapping from the model's classes to the source's; refused if a class that occurs has no counterpart."""
    occurring = {source.label_of(one) for one in source.ids}
    return map_labels(model.labels, source.labels, [label for label in occurring if label is not None])


def answers(logits: torch.Tensor, mapping: LabelMapping, label: int) -> list[dict[str, Any]]:
    """One dict per row of the model's logits (N, classes): predicted, probability, true_probability, correct.

    Classes and probabilities are those of the pictures' label space.
    """
    if not logits.isfinite().all():
        raise UserError("the model returns NaN or infinite logits", allowed="finite logits")
    probabilities = mapping.apply(logits).double().softmax(1)
    best, predicted = probabilities.max(1)
    truth = probabilities[:, label]
    return [
        {"predicted": p, "probability": b, "true_probability": t, "correct": p == label}
        for p, b, t in zip(predicted.tolist(), best.tolist(), truth.tolist(), strict=True)
    ]


def strongest_output(logits: torch.Tensor, mapping: LabelMapping, predicted: int) -> int:
    """The model's own class behind its prediction for one picture, (1, classes) logits: the largest of that group."""
    members = mapping.members[predicted]
    return max(members, key=lambda index: float(logits[0, index]))
