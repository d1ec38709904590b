"""The changes as values: the page's sliders, made from the declarations of the edits, the handles on the object, and
the presets, all as the chain of edits that they stand for."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from unswayed.edits import EDITS, Edit, all_edits, in_order
from unswayed.edits.composition import IDENTITY
from unswayed.edits.edit import Choice, Range, Text, file_parameters, parameters
from unswayed.edits.geometry import after, box, center, moved, outline, placed_mask, rotation, scaling
from unswayed.errors import UserError
from unswayed.scene import frame

from .photographs import Photograph, open_sample

T = TypeVar("T")
# The value of one control of the page; a position is two of them.
Value: TypeAlias = float | str | bool | None
# An edit for its switch; the edit and the parameter of a control; and its word for the checkbox beside it.
Key: TypeAlias = str | tuple[str, ...]
# {edit: {parameter: value}}
Values: TypeAlias = Mapping[str, Mapping[str, Value]]


# What the page calls the parameters of our own edits.
LABELS = {
    ("background", "kind"): "background",
    ("background", "strength"): "strength of the guidance",
    ("background", "band"): "frequencies",
    ("background", "prompt"): "words",
    ("background", "negative"): "words for what it must not show",
    ("object-words", "prompt"): "the object in words",
    ("object-words", "negative"): "words for what it must not look like",
    ("size", "rate"): "object size",
    ("direction", "degrees"): "turned by, degrees",
    ("position", "x"): "room to its left",
    ("position", "y"): "room above it",
    ("occlusion", "share"): "hidden",
    ("lighting", "stops"): "more light, stops",
    ("lighting", "where"): "what is lit",
    ("blur", "pixels"): "blur, pixels",
    ("blur", "where"): "what is blurred",
    ("color", "hue"): "hue turned by, degrees",
    ("color", "saturation"): "saturation, times its own",
}


@dataclass(frozen=True)
class Control:
    """One parameter of one edit, as shown on the page.

    explains: what it means; first: the value that changes nothing, where the edit declares one; choices: of a list,
    empty for a slider from `low` to `high`; log: the slider has a logarithmic scale; word: the value of the checkbox
    next to the slider (`full`, `random`), or None; text: a field for words.
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
    text: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.edit, self.parameter

    @property
    def label(self) -> str:
        return LABELS.get(self.key, f"{self.edit}: {self.parameter}") + (", %" if self.is_share else "")

    @property
    def is_share(self) -> bool:
        """Whether its values lie from 0 to 1; the page shows them in percent."""
        return not self.choices and not self.text and self.low >= 0 and self.high <= 1

    def on_page(self, value: T) -> T | float:
        return float(f"{100 * value:.4g}") if self.is_share and isinstance(value, int | float) else value

    def from_page(self, value: T) -> T | float:
        return float(f"{value / 100:.6g}") if self.is_share and isinstance(value, int | float) else value


@dataclass(frozen=True)
class Group:
    """An edit: its name, what it changes, its controls, and its parameter for an uploaded picture file, or None."""

    edit: str
    explains: str
    controls: tuple[Control, ...]
    file: str | None = None

    @property
    def keys(self) -> list[Key]:
        """What each value that the page has for this edit is for: its switch, then each control, and its word."""
        keys: list[Key] = [self.edit]
        for control in self.controls:
            keys += [control.key] if control.word is None else [control.key, (*control.key, control.word)]
        return keys


def groups() -> tuple[Group, ...]:
    """Return every edit but controls, including those of other packages, in the order in which they are applied."""
    return tuple(
        Group(edit.name, edit.description, tuple(_controls(edit)), next(iter(file_parameters(edit)), None))
        for edit in all_edits().values()
        if edit.control != edit.name  # a control changes nothing
    )


def _controls(edit: type[Edit]) -> Iterator[Control]:
    for name, field in parameters(edit).items():
        allowed = field.metadata["allowed"]
        # A text that is no description, such as the path of a file on this machine, is not for visitors.
        if not field.metadata["hidden"] and (not isinstance(allowed, Text) or allowed.words):
            yield _control(edit, name, field)


