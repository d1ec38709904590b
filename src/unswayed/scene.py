"""A scene: a photograph, the mask of its object and its label; and how it is framed as a square."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from unswayed.choices import Frame, OneLine, check_choice
from unswayed.errors import BadPicture

WARNING = "warning: "  # the start of a note about what looks wrong with a mask
MASKS_DOUBTED = "the masks may be wrong"  # the start of what is said if the masks as a whole are doubted
LOOK_BELOW = 0.7  # the confidence of an automatic mask below which a person should look at it


@dataclass(frozen=True)
class MaskOrigin:
    """What made an automatic mask, and its confidence in [0, 1].

    >>> str(MaskOrigin("grabcut from the center prior", 0.62514))
    'mask made by grabcut from the center prior with confidence 0.6251'
    """

    by: str
    confidence: float

    def __str__(self) -> str:
        return f"mask made by {self.by} with confidence {self.confidence:.4f}"

    @property
    def segmenter(self) -> str:
        """The segmenter's name, without how it was prompted."""
        return self.by.partition(" from ")[0]

    def to_values(self) -> dict[str, object]:
        """The origin as values of the photograph's row in a manifest."""
        return {"mask_by": self.by, "mask_confidence": round(self.confidence, 4)}

    @staticmethod
    def from_values(values: Mapping[str, object]) -> MaskOrigin | None:
        """The inverse of `to_values`; None for a mask that a person made."""
        by, confidence = values.get("mask_by"), values.get("mask_confidence")
        return MaskOrigin(by, confidence) if isinstance(by, str) and isinstance(confidence, float) else None


@dataclass(frozen=True, eq=False, repr=False)
class Scene(OneLine):
    """One photograph and the object in it.

    id: unique, path-safe slug; image: (H, W, 3) uint8 RGB; mask: (H, W) float32 in [0, 1], 1 = object, also made from
    bool and uint8 (0 and 255, or 0 and 1);
    label: index into the source's label space, or None; notes: what was done to the photograph, for the manifest;
    parts: further masks of the same shape by name (RIVAL10's attributes); mask_origin: what made the mask, None if it
    was not made automatically; others: the class and the mask of each other object of the photograph, where they are
    known.
    """

    id: str
    image: np.ndarray
    mask: np.ndarray
    label: int | None = None
    notes: tuple[str, ...] = ()
    parts: Mapping[str, np.ndarray] = field(default_factory=dict)
    mask_origin: MaskOrigin | None = None
    others: tuple[tuple[int | None, np.ndarray], ...] = ()

    def __post_init__(self) -> None:
        if self.image.ndim != 3 or self.image.shape[2] != 3 or self.image.dtype != np.uint8:
            raise BadPicture(f"{self.id}: a picture is (H, W, 3) uint8, not {self.image.shape} {self.image.dtype}")
        object.__setattr__(self, "mask", mask_array(self.mask, f"{self.id}: the mask"))
        parts = {name: mask_array(part, f"{self.id}: the mask of {name}") for name, part in self.parts.items()}
        object.__setattr__(self, "parts", parts)
        named = f"{self.id}: the mask of another object"
        object.__setattr__(self, "others", tuple((label, mask_array(mask, named)) for label, mask in self.others))
        if self.mask.shape != self.image.shape[:2]:
            high, wide = self.mask.shape
            raise BadPicture(
                f"{self.id}: the mask is {wide}×{high}, its picture {self.image.shape[1]}×{self.image.shape[0]}",
                allowed="a mask of its picture's size",
            )
        if not (self.mask > 0.5).any():
            largest = 255 * float(self.mask.max(initial=0))
            codes = f"; its largest value is {largest:.0f} of 255, perhaps a code such as 1, 2, 3" if largest else ""
            raise BadPicture(f"{self.id}: the mask is empty (no pixel above one half{codes})", allowed="white = object")

    @property
    def pixel_rate(self) -> float:
        """The share of the picture that the object covers: mean(mask > 0.5)."""
        return float((self.mask > 0.5).mean())

    def each(self, change: Callable[[np.ndarray], np.ndarray], *notes: str) -> Scene:
        """The scene with its picture and all its masks changed alike, and further notes."""
        parts = {name: change(part) for name, part in self.parts.items()}
        others = tuple((label, change(mask)) for label, mask in self.others)
        image, mask = change(self.image), change(self.mask)
        return replace(self, image=image, mask=mask, parts=parts, others=others, notes=(*self.notes, *notes))

    def resized(self, size: tuple[int, int], *notes: str) -> Scene:
        """The scene in another size (width, height)."""
        import cv2

        def change(pixels: np.ndarray) -> np.ndarray:
            made = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
            # Means of ones can be rounded up to more than 1, which no mask may have.
            return made if pixels is self.image else np.minimum(made, 1)

        return self.each(change, *notes)


