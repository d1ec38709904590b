"""Reinsertion, the control of the geometric edits: the object is removed and put back where it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .composition import Composition, Pool
from .edit import Control, Edit, blend_start
from .geometry import relocated


@dataclass(frozen=True)
class Reinsertion(Edit):
    """The object removed and put back where it was, to measure what removal and blending alone cost."""

    name: ClassVar[str] = "reinsertion"
    axis: ClassVar[str] = "start"
    axis_label: ClassVar[str] = "share of the noise schedule at which blending starts"
    description: ClassVar[str] = "nothing: the object is removed and put back, the control of edits that move it"
    control: ClassVar[Control | None] = "reinsertion"

    start: float = blend_start(0.25)

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        return relocated(composition, composition.placement, self.start)

    def describe(self) -> str:
        return "control: object removed and put back where it was"
