"""The page's sliders and lists, made from what the edits declare of themselves; and the chain that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unfazed.benchmark.photograph import ORDER
from unfazed.edits import make_edit
from unfazed.edits.background import STRENGTHS
from unfazed.edits.catalogue import catalogue
from unfazed.edits.composition import Edit

# How far blending goes back is chosen by each edit itself; a picture file is uploaded, not typed.
HIDDEN = {"start", "picture"}
# Where a control that moves nothing by default, or has a word for one, stands when the page opens.
FIRST: dict[tuple[str, str], Any] = {
    ("background", "strength"): 20.0,
    ("position", "x"): 0.5,
    ("position", "y"): 0.5,
    ("direction", "degrees"): 30.0,
    ("colour", "hue"): 90.0,
    ("lighting", "stops"): -2.0,
}
STEPS = {"size": 0.001, "position": 0.01, "occlusion": 0.01, "lighting": 0.1, "blur": 0.5, "saturation": 0.05}


@dataclass(frozen=True)
class Control:
    """One parameter of one edit as the page shows it.

    explains: what it means, with its range and unit; choices: of a list, empty for a slider from `low` to `high`;
    word: what a box beside the slider stands for instead of a number (`full`, `random`), or None.
    """

    edit: str
    parameter: str
    explains: str
    first: Any
    low: float = 0.0
    high: float = 1.0
    step: float = 1.0
    choices: tuple[str, ...] = ()
    word: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.edit, self.parameter


@dataclass(frozen=True)
class Group:
    """An edit: its name, what it does in one sentence, and its controls."""

    edit: str
    explains: str
    controls: tuple[Control, ...]


def groups() -> tuple[Group, ...]:
    """Every edit there is, those of other packages too, in the order in which they are chained."""
    edits = catalogue()["edits"]
    names = [*ORDER, *(name for name in edits if name not in ORDER)]
    return tuple(_group(name, edits[name]) for name in names)


def _group(name: str, record: Mapping[str, Any]) -> Group:
    shown = [
        _control(name, parameter, told)
        for parameter, told in record["parameters"].items()
        if parameter not in HIDDEN and ("low" in told or "choices" in told)
    ]
    return Group(name, record["explains"], tuple(shown))


def _control(edit: str, parameter: str, told: Mapping[str, Any]) -> Control:
    explains = f"{told['explains']} ({told['allowed'].replace(' (sweeps are log-spaced)', '')})"
    first = FIRST.get((edit, parameter), told["default"])
    if "choices" in told:
        return Control(edit, parameter, told["explains"], first, choices=tuple(told["choices"]))
    low, high = float(told["low"]), float(told["high"])
    if not isinstance(first, int | float):
        first = (low + high) / 2
    step = STEPS.get(parameter, STEPS.get(edit, 1.0))
    control = Control(edit, parameter, explains, first, low, high, step, word=next(iter(told["words"]), None))
    if (edit, parameter) == ("background", "strength"):
        # The kind says the sign already: simple is below 0, complex and adversarial above.
        return replace(control, low=1.0, explains="of the guidance; for simple, complex and adversarial (1 to 200)")
    return control


def chain_from(values: Mapping[str, Mapping[str, Any]], picture: str | None = None) -> tuple[Edit, ...]:
    """The chain of the edits in `values` ({edit: {parameter: value}}), in their order; picture: of that background.

    >>> chain_from({"position": {"x": 0.0, "y": 1.0}, "size": {"rate": 0.05}})
    (Size(rate=0.05, start=0.25), Position(x=0.0, y=1.0, start=0.25))
    """
    names = [*(name for name in ORDER if name in values), *(name for name in values if name not in ORDER)]
    return tuple(_edit(name, dict(values[name]), picture) for name in names)


def _edit(name: str, given: dict[str, Any], picture: str | None) -> Edit:
    if name == "background":
        kind = given.get("kind")
        if kind in STRENGTHS:
            sign = 1 if STRENGTHS[kind] > 0 else -1
            given["strength"] = sign * abs(float(given.get("strength") or STRENGTHS[kind]))
        else:
            given.pop("strength", None)
            given.pop("band", None)
        if kind == "picture":
            given["picture"] = picture
    edit: Edit = make_edit(name, **given)
    return edit


def values_from(shown: Sequence[Group], flat: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """{edit: {parameter: value}} of the edits that are switched on, from the page's values in the order of the groups.

    An edit takes one place for its switch, then one for each control, and one more where that has a word.
    """
    values = iter(flat)
    chosen: dict[str, dict[str, Any]] = {}
    for group in shown:
        switched = bool(next(values))
        given = {}
        for control in group.controls:
            given[control.parameter] = next(values)
            if control.word is not None and next(values):
                given[control.parameter] = control.word
        if switched:
            chosen[group.edit] = given
    return chosen
