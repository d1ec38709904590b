"""From a source's classes to a model's answers: which outputs of the model count as right for a label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unfazed.errors import UserError
from unfazed.labels import LabelSpace

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ClassMap:
    """The model's outputs that mean each label of the source; most often one each."""

    outputs: Mapping[int, tuple[int, ...]]

    def answers(self, logits: torch.Tensor, label: int) -> list[dict[str, Any]]:
        """A dict a row of logits (N, classes): predicted, probability, true_probability, correct."""
        probabilities = logits.double().softmax(1)
        best, predicted = probabilities.max(1)
        right = self.outputs[label]
        truth = probabilities[:, list(right)].sum(1)
        return [
            {"predicted": p, "probability": b, "true_probability": min(1.0, t), "correct": p in right}
            for p, b, t in zip(predicted.tolist(), best.tolist(), truth.tolist(), strict=True)
        ]


def map_classes(source: LabelSpace, model: LabelSpace) -> ClassMap:
    """Equal label spaces map one to one; others by WNID or by name, and every class of the source must be found."""
    if source == model:
        return ClassMap({index: (index,) for index in range(len(source))})
    outputs: dict[int, tuple[int, ...]] = {}
    missing = []
    for index, name in enumerate(source.classes):
        try:
            outputs[index] = (model.index(source.wnids[index] if source.wnids and model.wnids else name),)
        except UserError:
            missing.append(name)
    if missing or not len(source):
        raise UserError(
            f"the model's classes ({model.name}) lack {len(missing)} of the source's ({source.name}): "
            + ", ".join(missing[:8]),
            allowed="a model with these classes, for instance a linear head trained on them (unfazed.models.fit_head)",
        )
    return ClassMap(outputs)
