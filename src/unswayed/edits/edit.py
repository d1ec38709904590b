"""What an edit is: a frozen dataclass whose fields are its parameters, and which declares everything else about itself.

Recipes, plans, `unswayed edit`, the app, the report and the table in docs/edits.md read these declarations, so that an
edit of another package is treated exactly like one of this package.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from unswayed.errors import UserError, unknown

from .composition import Composition, Pool

LONGEST_TEXT = 4000  # characters


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; `words` are allowed as well.

    spacing: how a sweep divides the range; step: of the app's slider, by default a hundredth of the range.

    >>> Range(0.01, 1.0, spacing="log").levels(0.01, 1.0, 3)
    (0.01, 0.1, 1.0)
    """

    low: float
    high: float
    unit: str = ""
    spacing: str = "linear"
    words: tuple[str, ...] = ()
    step: float | None = None

    def checked(self, name: str, value: Any) -> float | str:
        """Return `value` as a number of this range or one of its words; raises UserError with what is allowed."""
        if isinstance(value, str) and value in self.words:
            return value
        try:
            number, given = float(value), f"{value}"
        except (TypeError, ValueError, OverflowError):
            number, given = math.nan, f"{value!r:.100}"
        if isinstance(value, bool) or not self.low <= number <= self.high:
            raise UserError(f"{name} is {given}", allowed=self.describe(), run="unswayed edits")
        return number

    def at(self, share: float, first: float, last: float) -> float:
        """Return the value at a share of the way from `first` to `last`, spaced as the range declares."""
        logarithmic = self.spacing == "log" and first > 0
        return first * (last / first) ** share if logarithmic else first + (last - first) * share

    def levels(self, first: float, last: float, count: int) -> tuple[float, ...]:
        """Return `count` values from `first` to `last`, both included, to four significant digits."""
        shares = [index / max(count - 1, 1) for index in range(count)]
        return tuple(float(f"{self.at(share, first, last):.4g}") + 0.0 for share in shares)

    def name(self, value: float | str) -> str:
        """Return a level as part of an edit's name; signed if the range has both signs."""
        if isinstance(value, str):
            return f"-{value}"
        return f"{value:+g}" if self.low < 0 and value != 0 else f"-{value:g}"

    def describe(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        words = "".join(f", or {word}" for word in self.words)
        spacing = " (sweeps are log-spaced)" if self.spacing == "log" else ""
        return f"{self.low:g} to {self.high:,.10g}{unit}{words}{spacing}"


@dataclass(frozen=True)
class Choice:
    """One of a few words; meanings: what each means, if that needs an explanation."""

    names: tuple[str, ...]
    meanings: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)

    def checked(self, name: str, value: object) -> str:
        if value not in self.names:
            raise unknown(name, str(value), self.names, run="unswayed edits")
        return str(value)

    def describe(self) -> str:
        return ", ".join(self.names)


