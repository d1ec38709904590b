"""A classifier's prediction for a picture: its five most likely classes, and their heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from unswayed.models import Classifier

COUNT = 5


@dataclass(frozen=True)
class Answer:
    """classes: the most likely first, as indices into the model's label space; with their names and probabilities."""

    classes: tuple[int, ...]
    names: tuple[str, ...]
    probabilities: tuple[float, ...]

    @property
    def best(self) -> int:
        return self.classes[0]


def answer_all(model: Classifier, images: Sequence[np.ndarray], count: int = COUNT) -> list[Answer]:
    """Return the model's prediction for each picture, (H, W, 3) uint8, with its own transform."""
    import torch

    batch = torch.stack([model.prepare(image) for image in images])
    best = model.logits(batch).double().softmax(1).topk(min(count, len(model.labels)))
    return [
        Answer(tuple(classes), tuple(model.labels.classes[one] for one in classes), tuple(probabilities))
        for classes, probabilities in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def warm_pictures(model: Classifier, images: Sequence[np.ndarray], targets: Sequence[int]) -> list[np.ndarray]:
    """Return the pictures, all of one shape, with the heat maps of these classes: (H, W, 3) uint8 each."""
    from unswayed.evaluation.saliency import heat_maps
    from unswayed.views.report.pictures import overlay

    heats = heat_maps(model, images, targets)
    return [overlay(image, heat) for image, heat in zip(images, heats, strict=True)]
