"""The validity of each picture as it is built: what is known before rendering, the faults found after, the verdict;
and measures of the complexity of a background: gray-level co-occurrence and spectral amplitude.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np

from unswayed.edits.composition import Composition, WithoutObject
from unswayed.edits.geometry import box, outline, resized
from unswayed.errors import UserError
from unswayed.files.whole import write_bytes
from unswayed.masks import Segmenter
from unswayed.masks.checks import is_unusable
from unswayed.rendering.layers import Backgrounds, Layers, Refusal, Rendering
from unswayed.rendering.removal import generous
from unswayed.scene import MaskOrigin, Scene

from . import validity
from .rows import ORIGINAL_EDIT, SKIPPED, WORST_MASKS, Row

if TYPE_CHECKING:
    from unswayed.models import Classifier


# What `strict` asks about object-free backgrounds: the bundled classifier, which knows ImageNet's classes alone, and a
# salient-object network where the weights of `[masks]` are there.
WITNESS, FINDER = "lite:0", "silueta"
OUTLINE_SIDE = 480  # pixels of the short side of the photograph in which a mask's outline is looked at


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known about a picture before it is rendered.

    original: (S, S, 3) uint8, the framed photograph; mask: (S, S) float32, its object; box: the object's upper left and
    lower right corner in the unit square; seam, outline: the functions of `validity` of the photograph and its
    mask; unusable: whether that mask is all white or inverted; left: the most that is left of a removed object, by
    the names `residue` (its details), `recognized` (a classifier) and `salient` (a salient-object network), and how far
    its fill is off, empty where nothing was removed.
    """

    original: np.ndarray
    mask: np.ndarray
    box: tuple[np.ndarray, np.ndarray]
    seam: float
    outline: float
    unusable: bool = False
    left: Mapping[str, float] = field(default_factory=dict)


class Witness:
    """Gathers `Evidence`; the removal of one scene's object is looked at once.

    classifier, segmenter: open the networks that are asked about object-free backgrounds, where they are given.
    """

    def __init__(
        self,
        backgrounds: Backgrounds,
        classifier: Callable[[], Classifier] | None = None,
        segmenter: Callable[[], Segmenter] | None = None,
    ) -> None:
        self.backgrounds = backgrounds
        self._classifier = None if classifier is None else functools.cache(classifier)
        self._segmenter = None if segmenter is None else functools.cache(segmenter)
        self._removals: dict[WithoutObject, dict[str, float]] = {}

    def of_source(self, scene: Scene, framed: Scene) -> Evidence:
        """What all pictures of one source share."""
        size = self.backgrounds.size
        scale = min(1.0, OUTLINE_SIDE / min(scene.mask.shape))
        shape = tuple(max(1, round(side * scale)) for side in scene.mask.shape[::-1])
        image, mask = (cv2.resize(array, shape, interpolation=cv2.INTER_AREA) for array in (scene.image, scene.mask))
        original, own = resized(framed.image, size), resized(framed.mask, size)
        seam, bare = validity.seam(original, own) or 0.0, validity.unsupported_outline(image, mask)
        return Evidence(original, own, box(outline(framed.mask)), seam, bare, is_unusable(scene.mask))

    def of_picture(self, shared: Evidence, composition: Composition) -> Evidence:
        """The same with what the removal left that this composition uses."""
        removed = composition.background
        if not isinstance(removed, WithoutObject):
            return replace(shared, left={})
        if removed not in self._removals:
            own = removed.scene_id == composition.scene_id
            scene: Composition | Scene = composition if own else self.backgrounds.pool.load(removed.scene_id)
            size = self.backgrounds.size
            background, mask = self.backgrounds.resolve(removed, composition), resized(scene.mask, size)
            hole = generous(mask)
            left = {
                "residue": validity.residue(background, resized(scene.image, size), mask),
                "fill_color": validity.fill_color(background, hole),
                "fill_texture": validity.fill_texture(background, hole),
                "fill_grain": validity.fill_grain(background, hole),
            }
            if self._classifier is not None and scene.label is not None:
                classifier = self._classifier()
                answers = classifier.logits(classifier.prepare(background)[None]).softmax(1)
                left["recognized"] = float(answers[0, scene.label])
            if self._segmenter is not None:
                from unswayed.masks.sam2 import overlap

                left["salient"] = overlap(self._segmenter()(background, None), mask)
            self._removals[removed] = {name: value for name, value in left.items() if value is not None}
        return replace(shared, left=self._removals[removed])


def judged(row: Row, layers: Layers, answer: Rendering, evidence: Evidence) -> Row:
    """The row with the picture's faults, its score and its reasons."""
    faults = find_faults(row, layers, answer, evidence)
    known = {name: round(float(value), 5) for name, value in faults.items() if value is not None}
    verdict = validity.judge(known)
    return replace(row, validity=verdict.score, validity_reasons=list(verdict.reasons), validity_measures=known)


