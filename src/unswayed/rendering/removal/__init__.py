"""Object removal: the methods that there are, and the hole that each of them fills.

remove = open_removal("patches")
empty = remove(picture, mask, seed, label)

A package adds its own in its pyproject.toml: [project.entry-points."unswayed.removals"] plain = "my_removal:Plain".
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from unswayed.edits.composition import Impossible, Removal
from unswayed.edits.geometry import resized
from unswayed.errors import BadPicture
from unswayed.registry import Part, Registry
from unswayed.scene import Scene

# A part is called with the detail of a spec `name:detail`, if there is one, and with `device=` if its declaration says
# so, and returns the removal, which has a `name`.
REMOVALS = Registry[Callable[..., Removal]](
    "object removal",
    {
        "patches": Part(f"{__name__}.patches:PatchRemoval", "fills the hole from similar patches of the same picture"),
        "diffusion": Part(
            f"{__name__}.diffusion:DiffusionRemoval",
            "draws the hole with the embedded network, or another that train-network wrote",
            usage="diffusion:NETWORK",
            facts={"device": True},
        ),
        "onnx": Part(
            f"{__name__}.onnx:OnnxRemoval", "fills the hole with an exported in-painting network", usage="onnx:FILE"
        ),
        "diffusers": Part(
            f"{__name__}.diffusion:PipelineRemoval",
            "fills the hole with any in-painting or instruction pipeline of diffusers",
            usage="diffusers:NAME_OR_FOLDER",
            needs=("diffusers", "transformers"),
            extra="editors",
            facts={"device": True},
        ),
    },
    group="unswayed.removals",
    run="unswayed edits",
)
# From less of the picture than this nothing but one plain color can be made up, and from none of it black.
LEAST = 0.02
GLANCE = 64  # pixels


def open_removal(spec: str = "patches", device: str | None = None) -> Removal:
    """A callable (image (S, S, 3) uint8, mask (S, S) float, seed, label) -> (S, S, 3) uint8, with a `name`.

    device: for the methods that take one.
    """
    name, detail, part = REMOVALS.find(spec)
    options = {"device": device} if part.facts.get("device") else {}
    return REMOVALS.load(name)(*([detail] if detail else []), **options)


class RememberedRemoval:
    """A removal that remembers its last pictures, for many edits of few photographs."""

    def __init__(self, removal: Removal, held: int = 32) -> None:
        self.removal, self.name = removal, getattr(removal, "name", "")
        self._remembered = functools.lru_cache(maxsize=held)(self._removed)

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int = 0, label: int | None = None) -> np.ndarray:
        """Return image (S, S, 3) uint8 without the object of mask (S, S)."""
        mask = mask.astype(np.float32, copy=False)
        return self._remembered(image.tobytes(), mask.tobytes(), image.shape[0], seed, label)

    def _removed(self, image: bytes, mask: bytes, side: int, seed: int, label: int | None) -> np.ndarray:
        picture = np.frombuffer(image, np.uint8).reshape(side, side, 3)
        return self.removal(picture, np.frombuffer(mask, np.float32).reshape(side, side), seed, label)


def hole_of(mask: np.ndarray) -> np.ndarray:
    """The hole that a removal fills, (S, S) bool; raises Impossible where next to nothing is left to fill it from."""
    hole = generous(mask)
    left = 1 - float(hole.mean())
    if left < LEAST:
        raise Impossible(
            f"the object cannot be removed: around it {left:.1%} of the picture is left, at least {LEAST:.0%} is needed"
        )
    return hole


def lendable(framed: Scene, size: int) -> Scene:
    """The scene itself, whose background others may borrow; BadPicture, which a pool passes over, where it has none."""
    # At a glance most objects leave far more than is needed; rims are wider there, never narrower.
    if generous(resized(framed.mask, GLANCE)).mean() < 0.9:
        return framed
    try:
        hole_of(resized(framed.mask, size))
    except Impossible as impossible:
        raise BadPicture(f"{framed.id}: {impossible}") from None
    return framed


def generous(mask: np.ndarray) -> np.ndarray:
    """The object with a rim for its soft edges and a longer one below for its shadow, (S, S) bool."""
    import cv2

    around = max(int(round(mask.shape[0] * 0.024)), 2)
    rows = np.flatnonzero((mask > 0.5).any(axis=1))
    height = rows[-1] + 1 - rows[0] if len(rows) else 0
    # A shadow on the ground reaches about as far below an object as a sixth of its height.
    below = max(around * 2, int(round(min(height / 6, mask.shape[0] * 0.12))))
    kernel = np.zeros((2 * below + 1, 2 * below + 1), np.uint8)
    # OpenCV reads a kernel at (x, y) from the pixel x right and y below; so a reach upwards grows the hole downwards.
    cv2.ellipse(kernel, (below, below - (below - around) // 2), (around, (around + below) // 2), 0, 0, 360, 1, -1)
    hole = cv2.dilate((mask > 0.02).astype(np.uint8), kernel)
    # Necks and islands between an object's parts are mostly pieces that the mask missed.
    neck = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (around + 1, around + 1))
    rest = cv2.morphologyEx(1 - hole, cv2.MORPH_OPEN, neck)
    _, pieces, facts, _ = cv2.connectedComponentsWithStats(rest, connectivity=4)
    small = facts[:, cv2.CC_STAT_AREA] < 0.005 * mask.size
    return (rest == 0) | small[pieces]
