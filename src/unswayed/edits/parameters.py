"""The allowed values of an edit's parameters, declared once for checks, command line, recipes and app."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unswayed.errors import UserError, unknown


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
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise UserError(f"{name} is {value!r:.100}", allowed=self.describe(), run="unswayed edits") from None
        if isinstance(value, bool) or not self.low <= number <= self.high:
            raise UserError(f"{name} is {value}", allowed=self.describe(), run="unswayed edits")
        return number

    def levels(self, first: float, last: float, count: int) -> tuple[float, ...]:
        """Return `count` values from `first` to `last`, both included, to four significant digits."""
        if count == 1:
            return (first,)
        shares = [index / (count - 1) for index in range(count)]
        if self.spacing == "log":
            values = [first * (last / first) ** share for share in shares]
        else:
            values = [first + (last - first) * share for share in shares]
        return tuple(float(f"{value:.4g}") + 0.0 for value in values)

    def name(self, value: float | str) -> str:
        """Return a level as part of an edit's name; signed if the range has both signs."""
        if isinstance(value, str):
            return f"-{value}"
        return f"{value:+g}" if self.low < 0 and value != 0 else f"-{value:g}"

    def describe(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        words = "".join(f", or {word}" for word in self.words)
        spacing = " (sweeps are log-spaced)" if self.spacing == "log" else ""
        return f"{self.low:g} to {self.high:g}{unit}{words}{spacing}"


@dataclass(frozen=True)
class Choice:
    """One of a few words; meanings: what each means, if that needs an explanation."""

    names: tuple[str, ...]
    meanings: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)

    def checked(self, name: str, value: Any) -> str:
        if value not in self.names:
            raise unknown(name, str(value), self.names, run="unswayed edits")
        return str(value)

    def describe(self) -> str:
        return ", ".join(self.names)


@dataclass(frozen=True)
class Text:
    """Any text; meaning: what it is; file: whether it is the path of a picture file."""

    meaning: str
    file: bool = False

    def checked(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise UserError(f"{name} is {value!r}", allowed=self.meaning, run="unswayed edits")
        return value

    def describe(self) -> str:
        return self.meaning


Allowed = Range | Choice | Text


def parameter(
    default: Any,
    allowed: Allowed,
    explains: str,
    *,
    first: float | None = None,
    shown: Range | None = None,
    hidden: bool = False,
) -> Any:
    """Return a dataclass field that declares its allowed values and meaning.

    In the app: first: the slider's value when the page opens, by default `default`; shown: the range of the
    slider, by default `allowed`; hidden: there is no control.
    """
    metadata = {"allowed": allowed, "explains": explains, "first": first, "shown": shown, "hidden": hidden}
    return dataclasses.field(default=default, metadata=metadata)


def parameters(edit: Any) -> dict[str, dataclasses.Field[Any]]:
    """Return the declared parameters of an edit (class or instance) by name."""
    return {field.name: field for field in dataclasses.fields(edit) if "allowed" in field.metadata}


def file_parameters(edit: Any) -> tuple[str, ...]:
    """Return the names of an edit's parameters that are picture files."""
    declared = {name: field.metadata["allowed"] for name, field in parameters(edit).items()}
    return tuple(name for name, one in declared.items() if isinstance(one, Text) and one.file)


def allowed(edit: Any, name: str) -> Allowed:
    """Return the allowed values of parameter `name`; raises UserError with the existing names."""
    declared = parameters(edit)
    if name not in declared:
        raise unknown(f"parameter of {edit.name}", name, declared, run="unswayed edits")
    found: Allowed = declared[name].metadata["allowed"]
    return found


def check(edit: Any) -> None:
    """Convert every parameter to its declared type and check its range; called when an edit is created."""
    for name, field in parameters(edit).items():
        value = getattr(edit, name)
        if value is None and field.default is None:
            continue
        object.__setattr__(edit, name, field.metadata["allowed"].checked(f"{edit.name}: {name}", value))


def as_json(edit: Any) -> dict[str, Any]:
    """Return the edit as a complete record: {"edit": "size", "rate": 0.05}."""
    values = {name: getattr(edit, name) for name in parameters(edit)}
    return {"edit": edit.name, **{name: value for name, value in values.items() if value is not None}}