def find_faults(row: Row, layers: Layers, answer: Rendering, evidence: Evidence) -> dict[str, float | None]:
    """The picture's faults by the names of `Limits`; None where one cannot occur."""
    picture, mask = answer.image, layers.mask
    alpha = layers.alpha if answer.alpha is None else answer.alpha
    words = layers.words
    # Of an object drawn anew from words its surroundings stay, of a background the object.
    kept = alpha <= 0 if words is not None and words.where == "object" else alpha >= 1
    behind, seam = alpha <= 0, validity.seam(picture, mask)
    faults: dict[str, float | None] = {
        "rate": None if row.requested is None else abs(float((mask > 0.5).mean()) - row.requested),
        "position": _position(row, mask, evidence),
        "object": validity.changed_share(picture, layers.object, kept),
        "outside": None if answer.generated else validity.changed_share(picture, layers.background, behind),
        "seam": None if seam is None else max(0.0, seam - evidence.seam),
        "crop": validity.crop_loss(mask),
        "outline": evidence.outline,
        "mask": 1.0 if evidence.unusable else None,
        "complexity": _unreached(picture, layers, evidence),
        **evidence.left,
    }
    if words is not None and words.prompt:
        return faults  # another place may be sharper, noisier and have more edges than that of the photograph
    if faults["outside"] == 0:
        return {**faults, "noise": 0.0, "sharpness": 0.0, "edges": 0.0}
    clear = cv2.erode(behind.astype(np.uint8), np.ones((7, 7), np.uint8)) > 0
    return {
        **faults,
        "noise": validity.gained_noise(picture, layers.background, clear),
        "sharpness": validity.sharpness_change(picture, layers.background, clear),
        "edges": validity.straight_edge(picture, layers.background, clear),
    }


def _unreached(picture: np.ndarray, layers: Layers, evidence: Evidence) -> float | None:
    """How far a background that is to be simpler or more complex than the photograph's is from it, at its worst band:
    the squared ratio of amplitudes, below 1 where it was reached.
    """
    guidance = layers.guidance
    if guidance is None or guidance.kind != "complexity" or guidance.strength == 0:
        return None
    after, before = (band_amplitudes(image, layers.mask) for image in (picture, evidence.original))
    ratio = before / np.maximum(after, 1e-9) if guidance.strength > 0 else after / np.maximum(before, 1e-9)
    return float(np.max(ratio**2)) if np.isfinite(ratio).all() else None


def left_out(row: Row, tries: int) -> Refusal:
    """The answer for a picture that stays invalid."""
    after = f"after {tries} more {'try' if tries == 1 else 'tries'}" if tries else "and nothing in it is drawn again"
    return Refusal(f"left out as invalid, {after}: {'; '.join(row.validity_reasons)}", status=SKIPPED)


def is_invalid(row: Row) -> bool:
    return row.validity is not None and row.validity < validity.VALID


def _position(row: Row, mask: np.ndarray, evidence: Evidence) -> float | None:
    """Only where moving was the one edit: others may hide a part of the object or change its size."""
    chain, share = row.parameters.get("chain") or [], row.values.get("position")
    if [step.get("edit") for step in chain] != ["position"] or share is None:
        return None
    low, high = evidence.box
    right, down = (np.asarray(share) * (1 - (high - low)) - low) * mask.shape[0]
    return validity.position_error(mask, evidence.mask, (float(right), float(down)))


def write_mask_sheet(root: Path, rows: Sequence[Row], origins: Mapping[str, MaskOrigin]) -> None:
    """Write a contact sheet of the least trusted automatic masks on the framed originals, if there are any.

    origins: what made each automatic mask, by source.
    """
    shown = [
        (row.path, root / row.mask_path, origins[row.source_id].confidence)
        for row in rows
        if row.edit == ORIGINAL_EDIT and row.path and row.mask_path and row.source_id in origins
    ]
    if shown:
        from unswayed.masks.confidence import mask_sheet

        write_bytes(root / WORST_MASKS, mask_sheet(root, shown))


LEVELS = 32
OFFSETS = ((0, 1), (1, 1), (1, 0), (1, -1))
_LUMA = np.array([0.299, 0.587, 0.114])
# Octave bands of spatial frequency, in cycles per pixel, from the coarsest structure to the grain.
BANDS = ((1 / 64, 1 / 16), (1 / 16, 1 / 8), (1 / 8, 1 / 4), (1 / 4, 1.0))


