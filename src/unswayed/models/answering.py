"""Models that are no network of logits: what `evaluate` needs of any model under test, and what such a model answers.

A detector, a segmenter and a vision-language model are `Answerer`s: each prepares pictures in its own way, and returns
an `Answer` for each of them. A `Classifier` has the same identity, but returns logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from unswayed.labels import LabelSpace, Task
from unswayed.specs import slug_of


@dataclass(frozen=True, eq=False)
class Answer:
    """What a model says about one picture, the most certain first.

    classes: (n,) int, of the objects that it finds or of what it calls the object, in the model's label space; for
    `answer`, empty if its text means none of them. scores: (n,) in [0, 1], NaN where the model states none. boxes:
    (n, 4) float, left, top, right, bottom in pixels of the picture. masks: (n, H, W) bool of the picture's size.
    merged: whether a mask covers all objects of its class, as that of a semantic segmenter does. threshold: the least
    score of what counts as found. text, outcome: what a vision-language model wrote, and what became of the question
    (`answered`, `unmatched`, `refused`, `timeout`, `truncated`, …). more: further columns of `model_cards.SCHEMA`, such
    as `tokens`.
    """

    classes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    scores: np.ndarray = field(default_factory=lambda: np.zeros(0))
    boxes: np.ndarray | None = None
    masks: np.ndarray | None = None
    merged: bool = False
    threshold: float = 0.0
    text: str | None = None
    outcome: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


class NamedModel:
    """How every model under test is named and described; `stated_transform()` is its preprocessing as JSON."""

    @property
    def spec(self: Any) -> str:
        """What opens this model again: its name, or the model behind its alias."""
        return str(self.origin.get("spec", self.name))

    @property
    def slug(self: Any) -> str:
        """The name as a valid file name."""
        return slug_of(self.name)

    def card(self: Any) -> dict[str, Any]:
        """Everything that identifies this model, as JSON."""
        return {
            "model": self.name,
            "task": self.task,
            "weights_sha256": self.weights_hash,
            "transform": self.stated_transform(),
            "labels": self.labels.to_json(),
            "classes": len(self.labels.classes),
            "precision": self.precision,
            "device": str(self.device).split(":")[0],
            "origin": dict(self.origin),
        }


@runtime_checkable
class Answerer(Protocol):
    """A model that answers about whole pictures; its preprocessing belongs to it.

    What identifies it is that of a `Classifier` too. `card()["transform"]` states the preprocessing, and
    `origin["settings"]` all else that determines the answers.
    """

    task: Task
    name: str
    labels: LabelSpace
    device: str | None
    precision: str | None
    origin: Mapping[str, Any]
    adapt: Callable[..., None] | None
    spec: str
    slug: str
    weights_hash: str
    answers_hash: str
    nbytes: int

    def card(self) -> dict[str, Any]: ...

    def prepare(self, image: np.ndarray) -> Any:
        """What `answer` takes, of a picture (H, W, 3) uint8 RGB; called in threads that decode, so it is quick."""

    def answer(self, prepared: Sequence[Any]) -> list[Answer]:
        """One answer for each prepared picture; a picture's answer does not depend on the others."""
