"""Reinsertion: the control of the geometric edits, the object taken out and put back where it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .composition import Composition, Pool
from .geometry import relocated
from .parameters import Range, check, parameter


@dataclass(frozen=True)
class Reinsertion:
    """The object removed and put back where it was: what removal and blending cost by themselves."""

    name: ClassVar[str] = "reinsertion"
    axis: ClassVar[str] = "start"

    start: float = parameter(0.25, Range(0.0, 1.0), "share of the noise schedule at which blending starts")

    def __post_init__(self) -> None:
        check(self)

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        return relocated(composition, composition.placement, self.start)
