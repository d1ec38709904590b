"""The columns of a prediction from logits: class, probabilities, rank of the true class, top five, energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from unswayed.errors import UserError
from unswayed.models.label_mapping import LabelMapping, map_labels

if TYPE_CHECKING:
    import torch

    from unswayed.models import Classifier
    from unswayed.sources import Source


@dataclass(frozen=True, eq=False)
class Scores:
    """A batch's predictions in the benchmark's label space, still on the device.

    predicted (n,) int; probability (n,) of the predicted class; true_probability (n,), rank (n,) from 1 on;
    top, top_probabilities (n, 5); energy (n,) logsumexp of the model's own logits; raw (n,) the model's own arg max;
    finite: whether every logit was; subset (n,): the prediction among the classes of a subset, -1 without one.
    """

    predicted: torch.Tensor
    probability: torch.Tensor
    true_probability: torch.Tensor
    rank: torch.Tensor
    top: torch.Tensor
    top_probabilities: torch.Tensor
    energy: torch.Tensor
    raw: torch.Tensor
    finite: torch.Tensor
    subset: torch.Tensor

    def numpy(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name).cpu().numpy() for name in self.__dataclass_fields__}


def score(
    logits: torch.Tensor, labels: torch.Tensor, mapping: LabelMapping, subset: Sequence[int] | None = None
) -> Scores:
    """Return the scores of (n, model's classes) logits, given (n,) labels in the benchmark's space (-1 unknown).

    subset: the only classes that a second prediction chooses from.
    The rank is 1 plus the number of classes with a larger logit, or an equal one and a smaller index: rank 1 is the
    predicted class, also among ties. If the label is unknown, true_probability is NaN and rank is 0.
    """
    answers = mapping.apply(logits)
    labels = labels.to(answers.device, non_blocking=True)
    known = labels >= 0
    true = labels.clamp_min(0)
    logarithms = torch.log_softmax(answers, 1)
    top_logits, top = answers.topk(min(5, answers.shape[1]), 1)
    # Among equal logits, topk does not guarantee the smaller index first; arg max does.
    predicted = answers.argmax(1)
    true_logit = answers.gather(1, true[:, None])
    earlier = torch.arange(answers.shape[1], device=answers.device)[None] < true[:, None]
    rank = 1 + (answers > true_logit).sum(1) + ((answers == true_logit) & earlier).sum(1)
    true_probability = logarithms.gather(1, true[:, None])[:, 0].exp()
    return Scores(
        predicted,
        logarithms.gather(1, predicted[:, None])[:, 0].exp(),
        torch.where(known, true_probability, torch.nan),
        torch.where(known, rank, 0),
        top,
        (top_logits - torch.logsumexp(answers, 1, keepdim=True)).exp(),
        torch.logsumexp(logits, 1),
        logits.argmax(1),
        torch.isfinite(logits).all(1),
        torch.full_like(predicted, -1) if subset is None else _among(answers, subset),
    )


def _among(answers: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
    chosen = torch.tensor(list(classes), device=answers.device)
    return chosen[answers[:, chosen].argmax(1)]


def source_mapping(model: Classifier, source: Source) -> LabelMapping:
    """The mapping from the model's classes to the source's; refused if a class that occurs has no counterpart."""
    occurring = {source.label_of(scene_id) for scene_id in source.ids}
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