def cooccurrence(image: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """(4, 32, 32) float64: for each angle the share of neighboring pairs with these two gray levels, symmetric.

    image: (H, W, 3) uint8; inside: (H, W) bool, where both pixels of a pair must lie.
    """
    if inside.shape != image.shape[:2]:
        raise UserError(
            f"the mask is {inside.shape}, its picture {image.shape[:2]}", allowed="a mask of its picture's size"
        )
    gray = np.rint(image @ _LUMA).astype(np.uint16) * LEVELS // 256
    inside = inside.astype(bool)
    high, wide = gray.shape
    tables = np.zeros((len(OFFSETS), LEVELS, LEVELS))
    for angle, (down, right) in enumerate(OFFSETS):
        here = np.s_[: high - down, max(0, -right) : wide - max(0, right)]
        there = np.s_[down:, max(0, right) : wide + min(0, right)]
        pairs = (gray[here] * LEVELS + gray[there])[inside[here] & inside[there]]
        table = np.bincount(pairs, minlength=LEVELS * LEVELS).reshape(LEVELS, LEVELS).astype(np.float64)
        table = table + table.T
        if table.sum() > 0:
            tables[angle] = table / table.sum()
    return tables


def glcm_measures(image: np.ndarray, object_mask: np.ndarray) -> dict[str, float]:
    """Contrast, dissimilarity, homogeneity and energy of the background; NaN if it contains no pair.

    image: (H, W, 3) uint8; object_mask: (H, W) in [0, 1]: every pixel that the object touches is excluded.

    >>> flat = np.full((8, 8, 3), 90, np.uint8)
    >>> glcm_measures(flat, np.zeros((8, 8)))["contrast"]
    0.0
    """
    tables = cooccurrence(image, np.asarray(object_mask) <= 0)
    filled = tables[tables.sum(axis=(1, 2)) > 0]
    if len(filled) == 0:
        return dict.fromkeys(("contrast", "dissimilarity", "homogeneity", "energy"), float("nan"))
    rows, columns = np.indices((LEVELS, LEVELS))
    apart = np.abs(rows - columns)

    def mean(weights: np.ndarray) -> float:
        return float((filled * weights).sum(axis=(1, 2)).mean())

    return {
        "contrast": mean(apart**2),
        "dissimilarity": mean(apart),
        "homogeneity": mean(1 / (1 + apart**2)),
        "energy": float(np.sqrt((filled**2).sum(axis=(1, 2))).mean()),
    }


def background_measures(image: np.ndarray, object_mask: np.ndarray) -> dict[str, float]:
    """GLCM contrast and dissimilarity and spectral amplitude of a background; empty where there is none."""
    texture = glcm_measures(image, object_mask)
    measures = {name: texture[name] for name in ("contrast", "dissimilarity")}
    measures["amplitude"] = background_amplitude(image, object_mask)
    return {f"background_{name}": round(value, 5) for name, value in measures.items() if math.isfinite(value)}


def background_amplitude(image: np.ndarray, object_mask: np.ndarray) -> float:
    """The mean |FFT2| over channels and frequencies of the background alone; NaN where there is no background.

    image: (H, W, 3) uint8; object_mask: (H, W) in [0, 1]. The background's mean color is taken away and the object is
    left out; divided by the root of the background's share, so that a large object does not count as a smooth picture.

    >>> round(background_amplitude(np.full((8, 8, 3), 90, np.uint8), np.zeros((8, 8))), 6)
    0.0
    """
    behind = np.asarray(object_mask) <= 0
    share = behind.mean()
    if share == 0:
        return float("nan")
    color = cv2.mean(image, behind.view(np.uint8))[:3]
    channels = zip(cv2.split(image), color, strict=True)
    total = sum(_spectrum(np.subtract(*channel, dtype=np.float32) * behind) for channel in channels)
    return float(total / image.size / 255 / np.sqrt(share))


def _spectrum(pixels: np.ndarray) -> float:
    """The sum of |FFT2| over all frequencies of (H, W) float32 pixels.

    Of two frequencies whose sizes are equal OpenCV computes one. It packs real and imaginary parts into (H, W): behind
    the real first column, and before the real last one of an even width, in pairs; in these two columns likewise.
    """
    squares = np.square(cv2.dft(pixels))
    real = squares[:, [0]] if squares.shape[1] % 2 else squares[:, [0, -1]]
    ends = real[[0]] if squares.shape[0] % 2 else real[[0, -1]]
    paired = [np.sqrt(rows[:, 2::2] + rows[:, 1:][:, : rows[:, 2:].shape[1] : 2]) for rows in (squares, real.T)]
    return float(2 * sum(sizes.sum(dtype=np.float64) for sizes in paired) + np.sqrt(ends).sum(dtype=np.float64))


def band_amplitudes(image: np.ndarray, object_mask: np.ndarray) -> np.ndarray:
    """(4,) float64: the mean |FFT2| of the background's luma in each of `BANDS`; NaN where there is no background.

    image: (H, W, 3) uint8; object_mask: (H, W) in [0, 1]. As in `background_amplitude`, the object is left out.
    """
    behind = np.asarray(object_mask) <= 0
    if not behind.any():
        return np.full(len(BANDS), np.nan)
    luma = (image @ _LUMA / 255).astype(np.float32)
    size = np.abs(np.fft.rfft2(np.where(behind, luma - luma[behind].mean(), 0)))
    frequency = np.hypot(np.fft.fftfreq(image.shape[0])[:, None], np.fft.rfftfreq(image.shape[1])[None])
    return np.array([size[(frequency >= low) & (frequency < high)].mean() for low, high in BANDS], np.float64)