def mask_array(mask: np.ndarray, name: str = "the mask") -> np.ndarray:
    """A mask as (H, W) float32 in [0, 1], from bool, uint8 (0 and 255, or 0 and 1) or floating point in [0, 1].

    name: what to call it where it is refused.
    """
    allowed = "(H, W): bool, uint8, or floating point in [0, 1]"
    floating = np.issubdtype(mask.dtype, np.floating)
    if mask.ndim != 2 or not (mask.dtype in (bool, np.uint8) or floating):
        raise BadPicture(f"{name} is {mask.shape} {mask.dtype}", allowed=allowed)
    if not floating:
        white = np.float32(1 if mask.max(initial=0) <= 1 else 255)
        return mask.astype(np.float32) / white
    if mask.size and not (mask.min() >= 0 and mask.max() <= 1):
        raise BadPicture(f"{name} has values from {mask.min():g} to {mask.max():g}", allowed=allowed)
    return mask.astype(np.float32, copy=False)


def frame(scene: Scene, how: Frame = "object") -> Scene:
    """The scene as a square, at the photograph's own resolution.

    object: the largest square window that holds the whole object, as near to the photograph's center as that
    allows; reflect-padded only where the object fits no such square. center: the central square, which may cut
    the object. squash: the whole photograph, stretched to a square (what the released ImageNet-E code does).
    """
    check_choice("framing", how, Frame)
    high, wide = scene.mask.shape
    if high == wide:
        return scene
    side = min(high, wide)
    if how == "squash":
        return scene.resized((side, side))
    short = 0 if wide > high else 1  # the axis of the short side
    inside = np.flatnonzero((scene.mask > 0.5).any(axis=short))
    first, last = int(inside[0]), int(inside[-1]) + 1
    centered = (max(high, wide) - side) / 2
    offset, length = int(round(min(max(centered, last - side), first))), side
    if how == "center":
        offset = int(centered)
        if not ((inside >= offset) & (inside < offset + side)).any():
            raise BadPicture(f"{scene.id}: no part of the object is in the central square", allowed="--frame object")
    elif last - first > side:
        offset, length = first, last - first
    cut = np.s_[offset : offset + length] if short else np.s_[:, offset : offset + length]
    window = scene.each(lambda pixels: np.ascontiguousarray(pixels[cut]))
    return window if length == side else _padded(window, short)


def _padded(scene: Scene, axis: int) -> Scene:
    """The scene as a square: its short side, along `axis`, is extended by reflection.

    Each end mirrors the strip between the border and the object, back and forth, so that no second object appears;
    if that strip is too thin (less than a quarter of what is missing), it mirrors the whole picture.
    """
    length, missing = min(scene.mask.shape), abs(scene.mask.shape[0] - scene.mask.shape[1])
    before, after = missing // 2, missing - missing // 2
    inside = np.flatnonzero((scene.mask > 0).any(axis=1 - axis))

    def strip(count: int, free: int) -> int:
        return max(free if free * 4 >= count else length, 1)

    first, last = strip(before, int(inside[0])), strip(after, length - 1 - int(inside[-1]))
    own = np.arange(length)
    above = np.pad(own[:first], (before, 0), "symmetric")[:before]
    below = np.pad(own[-last:], (0, after), "symmetric")[last:]
    lines = np.concatenate([above, own, below])
    widths = ((before, after), (0, 0)) if axis == 0 else ((0, 0), (before, after))

    def extended(pixels: np.ndarray) -> np.ndarray:
        # The mirrored strip is background: a second, mirrored object must not count as the object.
        return np.ascontiguousarray(pixels.take(lines, axis)) if pixels is scene.image else np.pad(pixels, widths)

    return scene.each(extended, f"framed with {missing} reflected pixels")
