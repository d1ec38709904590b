"""What a classifier says to a picture: its five likeliest classes, and where in the picture it found them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from unfazed.models import Classifier

COUNT = 5


@dataclass(frozen=True)
class Answer:
    """classes: the likeliest first, as indices into the model's label space; names and probabilities alongside."""

    classes: tuple[int, ...]
    names: tuple[str, ...]
    probabilities: tuple[float, ...]

    @property
    def best(self) -> int:
        return self.classes[0]


def answer_all(model: Classifier, images: Sequence[np.ndarray], count: int = COUNT) -> list[Answer]:
    """The model's answer to each picture, (H, W, 3) uint8, by its own transform."""
    import torch

    batch = torch.stack([model.prepare(image) for image in images])
    best = model.logits(batch).double().softmax(1).topk(min(count, len(model.labels)))
    return [
        Answer(tuple(classes), tuple(model.labels.classes[one] for one in classes), tuple(probabilities))
        for classes, probabilities in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def warm_pictures(model: Classifier, images: Sequence[np.ndarray], targets: Sequence[int]) -> list[np.ndarray]:
    """The pictures, all of one shape, under the heat maps of these classes: (H, W, 3) uint8 each."""
    from unfazed.probes.saliency import heat_maps
    from unfazed.report.figures_sensitivity import overlay

    heats = heat_maps(model, images, targets)
    return [overlay(image, heat) for image, heat in zip(images, heats, strict=True)]
