"""Outputs of detectors as boxes: one function for each common form, and non-maximum suppression.

Every function takes the outputs of a network for one picture, and returns boxes (n, 4) as left, top, right, bottom in
pixels of the input, the classes (n,) as the network numbers them, and the scores (n,). The formats of boxes: `xyxy` two
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
    classes = by_class.argmax(1)
    scores = by_class[np.arange(len(classes)), classes]
    kept = np.flatnonzero(scores >= LEAST_SCORE)
    kept = kept[np.argsort(-scores[kept], kind="stable")[:MOST_CANDIDATES]]
    return boxes[kept].astype(np.float32), classes[kept], scores[kept].astype(np.float32)


def yolox(outputs: Sequence[np.ndarray], size: tuple[int, int], format: BoxFormat, shares: bool) -> Found:
    """Offsets from the cells of three grids (or four): (cells, 5 + classes) of x, y, width, height, object, classes."""
    values = _two(outputs[0])
    wide, high = size
    strides = [8, 16, 32]
    cells = sum((wide // stride) * (high // stride) for stride in strides)
    if len(values) != cells:
        strides.append(64)
        cells += (wide // 64) * (high // 64)
    if len(values) != cells:
        raise UserError(f"an output of {values.shape} is no grid of YOLOX for an input of {wide}×{high}")
    grid = np.concatenate([
        np.stack([*np.meshgrid(np.arange(wide // s), np.arange(high // s)), np.full((high // s, wide // s), s)], 2)
        .reshape(-1, 3) for s in strides
    ])  # fmt: skip
    center = (values[:, :2] + grid[:, :2]) * grid[:, 2:]
    sides = np.exp(np.minimum(values[:, 2:4], 20)) * grid[:, 2:]
    return _best(corners(np.concatenate([center, sides], 1), "cxcywh"), values[:, 4:5] * values[:, 5:])


def with_object_score(outputs: Sequence[np.ndarray], size: tuple[int, int], format: BoxFormat, shares: bool) -> Found:
    """YOLO v5 to v7: (boxes, 5 + classes) of a box, a score that there is an object, and one for each class."""
    values = _two(outputs[0])
    return _best(_scaled(corners(values[:, :4], format), size, shares), values[:, 4:5] * values[:, 5:])


def by_class(outputs: Sequence[np.ndarray], size: tuple[int, int], format: BoxFormat, shares: bool) -> Found:
    """YOLO v8, v9, v11 and later: (4 + classes, boxes), or its transpose, of a box and a score for each class."""
    values = _two(outputs[0])
    values = values.T if values.shape[0] < values.shape[1] else values
    return _best(_scaled(corners(values[:, :4], format), size, shares), values[:, 4:])


def rows(outputs: Sequence[np.ndarray], size: tuple[int, int], format: BoxFormat, shares: bool) -> Found:
    """YOLO v10, and others with built-in suppression: (boxes, 6) of a box, its score and its class."""
    values = _two(outputs[0])
    return _scaled(corners(values[:, :4], format), size, shares), np.rint(values[:, 5]).astype(int), values[:, 4]


def lists(outputs: Sequence[np.ndarray], size: tuple[int, int], format: BoxFormat, shares: bool) -> Found:
    """SSD and others with built-in suppression: boxes (n, 4), classes (n,), scores (n,), and perhaps their number."""
    boxes, classes, scores = outputs[0].reshape(-1, 4), outputs[1].ravel(), outputs[2].ravel()
    count = int(outputs[3].ravel()[0]) if len(outputs) > 3 else len(scores)
    return (
        _scaled(corners(boxes, format), size, shares)[:count],
        np.rint(classes).astype(int)[:count],
        scores[:count].astype(np.float32),
    )


def _two(values: np.ndarray) -> np.ndarray:
    """An output of one picture without leading dimensions of size 1: (rows, columns)."""
    if values.ndim > 2 and set(values.shape[:-2]) == {1}:
        values = values.reshape(values.shape[-2:])
    if values.ndim != 2 or max(values.shape) < 5:
        raise UserError(
            f"an output of the shape {values.shape} holds no boxes", allowed="(boxes, values) for a picture"
        )
    return values.astype(np.float32)


def _scaled(boxes: np.ndarray, size: tuple[int, int], shares: bool) -> np.ndarray:
    """Boxes in shares of the input's sides in its pixels."""
    return (boxes * np.array([*size, *size], np.float32) if shares else boxes).astype(np.float32)


@dataclass(frozen=True)
class Decoding:
    """How the outputs of a network are read, and what is usual there: the box format, whether boxes are shares of the
    input's sides, and whether overlapping boxes must still be suppressed."""

    read: Callable[[Sequence[np.ndarray], tuple[int, int], BoxFormat, bool], Found]
    format: BoxFormat
    shares: bool
    suppress: bool


_ANCHORS = Decoding(with_object_score, "cxcywh", False, True)
_CLASSES = Decoding(by_class, "cxcywh", False, True)
DECODINGS: dict[str, Decoding] = {
    "yolox": Decoding(yolox, "cxcywh", False, True),
    **dict.fromkeys(("yolov5", "yolov6", "yolov7"), _ANCHORS),
    **dict.fromkeys(("yolov8", "yolov9", "yolov11"), _CLASSES),
    "yolov10": Decoding(rows, "xyxy", False, False),
    "ssd": Decoding(lists, "yxyx", True, False),
    "lists": Decoding(lists, "xyxy", False, False),
}
