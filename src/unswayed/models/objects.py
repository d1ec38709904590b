"""Detectors and segmenters: `ObjectModel`, with how a picture becomes its input and how its boxes come back.

    detector = ObjectModel(find, labels=["cat", "dog"], task="detect")

`find` takes a list of pictures, (H, W, 3) uint8 RGB, and returns for each (boxes, classes, scores): boxes (n, 4) as
left, top, right, bottom in pixels, classes (n,) as indices of the labels, scores (n,) in [0, 1]. A segmenter returns
masks (n, H, W) bool in the place of the boxes, or a map (H, W) of class indices alone, -1 where there is none.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import cv2
import numpy as np

from unswayed.choices import check_choice
from unswayed.errors import UserError
from unswayed.labels import LabelSpace, Task, own

from .answering import Answer, NamedModel

Fit = Literal["letterbox", "center", "squash"]
Channels = Literal["RGB", "BGR"]
SCORE = 0.3  # the least score of a box that counts as found, unless the model states another
LARGEST = 1_000_000  # number that describes the values of an input
LEAST_SCORE = 0.01  # of a box that is stored, for average precision


@dataclass(frozen=True)
class Inputs:
    """How a picture becomes a detector's input, as the model's card states it.

    width, height: in pixels. fit: `letterbox` keeps the shape and fills the right and lower rest with `fill`, `center`
    fills both sides alike, `squash` stretches. channels: their order; values are (pixel · scale - mean) / std, with
    pixels in [0, 1].
    """

    width: int
    height: int
    fit: Fit = "letterbox"
    fill: int = 114
    channels: Channels = "RGB"
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        check_choice("fit of a detector's input", self.fit, Fit)
        check_choice("order of channels", self.channels, Channels)
        for name, least, most in (("width", 1, 8192), ("height", 1, 8192), ("fill", 0, 255)):
            if not least <= (value := getattr(self, name)) <= most:
                raise UserError(f"the {name} of a detector's input is {value}", allowed=f"{least} to {most}")
        finite = all(abs(value) <= LARGEST for value in (self.scale, *self.mean, *self.std))
        if (len(self.mean), len(self.std), finite) != (3, 3, True) or 0 in (self.scale, *self.std):
            raise UserError(
                f"the values of a detector's input have the scale {self.scale}, mean {self.mean} and std {self.std}",
                allowed=f"numbers up to {LARGEST:,}, three for mean and std; scale and std are not 0",
            )

    def place(self, high: int, wide: int) -> tuple[int, int, int, int]:
        """Where a picture lies in the input: left, top, width, height in pixels."""
        if self.fit == "squash":
            return 0, 0, self.width, self.height
        ratio = min(self.width / wide, self.height / high)
        inner = max(1, round(wide * ratio)), max(1, round(high * ratio))
        if self.fit == "letterbox":
            return 0, 0, *inner
        return (self.width - inner[0]) // 2, (self.height - inner[1]) // 2, *inner

    def apply(self, image: np.ndarray) -> np.ndarray:
        """(H, W, 3) uint8 RGB -> (height, width, 3) float32."""
        left, top, wide, high = self.place(*image.shape[:2])
        inner = cv2.resize(image, (wide, high), interpolation=cv2.INTER_LINEAR)
        pixels = np.full((self.height, self.width, 3), self.fill, np.uint8)
        pixels[top : top + high, left : left + wide] = inner
        ordered = pixels[..., ::-1] if self.channels == "BGR" else pixels
        values = ordered.astype(np.float32) * np.float32(self.scale / 255)
        return (values - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)

    def boxes_back(self, boxes: np.ndarray, high: int, wide: int) -> np.ndarray:
        """Boxes in pixels of the input -> boxes in pixels of the picture, cut at its edges."""
        left, top, inner_wide, inner_high = self.place(high, wide)
        moved = np.asarray(boxes, np.float64).reshape(-1, 4) - (left, top, left, top)
        moved *= (wide / inner_wide, high / inner_high) * 2
        return np.clip(moved, 0, (wide, high) * 2).astype(np.float32)

    def map_back(self, values: np.ndarray, high: int, wide: int) -> np.ndarray:
        """A map that covers the input, of classes (h, w) or of scores (h, w, classes), over the picture."""
        left, top, inner_wide, inner_high = self.place(high, wide)
        down, across = values.shape[0] / self.height, values.shape[1] / self.width
        # The map's pixel under each of the picture's, as an affine map from the picture to the map.
        step = across * inner_wide / wide, down * inner_high / high
        begin = left * across + step[0] / 2 - 0.5, top * down + step[1] / 2 - 0.5
        matrix = np.array([[step[0], 0, begin[0]], [0, step[1], begin[1]]])
        how = cv2.WARP_INVERSE_MAP | (cv2.INTER_NEAREST if values.ndim == 2 else cv2.INTER_LINEAR)
        layers = [values] if values.ndim == 2 else np.moveaxis(values, 2, 0)
        moved = [
            cv2.warpAffine(layer.astype(np.float32), matrix, (wide, high), flags=how, borderMode=cv2.BORDER_REPLICATE)
            for layer in layers
        ]
        return moved[0] if values.ndim == 2 else np.stack(moved, 2)


@dataclass(frozen=True, eq=False)
class ObjectInput:
    """A picture for a detector: the picture itself, or the values (height, width, 3) of its input; and its size."""

    values: np.ndarray
    high: int
    wide: int


@dataclass(frozen=True, eq=False)
class ObjectModel(NamedModel):
    """A detector or segmenter, as every source of them returns it; it also wraps a user's own function.

    find: prepared pictures -> for each (boxes or masks, classes, scores), or a map of classes; in pixels of the input
    if there are `inputs`. inputs: the preprocessing; None if `find` takes pictures as they are. threshold: the least
    score of what counts as found. origin: what else it was made from, for the card; fixed_hash: SHA-256 of the weights.
    leading: how many classes of a segmenter's map come before those of the labels, such as a background.
    """

    find: Callable[[list[np.ndarray]], Sequence[Any]]
    labels: LabelSpace
    task: Task = "detect"
    name: str = "own"
    inputs: Inputs | None = None
    threshold: float = SCORE
    device: str | None = "cpu"
    precision: str | None = "fp32"
    origin: Mapping[str, Any] = field(default_factory=dict)
    fixed_hash: str | None = None
    nbytes: int = 0
    leading: int = 0
    adapt: None = None

    def __post_init__(self) -> None:
        check_choice(f"task of {self.name}:", self.task, Literal["detect", "segment"])
        if not isinstance(self.labels, LabelSpace):
            object.__setattr__(self, "labels", own(self.labels))
        if not 0 <= self.threshold <= 1:
            raise UserError(f"{self.name}: the least score is {self.threshold}", allowed="0 to 1")

    @functools.cached_property
    def weights_hash(self) -> str:
        """SHA-256 of the weights, or of the answers where they are not known."""
        return self.fixed_hash or self.answers_hash

    @functools.cached_property
    def answers_hash(self) -> str:
        """SHA-256 of what is found in three pictures of noise, smooth to sharp."""
        noise, digest = np.random.default_rng(0), hashlib.sha256()
        pictures = [
            cv2.resize(noise.integers(0, 256, (side, side, 3), np.uint8), (256, 256), interpolation=cv2.INTER_CUBIC)
            for side in (4, 16, 256)
        ]
        for answer in self.answer([self.prepare(picture) for picture in pictures]):
            for values in (answer.classes, answer.scores, answer.boxes, answer.masks):
                digest.update(b"" if values is None else np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()

    def stated_transform(self) -> dict[str, Any]:
        return {"score": self.threshold, **({} if self.inputs is None else asdict(self.inputs))}

    def prepare(self, image: np.ndarray) -> ObjectInput:
        """A picture (H, W, 3) uint8 RGB as `answer` takes it."""
        return ObjectInput(image if self.inputs is None else self.inputs.apply(image), *image.shape[:2])

    def answer(self, prepared: Sequence[ObjectInput]) -> list[Answer]:
        """What is found in each of the prepared pictures."""
        answers = list(self.find([picture.values for picture in prepared]))
        if len(answers) != len(prepared):
            raise UserError(f"{self.name} returns {len(answers)} answers for {len(prepared)} pictures")
        return [self._answer(value, picture) for value, picture in zip(answers, prepared, strict=True)]

    def _answer(self, answer: Any, picture: ObjectInput) -> Answer:
        size = picture.high, picture.wide
        if isinstance(answer, np.ndarray) and answer.ndim in (2, 3) and self.task == "segment":
            return self._regions(answer if self.inputs is None else self.inputs.map_back(answer, *size))
        try:
            shapes, classes, scores = (np.asarray(values) for values in answer)
            scores = scores.astype(np.float64).reshape(len(classes))
            classes = classes.astype(np.int64).reshape(len(scores))
            boxes = shapes.reshape(len(scores), 4) if self.task == "detect" else None
            masks = shapes.reshape(len(scores), *size).astype(bool) if self.task == "segment" else None
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{self.name} returns what is no answer to `{self.task}`: {error}",
                allowed="for each picture (boxes (n, 4), classes (n,), scores (n,)); a segmenter masks (n, H, W), or a "
                "map (H, W) of classes",
            ) from None
        if not (np.isfinite(scores).all() and (boxes is None or np.isfinite(boxes).all())):
            raise UserError(f"{self.name} returns boxes or scores that are NaN or infinite", allowed="finite numbers")
        outside = classes[(classes < 0) | (classes >= len(self.labels))]
        if len(outside):
            raise UserError(
                f"{self.name} returns the class {outside[0]}, but its label space has {len(self.labels)}",
                allowed=f"0 to {len(self.labels) - 1}: as many labels as it has classes, or another label_offset",
            )
        kept = np.flatnonzero(scores >= LEAST_SCORE)
        order = kept[np.argsort(-scores[kept], kind="stable")]
        if boxes is not None:
            boxes = boxes[order] if self.inputs is None else self.inputs.boxes_back(boxes[order], *size)
        kept_masks = None if masks is None else masks[order]
        return Answer(classes[order], scores[order].clip(0, 1), boxes, kept_masks, threshold=self.threshold)

    def _regions(self, values: np.ndarray) -> Answer:
        """The answer of a segmenter that gives each pixel a class: a map of classes, or of scores for each class."""
        if values.ndim == 3 and values.shape[2] != len(self.labels) + self.leading:
            raise UserError(
                f"{self.name} scores {values.shape[2]} classes, and {len(self.labels)} labels are given",
                allowed="one label for each class; label_offset=1 if a background comes before them",
            )
        labels = (values.argmax(2) if values.ndim == 3 else np.rint(values).astype(int)) - self.leading
        there = [index for index in np.unique(labels) if 0 <= index < len(self.labels)]
        regions = np.array([labels == index for index in there], bool).reshape(-1, *labels.shape)
        return Answer(np.array(there, np.int64), np.ones(len(there)), None, regions, merged=True)
