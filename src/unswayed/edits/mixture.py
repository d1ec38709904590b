"""Which edits are drawn, how often and from which ranges; and the draws for a number of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from unswayed.errors import UserError, unknown
from unswayed.files.records import require_fields

KINDS = ("background", "size", "position", "direction", "lighting", "blur", "color", "occlusion")
Span = tuple[float, float]


@dataclass(frozen=True)
class EditMixture:
    """A mixture of edits; a picture that is edited gets one to `most` different ones.

    weights: how often each edit is drawn, relative to the others; an edit that is not named is not drawn.
    probability: the share of pictures that are edited. The other fields are ranges, drawn from uniformly (size: its
    logarithm): size: share of the picture that the object covers; position: share of the free room to the object's
    left and above it; direction: degrees; lighting: stops, on the object, the background or both; blur: radius in
    pixels of a 256-pixel picture, of the object or the background; color: degrees of hue; saturation: a factor, drawn
    with color; occlusion: share of the object that is hidden.

    >>> EditMixture(weights={"size": 1.0}, size=(0.05, 0.05)).probability
    0.5
    """

    weights: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 1.0))
    probability: float = 0.5
    most: int = 3
    size: Span = (0.03, 0.4)
    position: Span = (0.0, 1.0)
    direction: Span = (-45.0, 45.0)
    lighting: Span = (-2.0, 2.0)
    blur: Span = (1.0, 6.0)
    color: Span = (-60.0, 60.0)
    saturation: Span = (0.3, 1.5)
    occlusion: Span = (0.1, 0.5)

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if name not in KINDS:
                raise unknown("edit to train with", name, KINDS)
            if not 0 <= weight < float("inf"):
                raise UserError(f"the weight of {name} is {weight}", allowed="0 or more")
        if not any(self.weights.values()):
            raise UserError("every edit has weight 0", allowed=f"a weight above 0 for one of {', '.join(KINDS)}")
        if not 0 <= self.probability <= 1:
            raise UserError(f"the probability of an edit is {self.probability}", allowed="0 to 1")
        if self.most < 1:
            raise UserError(f"the most edits of one picture are {self.most}", allowed="1 or more")
        for name, (least, greatest) in LIMITS.items():
            low, high = getattr(self, name)
            if not least <= low <= high <= greatest:
                raise UserError(
                    f"the range of {name} is {low:g} to {high:g}", allowed=f"two numbers from {least:g} to {greatest:g}"
                )
            object.__setattr__(self, name, (float(low), float(high)))

    def to_json(self) -> dict[str, Any]:
        """The mixture as JSON; `EditMixture.from_json` reads it."""
        spans = {name: list(getattr(self, name)) for name in LIMITS}
        return {**asdict(self), **spans, "weights": dict(self.weights)}

    @staticmethod
    def from_json(value: Mapping[str, Any], where: str = "the mixture of edits") -> EditMixture:
        """The mixture of a JSON object with any of these fields; `where` is what an error names."""
        allowed = [one.name for one in fields(EditMixture)]
        kinds = {"weights": dict[str, float], "probability": float, "most": int}
        require_fields(value, {}, where)
        for name in value:
            if name not in allowed:
                raise unknown("setting of the edits to train with", name, allowed)
        require_fields(value, {name: kinds.get(name, list[float]) for name in value}, where)
        spans = {name: tuple(value[name]) for name in LIMITS if name in value}
        for name, span in spans.items():
            if len(span) != 2:
                raise UserError(f"{where}: the range of {name} has {len(span)} numbers", allowed="two numbers")
        return EditMixture(**{**value, **spans})


LIMITS: dict[str, Span] = {
    "size": (0.001, 1.0),
    "position": (0.0, 1.0),
    "direction": (-180.0, 180.0),
    "lighting": (-5.0, 5.0),
    "blur": (0.0, 32.0),
    "color": (-180.0, 180.0),
    "saturation": (0.0, 3.0),
    "occlusion": (0.0, 0.95),
}
# What `lighting` and `blur` act on.
OBJECT, BACKGROUND, BOTH = 0, 1, 2
NUMBERS = (
    "size",
    "x",
    "y",
    "direction",
    "lighting",
    "blur",
    "color",
    "saturation",
    "occlusion",
    "donor",
    "place",
    "tilt",
)


@dataclass(frozen=True, eq=False)
class Draws:
    """What is done to each of N pictures.

    kinds: (N, 8) bool in the order of KINDS; numbers: (N, 12) float32 in the order of NUMBERS, of which donor, place
    and tilt are in [0, 1); lit, blurred: (N,) int, what lighting and blur act on.
    """

    kinds: np.ndarray
    numbers: np.ndarray
    lit: np.ndarray
    blurred: np.ndarray

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, rows: np.ndarray | slice) -> Draws:
        return Draws(self.kinds[rows], self.numbers[rows], self.lit[rows], self.blurred[rows])

    def has(self, *kinds: str) -> np.ndarray:
        """(N,) bool: the pictures that get one of these edits."""
        return np.asarray(self.kinds[:, [KINDS.index(kind) for kind in kinds]].any(axis=1))

    def of(self, name: str) -> np.ndarray:
        """(N,) float32: the drawn numbers of one name."""
        column: np.ndarray = self.numbers[:, NUMBERS.index(name)]
        return column


def draw(count: int, mixture: EditMixture, rng: np.random.Generator, without: tuple[str, ...] = ()) -> Draws:
    """The draws for `count` pictures; `without` names edits that cannot be made, which are then not drawn."""
    weights = np.array([0.0 if kind in without else mixture.weights.get(kind, 0.0) for kind in KINDS])
    possible = int((weights > 0).sum())
    # The largest of these keys are a weighted draw without repetition (Efraimidis and Spirakis 2006).
    with np.errstate(divide="ignore"):
        keys = np.where(weights > 0, np.log(rng.random((count, len(KINDS)))) / weights, -np.inf)
    ranks = np.argsort(np.argsort(-keys, axis=1), axis=1)
    number = np.minimum(rng.integers(1, mixture.most + 1, count), possible)
    number = np.where(rng.random(count) < mixture.probability, number, 0)
    share = rng.random((count, len(NUMBERS)))
    spans = np.array([_span(mixture, name) for name in NUMBERS])
    numbers = spans[:, 0] + share * (spans[:, 1] - spans[:, 0])
    numbers[:, 0] = np.exp(numbers[:, 0])
    return Draws(
        ranks < number[:, None],
        numbers.astype(np.float32),
        rng.integers(0, 3, count),
        rng.integers(0, 2, count),
    )


def _span(mixture: EditMixture, name: str) -> Span:
    if name == "size":
        return float(np.log(mixture.size[0])), float(np.log(mixture.size[1]))
    if name in ("x", "y"):
        return mixture.position
    return getattr(mixture, name) if name in LIMITS else (0.0, 1.0)
