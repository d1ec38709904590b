"""Which candidate mask is the labeled object: the one without which a classifier no longer sees the class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unswayed.errors import UserError
from unswayed.jobs.devices import device_at

if TYPE_CHECKING:
    from unswayed.models.classifier import Classifier


def most_needed(model: Classifier, label: int) -> Callable[[np.ndarray, np.ndarray], int]:
    """A function from a picture and candidate masks to the place of the one whose removal hurts the class most.

    label: an index of the model's own classes. What is removed is filled from around it. Among candidates that hurt
    about equally (within a tenth of the largest loss) the smallest is taken: a larger one removes background too.
    """

    def choose(image: np.ndarray, masks: np.ndarray) -> int:
        import cv2
        import torch

        without = []
        for mask in masks:
            hole = cv2.dilate((mask > 0.5).astype(np.uint8), np.ones((5, 5), np.uint8))
            without.append(cv2.inpaint(image, hole, 5, cv2.INPAINT_TELEA))
        batch = torch.stack([model.prepare(one) for one in (image, *without)])
        chances = torch.softmax(model.logits(batch), 1)[:, label].cpu().numpy()
        losses = chances[0] - chances[1:]
        sizes = np.array([(mask > 0.5).mean() for mask in masks])
        best = losses.max()
        if best <= 0:
            return 0
        near = np.flatnonzero(losses >= 0.9 * best)
        return int(near[sizes[near].argmin()])

    return choose


@dataclass(frozen=True)
class ChosenBy:
    """A function from a picture's name to how its candidates are chosen between: by the class it is filed under.

    model: its name, opened once in each process; label: the class of every picture, if it is given; asked: the device
    that the user asked for.
    """

    model: str
    label: str | None = None
    asked: str | None = None

    def __call__(self, picture: str, device: str | None = None) -> Callable[[np.ndarray, np.ndarray], int]:
        from unswayed.sources.labeled import class_folder

        given = self.label or class_folder(picture)
        if given is None:
            raise UserError(f"{picture} lies in no class folder, so its class is not known", allowed="--label CLASS")
        opened = _opened(self.model, device_at(device, self.asked))
        return most_needed(opened, opened.labels.index(given))


@functools.cache
def _opened(model: str, device: str | None) -> Classifier:
    from unswayed.models.registry import open_model

    return open_model(model, device=device)
