"""A composition: an object, its placement, a reference to its background, and how it is blended.

Edits turn one composition into another and never run a network. The object keeps the photograph's own resolution and
a placement (an affine map of the unit square), so a chain of edits resamples it only once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from unswayed.errors import BadPicture
from unswayed.scene import Scene

IDENTITY = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


@dataclass(frozen=True)
class Original:
    """The photograph itself, with its object."""


@dataclass(frozen=True)
class WithoutObject:
    """The picture of scene `scene_id` with its object removed; fill: which of several fills of its place."""

    scene_id: str
    fill: int = 0


@dataclass(frozen=True)
class Picture:
    """A picture file, cropped to a square."""

    path: str


@dataclass(frozen=True)
class Drawing:
    """A picture drawn by code: draw(size, rng) -> (size, size, 3) uint8, with a generator of this seed."""

    draw: Callable[[int, np.random.Generator], np.ndarray]
    seed: int


# The types that a renderer turns into a picture of the output size.
PictureReference = Original | WithoutObject | Picture | Drawing

# (pixels (S, S, 3) uint8, weight (S, S) float32: 1 where a pixel belongs to the layer) -> both after a change
Layer = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Adjustment:
    """A change of a layer's pixels at the output size: operation(pixels, weight, **parameters) -> Layer.

    background_after: for a change of the object that also needs its background: after so many of that one's changes.
    """

    operation: Callable[..., Layer]
    parameters: tuple[tuple[str, object], ...]
    background_after: int | None = None


@dataclass(frozen=True)
class Guidance:
    """The guidance of the denoised background: kind `complexity` or `adversarial`, and its strength."""

    kind: str
    strength: float
    band: str = "all"


@dataclass(frozen=True)
class Words:
    """What a pipeline that reads words gets: a prompt, empty for one that describes the photograph as it is;
    negative: what must not be there; where: what is redrawn, the `background` or the `object`."""

    prompt: str
    negative: str | None = None
    where: str = "background"


@dataclass(frozen=True, eq=False)
class Cover:
    """What hides a part of the object: `pixels` (S, S, 3) uint8 where `alpha` (S, S) float32 over the canvas says, of
    the class `label` if it is an object of a known one."""

    alpha: np.ndarray
    pixels: np.ndarray
    label: int | None = None


@dataclass(frozen=True, eq=False)
class Composition:
    """The input of a renderer.

    image: (H, H, 3) uint8, the framed photograph; mask: (H, H) float32 in [0, 1], its object; placement: (2, 3) affine
    map, unit square of the photograph -> unit square of the canvas; background: what is behind it; adjustments: changes
    of that background, object_adjustments: of the object; covers: what is in front; start: share of the noise schedule
    at which blending starts (0 = pasted, no diffusion needed); cropped: whether image and mask are only a part of the
    photograph; requested: requested and random values by name (`pixel_rate` is the share of the picture that the
    visible object must cover, compared with the achieved one; the other names are the edits'); needs_network: the
    reason why this is not possible without a diffusion network, or None; words: what a pipeline that reads words
    draws, or None; class_name: that of the label, if it is known.
    """

    scene_id: str
    image: np.ndarray
    mask: np.ndarray
    label: int | None = None
    placement: np.ndarray = field(default_factory=IDENTITY.copy)
    background: PictureReference = field(default_factory=Original)
    adjustments: tuple[Adjustment, ...] = ()
    object_adjustments: tuple[Adjustment, ...] = ()
    covers: tuple[Cover, ...] = ()
    start: float = 0.0
    guidance: Guidance | None = None
    cropped: bool = False
    requested: Mapping[str, Any] = field(default_factory=dict)
    needs_network: str | None = None
    words: Words | None = None
    class_name: str | None = None

    def adjust(self, change: Adjustment, where: str, **requested: object) -> Composition:
        """Return the composition with a change of the pixels of `object`, `background` or `both`."""
        return replace(
            self,
            object_adjustments=(*self.object_adjustments, *([change] if where != "background" else ())),
            adjustments=(*self.adjustments, *([change] if where != "object" else ())),
            requested={**self.requested, **requested},
        )

    def told(self, words: Words) -> Composition:
        """Return the composition with a part redrawn from words, in which `{class}` is the photograph's class; words
        for the same part are added to those that are already there."""
        if "{class}" in words.prompt and self.class_name is None:
            unknown = "the words name {class}, but the class of this photograph is not known"
            raise Impossible(f"{unknown}; `edit` takes it as --label")
        text = words.prompt.replace("{class}", self.class_name or "")
        if self.words is not None:
            if self.words.where != words.where:
                raise Impossible("the object and the background cannot both be redrawn from words")
            text = f"{self.words.prompt}, {text}"
            negative = ", ".join(filter(None, (self.words.negative, words.negative)))
            words = replace(words, negative=negative or None)
        return replace(self, words=replace(words, prompt=text))

    @staticmethod
    def of(framed: Scene, classes: Sequence[str] = ()) -> Composition:
        """Return the composition that changes nothing: the edit `original`; classes: the names of the labels."""
        known = framed.label is not None and framed.label < len(classes)
        name = classes[framed.label] if known and framed.label is not None else None
        return Composition(framed.id, framed.image, framed.mask, framed.label, class_name=name)


# (image (S, S, 3) uint8, mask (S, S) float, seed, label or None) -> the image without its object
Removal = Callable[[np.ndarray, np.ndarray, int, int | None], np.ndarray]


@dataclass(frozen=True)
class Pool:
    """The other scenes of the source, for edits that use them: ids in source order, framed scenes on demand; classes:
    the names of their labels."""

    ids: tuple[str, ...]
    load: Callable[[str], Scene]
    size: int = 256
    classes: Sequence[str] = ()

    def other(self, scene_id: str, rng: np.random.Generator) -> str | None:
        """Return the id of a random usable scene other than `scene_id`; None if there is none."""
        candidates = [other for other in self.ids if other != scene_id]
        for position in rng.permutation(len(candidates)):
            with contextlib.suppress(BadPicture):
                self.load(candidates[position])
                return candidates[position]
        return None


class Impossible(Exception):
    """The reason why an edit is not possible for a scene; the picture is recorded as `skipped`."""
