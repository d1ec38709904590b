"""The page's sliders and lists, made from the declarations of the edits, and the chain of edits for their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass
from typing import Any

from unswayed.edits import EDITS, Edit, all_edits, in_order
from unswayed.edits.edit import Choice, Range, Text, file_parameters, parameters


@dataclass(frozen=True)
class Control:
    """One parameter of one edit, as shown on the page.

    explains: what it means, with its range and unit; first: the value that changes nothing, where the edit declares
    one; choices: of a list, empty for a slider from `low` to `high`; log: the slider has a logarithmic scale; word: the
    value of the checkbox next to the slider (`full`, `random`), or None.
    """

    edit: str
    parameter: str
    explains: str
    first: Any
    low: float = 0.0
    high: float = 1.0
    step: float = 1.0
    choices: tuple[str, ...] = ()
    log: bool = False
    word: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.edit, self.parameter


@dataclass(frozen=True)
class Group:
    """An edit: its name, what it changes, its controls, and its parameter for an uploaded picture file, or None."""

    edit: str
    explains: str
    controls: tuple[Control, ...]
    file: str | None = None

    @property
    def count(self) -> int:
        """Return the number of values that the page has for this edit: switch, controls, and words of controls."""
        return 1 + sum(1 if one.word is None else 2 for one in self.controls)


def groups() -> tuple[Group, ...]:
    """Return every edit, including those of other packages, in the order in which they are applied."""
    return tuple(_group(edit) for edit in all_edits().values())


def _group(edit: type[Edit]) -> Group:
    shown = [
        _control(edit, name, field)
        for name, field in parameters(edit).items()
        if not field.metadata["hidden"] and not isinstance(field.metadata["allowed"], Text)
    ]
    return Group(edit.name, edit.description, tuple(shown), next(iter(file_parameters(edit)), None))


def _control(edit: type[Edit], name: str, field: Field[Any]) -> Control:
    explains, declared = field.metadata["explains"], field.metadata["allowed"]
    if isinstance(declared, Choice):
        return Control(edit.name, name, explains, field.default, choices=declared.names)
    shown: Range = field.metadata["shown"] or declared
    neutral = next((change.neutral for change in edit.changes if change.parameter == name), None)
    candidates = (neutral, field.metadata["first"], field.default, (shown.low + shown.high) / 2)
    first = next(value for value in candidates if isinstance(value, int | float))
    return Control(
        edit.name,
        name,
        f"{explains} ({shown.describe().replace(' (sweeps are log-spaced)', '')})",
        min(max(first, shown.low), shown.high),
        shown.low,
        shown.high,
        shown.step or (shown.high - shown.low) / 100,
        log=shown.spacing == "log",
        word=next(iter(shown.words), None),
    )


def chain_from(values: Mapping[str, Mapping[str, Any]], picture: str | None = None) -> tuple[Edit, ...]:
    """Return the edits in `values` ({edit: {parameter: value}}), in their order; picture: the uploaded file, or None.

    >>> chain_from({"position": {"x": 0.0, "y": 1.0}, "size": {"rate": 0.05}})
    (Size(rate=0.05, start=0.25), Position(x=0.0, y=1.0, start=0.25))
    """
    return in_order(_edit(EDITS.load(name), given, picture) for name, given in values.items())


def _edit(edit: type[Edit], given: Mapping[str, Any], picture: str | None) -> Edit:
    return edit.from_controls({**given, **dict.fromkeys(file_parameters(edit), picture)})


def values_from(shown: Sequence[Group], flat: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return {edit: {parameter: value}} of the enabled edits, from the page's values in the order of the groups.

    An edit has one value for its switch, then one for each control, and one more if the control has a word.
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


def flat_from(
    shown: Sequence[Group],
    flat: Sequence[Any],
    values: Mapping[str, Mapping[str, Any] | None],
    starts: Mapping[tuple[str, str], float],
) -> list[Any]:
    """Return the page's values with some edits changed; the reverse of `values_from`.

    values: {edit: {parameter: value}} switches an edit on, {edit: None} switches it off and resets its controls to
    `starts`, or to their first values; the other edits stay as they are in `flat`.
    """
    given = iter(flat)
    changed: list[Any] = []
    for group in shown:
        kept = [next(given) for _ in range(group.count)]
        if group.edit not in values:
            changed += kept
            continue
        wanted = values[group.edit]
        changed.append(wanted is not None)
        for control in group.controls:
            start = starts.get(control.key, control.first)
            value = start if wanted is None else wanted.get(control.parameter, start)
            changed.append(start if control.word is not None and value == control.word else value)
            if control.word is not None:
                changed.append(value == control.word)
    return changed


def chosen_chain(shown: Sequence[Group], picture: str | None, flat: Sequence[Any]) -> tuple[Edit, ...]:
    """Return the edits that are switched on, from the page's values; picture: the uploaded file, or None."""
    return chain_from(values_from(shown, flat), picture)