def _control(edit: type[Edit], name: str, field: Field[object]) -> Control:
    explains, declared = field.metadata["explains"], field.metadata["allowed"]
    if isinstance(declared, Choice):
        return Control(edit.name, name, explains, field.default, choices=declared.names)
    if isinstance(declared, Text):
        return Control(edit.name, name, f"{explains}: {declared.meaning}", "", text=True)
    shown: Range = field.metadata["shown"] or declared
    neutral = next((change.neutral for change in edit.changes if change.parameter == name), None)
    candidates = (neutral, field.metadata["first"], field.default, (shown.low + shown.high) / 2)
    first = next(value for value in candidates if isinstance(value, int | float))
    first, step = min(max(first, shown.low), shown.high), shown.step or (shown.high - shown.low) / 100
    log, word = shown.spacing == "log", next(iter(shown.words), None)
    return Control(edit.name, name, explains, first, shown.low, shown.high, step, log=log, word=word)


def chain_from(values: Values, picture: str | None = None) -> tuple[Edit, ...]:
    """Return the edits in `values` in their order; picture: the uploaded file, or None.

    >>> chain_from({"position": {"x": 0.0, "y": 1.0}, "size": {"rate": 0.05}})
    (Size(rate=0.05, start=0.25), Position(x=0.0, y=1.0, start=0.25))
    """
    chosen = ((EDITS.load(name), given) for name, given in values.items())
    return in_order(
        [edit.from_controls({**given, **dict.fromkeys(file_parameters(edit), picture)}) for edit, given in chosen]
    )


def values_from(shown: Sequence[Group], flat: Sequence[Value]) -> dict[str, dict[str, Value]]:
    """Return the values of the enabled edits, from the page's values in the order of the groups and of their keys."""
    page = _by_key(shown, flat)

    def given(control: Control) -> Value:
        return control.word if page.get((*control.key, str(control.word))) else control.from_page(page[control.key])

    return {
        group.edit: {control.parameter: given(control) for control in group.controls}
        for group in shown
        if page[group.edit]
    }


def _by_key(shown: Sequence[Group], flat: Sequence[Value]) -> dict[Key, Value]:
    return dict(zip((key for group in shown for key in group.keys), flat, strict=True))


def flat_from(
    shown: Sequence[Group],
    flat: Sequence[Value],
    values: Mapping[str, Mapping[str, Value] | None],
    starts: Mapping[tuple[str, str], float],
) -> list[Value]:
    """Return the page's values with some edits changed; the reverse of `values_from`.

    values: {edit: {parameter: value}} switches an edit on, {edit: None} switches it off and resets its controls to
    `starts`, or to their first values; the other edits stay as they are in `flat`.
    """
    page = _by_key(shown, flat)
    for group in [group for group in shown if group.edit in values]:
        wanted = values[group.edit]
        page[group.edit] = wanted is not None
        for control in group.controls:
            start = starts.get(control.key, control.first)
            value = (wanted or {}).get(control.parameter, start)
            is_word = control.word is not None and value == control.word
            page[control.key] = control.on_page(start if is_word else value)
            if control.word is not None:
                page[*control.key, control.word] = is_word
    return list(page.values())


SIDE = 256
# Smaller objects are only a few pixels, of which no mask can be made at every rate.
SMALLEST = 0.005
# A little less than what touches the frame, because the rate is measured in whole pixels.
WITHIN = 0.995
HANDLES = ("move", "scale", "turn")


@dataclass(frozen=True, eq=False)
class _Object:
    """points: the outline of the object in the framed photograph; rate: the share of it that it covers."""

    points: np.ndarray
    rate: float

    def at(self, rate: float, degrees: float) -> np.ndarray:
        """Return the outline with this size and direction, about its own center."""
        middle = center(self.points)
        larger = scaling(math.sqrt(rate / self.rate), middle)
        return moved(self.points, after(rotation(degrees, middle), larger))

    def largest(self, degrees: float = 0.0) -> float:
        """Return the largest share of the picture at which it still fits the frame."""
        low, high = box(self.at(self.rate, degrees))
        return min(float(self.rate / (high - low).max() ** 2) * WITHIN, 1.0)


@functools.lru_cache(maxsize=64)
def _object(photograph: Photograph) -> _Object:
    mask = frame(photograph.scene).mask
    rate = float((placed_mask(mask, IDENTITY, SIDE) > 0.5).mean())
    return _Object(outline(mask), max(rate, 1 / SIDE**2))


def place_of(photograph: Photograph, placement: np.ndarray = IDENTITY) -> str:
    """Return where an affine map of the unit square puts the object of the framed photograph, as JSON.

    In shares of the picture's sides: the corners of the object's box, which turn with it, clockwise from the upper
    left; center: the middle of the upright box around it; rate: the share of the picture that it covers; degrees: how
    far it is turned counterclockwise.
    """
    framed = _object(photograph)
    (left, top), (right, bottom) = box(framed.points)
    corners = moved(np.array([[left, top], [right, top], [right, bottom], [left, bottom]]), placement)
    turn = placement[:, :2]
    stated = {
        "corners": [[round(float(x), 4), round(float(y), 4)] for x, y in corners],
        "center": [round(float(share), 4) for share in center(moved(framed.points, placement))],
        "rate": float(f"{framed.rate * abs(float(np.linalg.det(turn))):.4g}"),
        "degrees": round(math.degrees(math.atan2(turn[0, 1], turn[0, 0])), 1) + 0.0,
    }
    return json.dumps(stated)


