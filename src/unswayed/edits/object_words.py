"""Object changes by words: the object itself is redrawn from a description, so that its class may change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from .background import DESCRIBED, NEEDS_WORDS
from .composition import Composition, Pool, Words
from .edit import Control, Edit, Need, Text, blend_start, parameter


@dataclass(frozen=True)
class ObjectWords(Edit):
    """The object redrawn in its place, such as "a {class} made of wood"; the background stays as it is.

    What was a dog may be one no longer: a wrong answer of a model is not always its mistake. No named recipe has it.
    Without words the object is redrawn from a prompt that describes the photograph as it is, which is the control.
    """

    name: ClassVar[str] = "object-words"
    axis: ClassVar[str] = "prompt"
    axis_label: ClassVar[str] = "the object in words"
    description: ClassVar[str] = "material, color or age of the object, redrawn from words; the label may change"
    control: ClassVar[Control | None] = "object-inversion"
    order: ClassVar[int] = 90

    prompt: str | None = parameter(None, Text(DESCRIBED, words=True), "what the object is redrawn as")
    negative: str | None = parameter(
        None, Text("a description in words", words=True), "what the object must not look like"
    )
    start: float | None = blend_start(1.0)

    @property
    def needs(self) -> tuple[Need, ...]:
        return ("network", "words")

    @property
    def level(self) -> str:
        return self.prompt or "as it is"

    def describe(self) -> str:
        return f"object redrawn from words: “{self.level}”; its label may change"

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        told = composition.told(Words(self.prompt or "", self.negative or None, where="object"))
        requested = {
            **composition.requested,
            "object_words": told.words and told.words.prompt,
            "label_may_change": True,
        }
        return replace(told, start=1.0, needs_network=NEEDS_WORDS, requested=requested)
