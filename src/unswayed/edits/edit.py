"""What an edit is: a frozen dataclass whose fields are its parameters, and which declares everything else about itself.

Recipes, plans, `unswayed edit`, the app, the report and the table in docs/edits.md read these declarations, so that an
edit of another package is treated exactly like one of this package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from .composition import Composition, Pool
from .parameters import Choice, Range, allowed, check, parameter, parameters

Control = Literal["inversion", "reinsertion"]
Need = Literal["network", "removal", "guide"]
Level = float | str


@dataclass(frozen=True)
class Change:
    """A direction in which the app searches for the smallest change that changes a prediction.

    parameter: the one that is varied, from `neutral`, which changes nothing, to `extreme`; neutral is None if it is
    the share of the picture that the object covers in the photograph, and `falls` then says whether the extreme is
    meant to be below it; others: the parameters that stay fixed.
    """

    name: str
    parameter: str
    neutral: float | None
    extreme: float
    others: tuple[tuple[str, Any], ...] = ()
    falls: bool = False


class Edit(ABC):
    """The base of every edit: defaults for what an edit declares.

    name: as in recipes and commands; axis: the parameter that a sweep varies; axis_label: the label of that axis in
    figures, with its unit; description: one line for lists and help texts; control: the edit that makes the same
    picture without changing the attribute, so that its drop can be subtracted; order: edits given by name are chained
    by increasing order; changes: see `Change`; former_name: the name that older records use, and that still enters the
    seeds; factor: the most similar factor of ImageNet-X's annotations.
    """

    name: ClassVar[str]
    axis: ClassVar[str]
    axis_label: ClassVar[str]
    description: ClassVar[str]
    control: ClassVar[Control | None] = None
    order: ClassVar[int] = 100
    changes: ClassVar[tuple[Change, ...]] = ()
    former_name: ClassVar[str | None] = None
    factor: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        check(self)

    @abstractmethod
    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        """Return the composition after this edit; raises Impossible, with the reason, if that is not possible."""

    @property
    def random(self) -> bool:
        """Return whether `apply` makes a random choice, so that further runs give other pictures."""
        return any(getattr(self, name) == "random" for name in parameters(self))

    @property
    def borrows(self) -> bool:
        """Return whether `apply` uses other scenes of the pool."""
        return False

    @property
    def needs(self) -> tuple[Need, ...]:
        """Return what the edit needs: a diffusion network, object removal (as its control), a classifier as guide."""
        return ("removal",) if self.compared_with == "reinsertion" else ()

    @property
    def compared_with(self) -> Control | None:
        """Return the control of this edit with these parameters; None where they leave nothing to control."""
        return self.control

    @property
    def blends_from(self) -> float:
        """Return the share of the noise schedule at which blending starts; 0 if the object is pasted."""
        return float(getattr(self, "start", None) or 0.0)

    @property
    def level(self) -> Level:
        """Return the value of the axis."""
        level: Level = getattr(self, self.axis)
        return level

    def describe(self) -> str:
        """Return a short description of this edit with these parameters, for the report."""
        return f"{self.name} {self.level:g}" if isinstance(self.level, float) else f"{self.name} {self.level}"

    @classmethod
    def parse(cls, text: str, **others: Any) -> Self:
        """Return the edit for a text on the command line or in a recipe, the value of its axis."""
        return cls(**{cls.axis: text, **others})

    @classmethod
    def usage(cls) -> str:
        """Return what `parse` allows, for help texts."""
        return allowed(cls, cls.axis).describe()

    @classmethod
    def from_controls(cls, values: Mapping[str, Any]) -> Self:
        """Return the edit for the values of the app's controls, by parameter."""
        return cls(**values)


def blend_start(default: float | None, explains: str = "") -> Any:
    """Return the parameter `start` of edits that are blended."""
    meaning = "share of the noise schedule at which blending starts" + explains
    return parameter(default, Range(0.0, 1.0), meaning, hidden=True)


def where(default: str, explains: str) -> Any:
    """Return the parameter `where` of edits that change the pixels of the object, its background or both."""
    return parameter(default, Choice(("object", "background", "both")), explains)