@dataclass(frozen=True)
class Text:
    """Any text; meaning: what it is; file: whether it is the path of a picture file; words: whether it is a
    description, which visitors of the app may write, unlike a path."""

    meaning: str
    file: bool = False
    words: bool = False

    def checked(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            raise UserError(f"{name} is {value!r}", allowed=self.meaning, run="unswayed edits")
        if len(value) > LONGEST_TEXT:
            raise UserError(f"{name} has {len(value):,} characters", allowed=f"at most {LONGEST_TEXT:,}")
        return value

    def describe(self) -> str:
        return self.meaning


Allowed = Range | Choice | Text
T = TypeVar("T")


def parameter(
    default: T,
    allowed: Allowed,
    explains: str,
    *,
    first: float | None = None,
    shown: Range | None = None,
    hidden: bool = False,
) -> T:
    """Return a dataclass field that declares its allowed values and meaning; in the app, first: the slider's value
    when the page opens, by default `default`; shown: its range, by default `allowed`; hidden: there is no control."""
    metadata = {"allowed": allowed, "explains": explains, "first": first, "shown": shown, "hidden": hidden}
    declared: T = dataclasses.field(default=default, metadata=metadata)
    return declared


def parameters(edit: Any) -> dict[str, dataclasses.Field[Any]]:
    """Return the declared parameters of an edit (class or instance) by name."""
    return {field.name: field for field in dataclasses.fields(edit) if "allowed" in field.metadata}


def file_parameters(edit: Edit | type[Edit]) -> tuple[str, ...]:
    """Return the names of an edit's parameters that are picture files."""
    return tuple(name for name, field in parameters(edit).items() if getattr(field.metadata["allowed"], "file", False))


def allowed(edit: Edit | type[Edit], name: str) -> Allowed:
    """Return the allowed values of parameter `name`; raises UserError with the existing names."""
    declared = parameters(edit)
    if name not in declared:
        raise unknown(f"parameter of {edit.name}", name, declared, run="unswayed edits")
    return declared[name].metadata["allowed"]


def check(edit: Edit) -> None:
    """Convert every parameter to its declared type and check its range; called when an edit is created."""
    for name, field in parameters(edit).items():
        value = getattr(edit, name)
        if value is not None or field.default is not None:
            object.__setattr__(edit, name, field.metadata["allowed"].checked(f"{edit.name}: {name}", value))


def as_json(edit: Edit) -> dict[str, object]:
    """Return the edit as a complete record: {"edit": "size", "rate": 0.05}."""
    values = {name: getattr(edit, name) for name in parameters(edit)}
    return {"edit": edit.name, **{name: value for name, value in values.items() if value is not None}}


Control = Literal["inversion", "reinsertion", "object-inversion"]
Need = Literal["network", "removal", "guide", "words"]
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
    others: tuple[tuple[str, float | str], ...] = ()
    falls: bool = False


class Edit(ABC):
    """The base of every edit: defaults for what an edit declares.

    name: as in recipes and commands; axis: the parameter that a sweep varies; axis_label: the label of that axis in
    figures, with its unit; description: one line for lists and help texts; control: the edit that makes the same
    picture without changing the attribute, so that its drop can be subtracted; order: edits given by name are chained
    by increasing order; changes: see `Change`; factor: the most similar factor of ImageNet-X's annotations.
    """

    name: ClassVar[str]
    axis: ClassVar[str]
    axis_label: ClassVar[str]
    description: ClassVar[str]
    control: ClassVar[Control | None] = None
    order: ClassVar[int] = 100
    changes: ClassVar[tuple[Change, ...]] = ()
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
        """Return what the edit needs: a diffusion network, object removal (as its control), a classifier as guide, a
        pipeline that reads words."""
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
        return getattr(self, self.axis)

    def describe(self) -> str:
        """Return a short description of this edit with these parameters, for the report."""
        return f"{self.name} {self.level:g}" if isinstance(self.level, float) else f"{self.name} {self.level}"

    def words(self, chained: bool = False) -> str:
        """Return what a stranger would call this edit, in a few words; chained: whether it is one of several edits,
        as in `small and turned`."""
        return f"{self.name} {self.level:g}" if isinstance(self.level, float) else f"{self.name} {self.level}"

    @classmethod
    def parse(cls, text: str, **others: object) -> Self:
        """Return the edit for a text on the command line or in a recipe, the value of its axis."""
        return cls(**{cls.axis: text, **others})

    @classmethod
    def usage(cls) -> str:
        """Return what `parse` allows, for help texts."""
        return allowed(cls, cls.axis).describe()

    @classmethod
    def from_controls(cls, values: Mapping[str, object]) -> Self:
        """Return the edit for the values of the app's controls, by parameter."""
        return cls(**values)


def blend_start(default: T, explains: str = "") -> T:
    """Return the parameter `start` of edits that are blended."""
    meaning = f"share of the noise schedule at which blending starts{explains}"
    return parameter(default, Range(0.0, 1.0), meaning, hidden=True)


def where(default: str, explains: str) -> str:
    """Return the parameter `where` of edits that change the pixels of the object, its background or both."""
    return parameter(default, Choice(("object", "background", "both")), explains)
