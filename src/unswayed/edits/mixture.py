"""Which edits are drawn for training, how often and from which ranges; and how edits of other packages are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from unswayed.errors import UserError, unknown
from unswayed.files.records import require_fields
from unswayed.scene import Scene

from . import EDITS, find_edit
from .composition import Composition, Impossible, Original, PictureReference, Pool, Removed
from .edit import Allowed, Choice, Edit, Range, allowed
from .geometry import resized
from .layers import composite, drawn_picture, realize, without_object

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
    with color; occlusion: share of the object that is hidden. An edit of another package may have a weight, too: its
    main parameter is drawn from the range that it declares, or from the one in `ranges` under its name.

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
    ranges: Mapping[str, Span] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if name not in trainable_edits():
                raise unknown("edit to train with", name, trainable_edits())
            if not 0 <= weight < float("inf"):
                raise UserError(f"the weight of {name} is {weight}", allowed="0 or more")
        if not any(self.weights.values()):
            raise UserError(
                "every edit has weight 0", allowed=f"a weight above 0 for one of {', '.join(trainable_edits())}"
            )
        if not 0 <= self.probability <= 1:
            raise UserError(f"the probability of an edit is {self.probability}", allowed="0 to 1")
        if self.most < 1:
            raise UserError(f"the most edits of one picture are {self.most}", allowed="1 or more")
        for name, (least, greatest) in LIMITS.items():
            object.__setattr__(self, name, _checked_span(name, getattr(self, name), least, greatest))
        object.__setattr__(
            self, "ranges", {name: self._span_of_other(name, span) for name, span in self.ranges.items()}
        )

    def _span_of_other(self, name: str, span: Sequence[float]) -> Span:
        if name not in self.others:
            raise unknown("edit of another package with a weight", name, self.others)
        space = _axis_space(name)
        if not isinstance(space, Range):
            raise UserError(f"{name} has no range to draw from", allowed=space.describe())
        return _checked_span(name, span, space.low, space.high)

    @property
    def others(self) -> tuple[str, ...]:
        """The edits of other packages that have a weight."""
        return tuple(name for name in self.weights if name not in KINDS)

    def to_json(self) -> dict[str, Any]:
        """The mixture as JSON; `EditMixture.from_json` reads it."""
        spans = {name: list(getattr(self, name)) for name in LIMITS}
        ranges = {"ranges": {name: list(span) for name, span in self.ranges.items()}} if self.ranges else {}
        fixed = {"weights": dict(self.weights), "probability": self.probability, "most": self.most}
        return {**fixed, **spans, **ranges}

    @staticmethod
    def from_json(value: Mapping[str, Any], where: str = "the mixture of edits") -> EditMixture:
        """The mixture of a JSON object with any of these fields; `where` is what an error names."""
        names = [setting.name for setting in fields(EditMixture)]
        kinds = {"weights": dict[str, float], "probability": float, "most": int, "ranges": dict[str, list[float]]}
        require_fields(value, {}, where)
        for name in value:
            if name not in names:
                raise unknown("setting of the edits to train with", name, names)
        require_fields(value, {name: kinds.get(name, list[float]) for name in value}, where)
        spans = {name: value[name] for name in LIMITS if name in value}
        for name, span in {**spans, **value.get("ranges", {})}.items():
            if len(span) != 2:
                raise UserError(f"{where}: the range of {name} has {len(span)} numbers", allowed="two numbers")
        return EditMixture(**{**value, **spans})


def trainable_edits() -> list[str]:
    """The edits that a mixture may draw: those of this package, then those of other installed packages."""
    return [*KINDS, *(name for name in EDITS if not EDITS.is_own(name))]


def _checked_span(name: str, span: Sequence[float], least: float, greatest: float) -> Span:
    low, high = span
    if not least <= low <= high <= greatest:
        raise UserError(
            f"the range of {name} is {low:g} to {high:g}", allowed=f"two numbers from {least:g} to {greatest:g}"
        )
    return float(low), float(high)


def _axis_space(name: str) -> Allowed:
    edit = find_edit(name)
    return allowed(edit, edit.axis)


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
_SPANNED = ("size", "x", "y", "direction", "lighting", "blur", "color", "saturation", "occlusion")
NUMBERS = (*_SPANNED, "donor", "place", "tilt")


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
        column: np.ndarray = self.numbers[:, NUMBERS.index(name)]
        return column


def draw(count: int, mixture: EditMixture, rng: np.random.Generator, without: tuple[str, ...] = ()) -> Draws:
    """The draws for `count` pictures; `without` names edits that cannot be made, which are then not drawn."""
    others = mixture.others
    kinds = (*KINDS, *others)
    weights = np.array([0.0 if kind in without else mixture.weights.get(kind, 0.0) for kind in kinds])
    possible = int((weights > 0).sum())
    # The largest of these keys are a weighted draw without repetition (Efraimidis and Spirakis 2006).
    with np.errstate(divide="ignore"):
        keys = np.where(weights > 0, np.log(rng.random((count, len(kinds)))) / weights, -np.inf)
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
        rng.random((count, len(others))),
        others,
    )


def _span(mixture: EditMixture, name: str) -> Span:
    if name == "size":
        return float(np.log(mixture.size[0])), float(np.log(mixture.size[1]))
    if name in ("x", "y"):
        return mixture.position
    return getattr(mixture, name) if name in LIMITS else (0.0, 1.0)


def edited_by_others(
    image: np.ndarray, mask: np.ndarray, draws: Draws, mixture: EditMixture, other: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The picture (H, W, 3) uint8 and its mask (H, W) float32 after the drawn edits of other packages.

    draws: of this picture alone; other: another picture without its object, of any square size, which some edits need.
    An edit that is not possible for the picture, or not without a network, leaves it as it is.
    """
    chosen = np.flatnonzero(draws.kinds[0, len(KINDS) :])
    high, wide = mask.shape
    side = max(high, wide)
    # Compositions are square: what is missing is mirrored, and cut off again.
    missing = (0, side - high), (0, side - wide)
    for place in chosen:
        if not (mask > 0.5).any():
            break
        share = float(draws.shares[0, place])
        square = Scene("own", np.pad(image, (*missing, (0, 0)), mode="symmetric"), np.pad(mask, missing))
        pool = Pool(("own",) if other is None else ("own", "other"), {"own": square, "other": square}.__getitem__, side)
        edit = _drawn_edit(draws.others[place], share, mixture)
        try:
            composition = edit.apply(Composition.of(square), np.random.default_rng(int(share * 2**53)), pool)
            if composition.needs_network is None:
                layers = realize(composition, _Fills(side, other), 0)
                image = composite(layers.object, layers.alpha, layers.background)[:high, :wide]
                mask = layers.mask[:high, :wide]
        except Impossible:
            continue
    return np.ascontiguousarray(image), np.ascontiguousarray(mask)


def _drawn_edit(name: str, share: float, mixture: EditMixture) -> Edit:
    """The edit with its main parameter at a share of its range; a choice and a text take it from their own values."""
    edit, space = find_edit(name), _axis_space(name)
    if isinstance(space, Range):
        low, high = mixture.ranges.get(name, (space.low, space.high))
        logarithmic = space.spacing == "log" and low > 0
        level = low * (high / low) ** share if logarithmic else low + share * (high - low)
        return edit(**{edit.axis: level})
    return edit(**{edit.axis: space.names[int(share * len(space.names))]}) if isinstance(space, Choice) else edit()


class _Fills:
    """Backgrounds without a removal method: objects are filled smoothly, other scenes are one given picture."""

    def __init__(self, size: int, other: np.ndarray | None) -> None:
        self.size, self.other = size, other

    def resolve(self, reference: PictureReference, composition: Composition) -> np.ndarray:
        if isinstance(reference, Original):
            return composition.image
        if not isinstance(reference, Removed):
            return drawn_picture(reference, self.size)
        if reference.scene_id == composition.scene_id:
            return without_object(composition.image, composition.mask)
        assert self.other is not None
        return resized(self.other, self.size)
