"""Outputs of detectors as boxes: one reader for each common form, and non-maximum suppression.

A reader takes the outputs of a network for one picture, and the width and height of its input, and returns boxes (n, 4)
in a format, the classes (n,) as the network numbers them, and the scores (n,). The formats of boxes: `xyxy` two
corners, `xywh` a corner and the size, `cxcywh` the center and the size, `yxyx` two corners with y first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unswayed.errors import UserError

from .objects import LEAST_SCORE

BoxFormat = Literal["xyxy", "xywh", "cxcywh", "yxyx"]
Found = tuple[np.ndarray, np.ndarray, np.ndarray]
Size = tuple[int, int]
MOST_CANDIDATES = 3000  # boxes before suppression


def corners(boxes: np.ndarray, format: BoxFormat) -> np.ndarray:
    """Boxes (n, 4) of a format as left, top, right, bottom.

    >>> corners(np.array([[5.0, 5.0, 4.0, 2.0]]), "cxcywh").tolist()
    [[3.0, 4.0, 7.0, 6.0]]
    """
    first, second = boxes[:, :2], boxes[:, 2:4]
    if format == "yxyx":
        return np.concatenate([first[:, ::-1], second[:, ::-1]], 1)
    if format == "xywh":
        return np.concatenate([first, first + second], 1)
    if format == "cxcywh":
        return np.concatenate([first - second / 2, first + second / 2], 1)
    return boxes[:, :4]


def suppressed(found: Found, overlap: float) -> Found:
    """The boxes without those that overlap a more certain one of the same class by more than `overlap` (IoU)."""
    import torch
    from torchvision.ops import batched_nms

    boxes, classes, scores = found
    parts = (torch.as_tensor(np.ascontiguousarray(part)) for part in (boxes, scores, classes))
    kept = batched_nms(*parts, overlap).numpy()
    return boxes[kept], classes[kept], scores[kept]


def _best(boxes: np.ndarray, by_class: np.ndarray) -> Found:
    """Boxes with their best class and its score, without hopeless ones; by_class: (n, classes)."""
    classes, scores = by_class.argmax(1), by_class.max(1)
    kept = np.flatnonzero(scores >= LEAST_SCORE)
    kept = kept[np.argsort(-scores[kept], kind="stable")[:MOST_CANDIDATES]]
    return boxes[kept], classes[kept], scores[kept]


def yolox(outputs: Sequence[np.ndarray], size: Size) -> Found:
    """Offsets from the cells of three grids (or four): (cells, 5 + classes) of x, y, width, height, object, classes."""
    values = _two(outputs[0])
    wide, high = size
    by_cells = {sum((wide // s) * (high // s) for s in strides): strides for strides in ((8, 16, 32), (8, 16, 32, 64))}
    if len(values) not in by_cells:
        raise UserError(f"an output of {values.shape} is no grid of YOLOX for an input of {wide}×{high}")
    grid = np.concatenate([
        np.stack([*np.meshgrid(np.arange(wide // s), np.arange(high // s)), np.full((high // s, wide // s), s)], 2)
        .reshape(-1, 3) for s in by_cells[len(values)]
    ])  # fmt: skip
    center = (values[:, :2] + grid[:, :2]) * grid[:, 2:]
    sides = np.exp(np.minimum(values[:, 2:4], 20)) * grid[:, 2:]
    return _best(corners(np.concatenate([center, sides], 1), "cxcywh"), values[:, 4:5] * values[:, 5:])


def with_object_score(outputs: Sequence[np.ndarray], size: Size) -> Found:
    """YOLO v5 to v7: (boxes, 5 + classes) of a box, a score that there is an object, and one for each class."""
    values = _two(outputs[0])
    return _best(values[:, :4], values[:, 4:5] * values[:, 5:])


def by_class(outputs: Sequence[np.ndarray], size: Size) -> Found:
    """YOLO v8, v9, v11 and later: (4 + classes, boxes), or its transpose, of a box and a score for each class."""
    values = _two(outputs[0])
    values = values.T if values.shape[0] < values.shape[1] else values
    return _best(values[:, :4], values[:, 4:])


def rows(outputs: Sequence[np.ndarray], size: Size) -> Found:
    """YOLO v10, and others with built-in suppression: (boxes, 6) of a box, its score and its class."""
    values = _two(outputs[0])
    return values[:, :4], np.rint(values[:, 5]).astype(int), values[:, 4]


def lists(outputs: Sequence[np.ndarray], size: Size) -> Found:
    """SSD and others with built-in suppression: boxes (n, 4), classes (n,), scores (n,), and perhaps their number."""
    boxes, classes, scores = outputs[0].reshape(-1, 4), outputs[1].ravel(), outputs[2].ravel()
    count = int(outputs[3].ravel()[0]) if len(outputs) > 3 else len(scores)
    return boxes[:count], np.rint(classes).astype(int)[:count], scores[:count]


def _two(values: np.ndarray) -> np.ndarray:
    """An output of one picture without leading dimensions of size 1: (rows, columns)."""
    if values.ndim > 2 and set(values.shape[:-2]) == {1}:
        values = values.reshape(values.shape[-2:])
    if values.ndim != 2 or max(values.shape) < 5:
        given = f"an output of the shape {values.shape} holds no boxes"
        raise UserError(given, allowed="(boxes, values) for a picture")
    return values.astype(np.float32)


@dataclass(frozen=True)
class Decoding:
    """How the outputs of a network are read, and what is usual there: the box format, None if the reader returns
    corners; whether boxes are shares of the input's sides; and the IoU above which the less certain of two boxes of a
    class is dropped, 0 where the network does that."""

    read: Callable[[Sequence[np.ndarray], Size], Found]
    format: BoxFormat | None = "cxcywh"
    shares: bool = False
    overlap: float = 0.45

    def boxes(
        self, outputs: Sequence[np.ndarray], size: Size, format: BoxFormat | None = None, shares: bool | None = None
    ) -> Found:
        """Boxes as left, top, right, bottom in pixels of the input, their classes and scores, before suppression."""
        boxes, classes, scores = self.read(outputs, size)
        if self.format is not None:
            boxes = corners(boxes, format or self.format)
            if self.shares if shares is None else shares:
                boxes = boxes * np.array([*size, *size], np.float32)
        return boxes.astype(np.float32), classes, scores.astype(np.float32)


DECODINGS: dict[str, Decoding] = {
    "yolox": Decoding(yolox, None),
    **dict.fromkeys(("yolov5", "yolov6", "yolov7"), Decoding(with_object_score)),
    **dict.fromkeys(("yolov8", "yolov9", "yolov11"), Decoding(by_class)),
    "yolov10": Decoding(rows, "xyxy", overlap=0),
    "ssd": Decoding(lists, "yxyx", shares=True, overlap=0),
    "lists": Decoding(lists, "xyxy", overlap=0),
}