def own_box(photograph: Photograph) -> list[float]:
    """Return left, top, right and bottom of the object's box in the framed photograph, in shares of its sides."""
    return [round(float(share), 4) for share in np.ravel(box(_object(photograph).points))]


def own_values(photograph: Photograph) -> dict[tuple[str, str], float]:
    """Return the values of the controls that leave the object as it is in the photograph, by edit and parameter."""
    framed = _object(photograph)
    x, y = _shares(framed.points, center(framed.points))
    return {("size", "rate"): float(f"{framed.rate:.3g}"), ("position", "x"): x, ("position", "y"): y}


def largest_values(photograph: Photograph) -> dict[tuple[str, str], float]:
    """Return the values at which the frame ends, by edit and parameter; never less than the object's own."""
    framed = _object(photograph)
    return {("size", "rate"): float(f"{max(framed.largest(), framed.rate):.3g}")}


def moved_to(photograph: Photograph, values: Values, text: str) -> tuple[dict[str, dict[str, Value]], int | None]:
    """Return the values of the changes with the object where handles were moved to, and the number of that move.

    text: JSON of the page, with the handles, the wanted center, rate and degrees, and the number if it has one. An
    object that would be larger than the frame is made as large as the frame holds. The center is kept if the position
    is changed too.
    """
    try:
        wanted = json.loads(text)
        handles, serial = frozenset(wanted["handles"]), wanted.get("serial")
        (x, y), rate, degrees = wanted["center"], float(wanted["rate"]), float(wanted["degrees"])
        middle = np.array([float(x), float(y)])
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        raise UserError("the place of the object is not readable", allowed="a move of one of the handles") from None
    if not handles or not handles <= set(HANDLES) or not np.isfinite([*middle, rate, degrees]).all():
        raise UserError("the place of the object is not possible", allowed=f"handles ({', '.join(HANDLES)})")
    framed = _object(photograph)
    changed = {name: dict(given) for name, given in values.items()}
    degrees = (degrees + 180) % 360 - 180
    fitting = min(max(rate, SMALLEST), framed.largest(degrees))
    if "turn" in handles:
        changed["direction"] = {**changed.get("direction", {}), "degrees": float(round(degrees))}
    if "scale" in handles or fitting < WITHIN**2 * rate:
        changed["size"] = {**changed.get("size", {}), "rate": float(f"{fitting:.3g}")}
    if "move" in handles or "position" in changed:
        x, y = _shares(framed.at(fitting, degrees), middle)
        changed["position"] = {**changed.get("position", {}), "x": x, "y": y}
    return changed, serial if isinstance(serial, int) else None


def _shares(points: np.ndarray, middle: np.ndarray) -> tuple[float, float]:
    """Return the position, in shares of the free room, of an outline whose box has its middle there."""
    low, high = box(points)
    free = 1 - (high - low)
    shares = np.clip((middle - (high - low) / 2) / np.maximum(free, 1e-3), 0, 1)
    x, y = (round(float(share), 3) for share in np.where(free > 1e-3, shares, 0.5))
    return x, y


@dataclass(frozen=True)
class Preset:
    """title: of its button; sample: the photograph; values: as the controls have them."""

    title: str
    sample: str
    values: Values


# Found by trying every attribute on every photograph of the sample; the page opens with the first one.
PRESETS = (
    Preset("Small hens", "chicken", {"size": {"rate": 0.03}}),
    Preset("A sheep upside down", "sheep", {"direction": {"degrees": 180.0}}),
    Preset("A blue hen", "chicken", {"color": {"hue": 120.0}}),
    Preset("A pig in the corner", "pig", {"position": {"x": 0.0, "y": 1.0}}),
)


def preset_flat(shown: Sequence[Group], preset: Preset) -> list[Value]:
    """Return the page's values with the changes of a preset and no others."""
    every = {group.edit: preset.values.get(group.edit) for group in shown}
    empty = [None for group in shown for _ in group.keys]
    return flat_from(shown, empty, every, own_values(open_sample(preset.sample)))
