"""Which edits are drawn for training, how often and from which ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from unswayed.errors import UserError, check_known
from unswayed.files.records import require_fields
from unswayed.files.whole import Json

from . import EDITS
from .edit import Range, allowed

# The edits that have an operation on whole batches, in the order in which they are drawn.
_FACTS = {name: EDITS.part(name).facts for name in EDITS if EDITS.is_own(name)}
KINDS = tuple(sorted((name for name in _FACTS if "batch" in _FACTS[name]), key=lambda name: _FACTS[name]["batch"]))
Span = tuple[float, float]


def _span(low: float, high: float, least: float, most: float) -> Span:
    span: Span = field(default=(low, high), metadata={"limits": (least, most)})
    return span


@dataclass(frozen=True)
class EditMixture:
    """A mixture of edits; a picture that is edited gets one to `most` different ones.

    weights: how often each edit is drawn, relative to the others; an edit that is not named is not drawn.
    probability: the share of pictures that are edited. The other fields are ranges, drawn from uniformly (size: its
    logarithm): size: share of the picture that the object covers; position: share of the free room to the object's
    left and above it; direction: degrees; lighting: stops, on the object, the background or both; blur: radius in
    pixels of a 256-pixel picture, of the object or the background; color: degrees of hue; saturation: a factor, drawn
    with color; occlusion: share of the object that is hidden. Weather and edits of other packages may have a weight,
    too: their main parameter is drawn from the range that they declare, or from the one in `ranges` under their name.

    >>> EditMixture(weights={"size": 1.0}, size=(0.05, 0.05)).probability
    0.5
    """

    weights: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 1.0))
    probability: float = 0.5
    most: int = 3
    size: Span = _span(0.03, 0.4, least=0.001, most=1.0)
    position: Span = _span(0.0, 1.0, least=0.0, most=1.0)
    direction: Span = _span(-45.0, 45.0, least=-180.0, most=180.0)
    lighting: Span = _span(-2.0, 2.0, least=-5.0, most=5.0)
    blur: Span = _span(1.0, 6.0, least=0.0, most=32.0)
    color: Span = _span(-60.0, 60.0, least=-180.0, most=180.0)
    saturation: Span = _span(0.3, 1.5, least=0.0, most=3.0)
    occlusion: Span = _span(0.1, 0.5, least=0.0, most=0.95)
    ranges: Mapping[str, Span] = field(default_factory=dict)

    def __post_init__(self) -> None:
        trainable = trainable_edits()
        for name, weight in self.weights.items():
            check_known("edit to train with", [name], trainable)
            if not 0 <= weight < float("inf"):
                raise UserError(f"the weight of {name} is {weight}", allowed="0 or more")
        if not any(self.weights.values()):
            raise UserError("every edit has weight 0", allowed=f"a weight above 0 for one of {', '.join(trainable)}")
        if not 0 <= self.probability <= 1:
            raise UserError(f"the probability of an edit is {self.probability}", allowed="0 to 1")
        if self.most < 1:
            raise UserError(f"the most edits of one picture are {self.most}", allowed="1 or more")
        for name, limits in LIMITS.items():
            object.__setattr__(self, name, _checked_span(name, getattr(self, name), *limits))
        ranges = {}
        for name, span in self.ranges.items():
            check_known("weather or edit of another package with a weight", [name], self.others)
            space = allowed(EDITS.load(name), EDITS.load(name).axis)
            if not isinstance(space, Range):
                raise UserError(f"{name} has no range to draw from", allowed=space.describe())
            ranges[name] = _checked_span(name, span, space.low, space.high)
        object.__setattr__(self, "ranges", ranges)

    @property
    def others(self) -> tuple[str, ...]:
        """The edits with a weight that are not drawn unless they are named: weather, and those of other packages."""
        return tuple(name for name in self.weights if name not in KINDS)

    def to_json(self) -> Json:
        """The mixture as JSON; `EditMixture.from_json` reads it."""
        spans = {name: list(getattr(self, name)) for name in LIMITS}
        ranges = {"ranges": {name: list(span) for name, span in self.ranges.items()}} if self.ranges else {}
        return {"weights": dict(self.weights), "probability": self.probability, "most": self.most, **spans, **ranges}

    @staticmethod
    def from_json(value: Mapping[str, Any], where: str = "the mixture of edits") -> EditMixture:
        """The mixture of a JSON object with any of these fields; `where` is what an error names."""
        kinds = {"weights": dict[str, float], "probability": float, "most": int, "ranges": dict[str, list[float]]}
        require_fields(value, {}, where)
        check_known("setting of the edits to train with", value, [setting.name for setting in fields(EditMixture)])
        require_fields(value, {name: kinds.get(name, list[float]) for name in value}, where)
        spans = {name: value[name] for name in LIMITS if name in value}
        for name, span in {**spans, **value.get("ranges", {})}.items():
            if len(span) != 2:
                raise UserError(f"{where}: the range of {name} has {len(span)} numbers", allowed="two numbers")
        return EditMixture(**value)


def trainable_edits() -> list[str]:
    """The edits that a mixture may draw: first those on batches, then those of this and other packages without one."""
    more = [name for name in EDITS if name not in KINDS]
    return [*KINDS, *(name for name in more if not EDITS.is_own(name) or EDITS.part(name).facts.get("trains", True))]


def _checked_span(name: str, span: Sequence[float], least: float, most: float) -> Span:
    low, high = span
    if not least <= low <= high <= most:
        given = f"the range of {name} is {low:g} to {high:g}"
        raise UserError(given, allowed=f"two numbers from {least:g} to {most:g}")
    return float(low), float(high)


LIMITS: dict[str, Span] = {
    setting.name: setting.metadata["limits"] for setting in fields(EditMixture) if setting.metadata
}
# What `lighting` and `blur` act on.
OBJECT, BACKGROUND, BOTH = 0, 1, 2
NUMBERS = ("size", "x", "y", "direction", "lighting", "blur", "color", "saturation", "occlusion",
           "donor", "place", "tilt")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Draws:
    """What is done to each of N pictures.

    kinds: (N, 8 + others) bool in the order of KINDS and `others`, the edits of other packages; numbers: (N, 12)
    float32 in the order of NUMBERS, of which donor, place and tilt are in [0, 1); lit, blurred: (N,) int, what lighting
    and blur act on; shares: (N, others) in [0, 1), from which the level and the random choices of the others follow.
    """

    kinds: np.ndarray
    numbers: np.ndarray
    lit: np.ndarray
    blurred: np.ndarray
    shares: np.ndarray
    others: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, rows: np.ndarray | slice) -> Draws:
        kinds, numbers, shares = self.kinds[rows], self.numbers[rows], self.shares[rows]
        return Draws(kinds, numbers, self.lit[rows], self.blurred[rows], shares, self.others)

    def has(self, *kinds: str) -> np.ndarray:
        """(N,) bool: the pictures that get one of these edits."""
        names = (*KINDS, *self.others)
        return np.asarray(self.kinds[:, [names.index(kind) for kind in kinds]].any(axis=1))

    def of(self, name: str) -> np.ndarray:
        """(N,) float32: the drawn numbers of one name."""
        return self.numbers[:, NUMBERS.index(name)]


def draw(count: int, mixture: EditMixture, rng: np.random.Generator, without: tuple[str, ...] = ()) -> Draws:
    """The draws for `count` pictures; `without` names edits that cannot be made, which are then not drawn."""
    kinds = (*KINDS, *mixture.others)
    weights = np.array([0.0 if kind in without else mixture.weights.get(kind, 0.0) for kind in kinds])
    possible = int((weights > 0).sum())
    # The largest of these keys are a weighted draw without repetition (Efraimidis and Spirakis 2006).
    with np.errstate(divide="ignore"):
        keys = np.where(weights > 0, np.log(rng.random((count, len(kinds)))) / weights, -np.inf)
    ranks = np.argsort(np.argsort(-keys, axis=1), axis=1)
    number = np.minimum(rng.integers(1, mixture.most + 1, count), possible)
    number = np.where(rng.random(count) < mixture.probability, number, 0)
    share = rng.random((count, len(NUMBERS)))
    drawn = {**{name: getattr(mixture, name) for name in LIMITS}, "x": mixture.position, "y": mixture.position}
    spans = np.array([drawn.get(name, (0.0, 1.0)) for name in NUMBERS])
    spans[0] = np.log(spans[0])
    numbers = spans[:, 0] + share * (spans[:, 1] - spans[:, 0])
    numbers[:, 0] = np.exp(numbers[:, 0])
    lit, blurred = rng.integers(0, 3, count), rng.integers(0, 2, count)
    shares = rng.random((count, len(mixture.others)))
    return Draws(ranks < number[:, None], numbers.astype(np.float32), lit, blurred, shares, mixture.others)
