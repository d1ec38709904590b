"""Where the object is in the picture, its own size and place in the photograph, and the values that put it elsewhere.

The handles on the picture set the same controls as the sliders: a wanted place becomes values of size, direction and
position.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unswayed.edits.composition import IDENTITY
from unswayed.edits.geometry import after, box, center, moved, outline, placed_mask, rotation, scaling
from unswayed.errors import UserError
from unswayed.scene import frame

from .photographs import Photograph

SIDE = 256
# Smaller objects are only a few pixels, of which no mask can be made at every rate.
SMALLEST = 0.005
# A little less than what touches the frame, because the rate is measured in whole pixels.
WITHIN = 0.995
HANDLES = ("move", "scale", "turn")
Values = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Place:
    """The object in the picture, in shares of its sides: the corners of its box, which turn with it, clockwise from
    the upper left; center: the middle of the upright box around it; rate: the share of the picture that it covers;
    degrees: how far it is turned counterclockwise."""

    corners: tuple[tuple[float, float], ...]
    center: tuple[float, float]
    rate: float
    degrees: float

    def to_json(self) -> str:
        return json.dumps({"corners": self.corners, "center": self.center, "rate": self.rate, "degrees": self.degrees})


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


def place_of(photograph: Photograph, placement: np.ndarray = IDENTITY) -> Place:
    """Return where an affine map of the unit square puts the object of the framed photograph."""
    found = _object(photograph)
    (left, top), (right, bottom) = box(found.points)
    corners = moved(np.array([[left, top], [right, top], [right, bottom], [left, bottom]]), placement)
    middle = center(moved(found.points, placement))
    turn = placement[:, :2]
    return Place(
        tuple((round(float(x), 4), round(float(y), 4)) for x, y in corners),
        (round(float(middle[0]), 4), round(float(middle[1]), 4)),
        float(f"{found.rate * abs(float(np.linalg.det(turn))):.4g}"),
        round(math.degrees(math.atan2(turn[0, 1], turn[0, 0])), 1) + 0.0,
    )


def own_values(photograph: Photograph) -> dict[tuple[str, str], float]:
    """Return the values of the controls that leave the object as it is in the photograph, by edit and parameter."""
    found = _object(photograph)
    x, y = _shares(found.points, center(found.points))
    return {("size", "rate"): float(f"{found.rate:.3g}"), ("position", "x"): x, ("position", "y"): y}


def largest_values(photograph: Photograph) -> dict[tuple[str, str], float]:
    """Return the values at which the frame ends, by edit and parameter; never less than the object's own."""
    found = _object(photograph)
    return {("size", "rate"): float(f"{max(found.largest(), found.rate):.3g}")}


def wanted_place(text: str) -> tuple[str, tuple[float, float], float, float]:
    """Return the handle, center, rate and degrees that the page sends; raises UserError if they are none."""
    try:
        wanted = json.loads(text)
        handle, (x, y), rate, degrees = (wanted[name] for name in ("handle", "center", "rate", "degrees"))
        numbers = [float(value) for value in (x, y, rate, degrees)]
    except (TypeError, ValueError, KeyError):
        raise UserError("the place of the object is not readable", allowed="a move of one of the handles") from None
    if handle not in HANDLES or not all(map(math.isfinite, numbers)):
        raise UserError("the place of the object is not possible", allowed=f"a handle ({', '.join(HANDLES)})")
    return handle, (numbers[0], numbers[1]), numbers[2], numbers[3]


def wanted_serial(text: str) -> int | None:
    """Return the number of a move that the page sends, None if it has none.

    >>> wanted_serial('{"serial": 7}'), wanted_serial("no JSON")
    (7, None)
    """
    try:
        return int(json.loads(text)["serial"])
    except (TypeError, ValueError, KeyError):
        return None


def moved_to(photograph: Photograph, values: Mapping[str, Mapping[str, Any]], text: str) -> Values:
    """Return the values of the changes with the object at the place that a handle was moved to.

    An object that would be larger than the frame is made as large as the frame holds. The center is kept if the
    position is changed too.
    """
    handle, middle, rate, degrees = wanted_place(text)
    found = _object(photograph)
    changed: Values = {name: dict(given) for name, given in values.items()}
    degrees = (degrees + 180) % 360 - 180
    fitting = min(max(rate, SMALLEST), found.largest(degrees))
    if handle == "turn":
        changed["direction"] = {**changed.get("direction", {}), "degrees": float(round(degrees))}
    if handle == "scale" or fitting < WITHIN**2 * rate:
        changed["size"] = {**changed.get("size", {}), "rate": float(f"{fitting:.3g}")}
    if handle == "move" or "position" in changed:
        x, y = _shares(found.at(fitting, degrees), np.array(middle))
        changed["position"] = {**changed.get("position", {}), "x": x, "y": y}
    return changed


def _shares(points: np.ndarray, middle: np.ndarray) -> tuple[float, float]:
    """Return the position, in shares of the free room, of an outline whose box has its middle there."""
    low, high = box(points)
    extent = high - low
    free = 1 - extent
    first = middle - extent / 2
    shares = [float(np.clip(first[i] / free[i], 0, 1)) if free[i] > 1e-3 else 0.5 for i in (0, 1)]
    return round(shares[0], 3), round(shares[1], 3)
