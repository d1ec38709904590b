"""`detector:FILE` and `segmenter:FILE`: ONNX, TFLite and OpenVINO files, each with a JSON file beside it.

    {"width": 416, "height": 416, "fit": "letterbox", "channels": "BGR", "scale": 255, "labels": "coco-80",
     "decoding": "yolox", "nms": 0.45, "score": 0.3}

The same as options: `detector:FILE.onnx?decoding=yolov8&labels=coco-80&width=640&height=640`. A segmenter needs no
decoding: its output is a map of classes, or of a score for each class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unswayed.errors import UserError, check_known
from unswayed.files.records import checked
from unswayed.files.whole import Json
from unswayed.labels import Task
from unswayed.specs import Spec

from .box_decoding import DECODINGS, BoxFormat, Found, suppressed
from .deployed import Load, Runtime, in_batches, load_file, load_onnx, load_openvino, load_tflite, stated_beside
from .label_mapping import read_labels
from .objects import SCORE, Inputs, ObjectModel
from .opening import MODELS

# The kind of model with the same library, and what opens the file.
LOADERS: dict[str, tuple[str, Load]] = {
    ".onnx": ("onnx", load_onnx),
    ".tflite": ("tflite", load_tflite),
    ".xml": ("openvino", load_openvino),
}


@dataclass(frozen=True)
class ObjectSettings:
    """What the file beside a detector or segmenter states besides its `Inputs`; see `box_decoding` for the values.

    label_offset: the number that the network gives to the first of the labels: 1 after a background class, -1 if the
    labels have one and the network's numbers do not. outputs: names of the outputs, for `ssd` and `lists` those of
    boxes, classes and scores (and their number), in this order; all of them in the file's order by default.
    box_format, shares: where they are not those usual for the decoding. nms: the IoU for suppression, 0 for none.
    """

    width: int | None = None
    height: int | None = None
    layout: str | None = None
    labels: str | list[str] | Json = "coco-80"
    label_offset: int = 0
    decoding: str | None = None
    box_format: BoxFormat | None = None
    shares: bool | None = None
    nms: float | None = None
    score: float = SCORE
    outputs: list[str] | None = None


def open_object_file(spec: Spec, task: Task, device: str | None) -> ObjectModel:
    """The detector or segmenter in the file that `spec` names; it runs on the CPU."""
    path = spec.file()
    check_known("kind of file of a detector or segmenter", [path.suffix.lower()], LOADERS)
    if device is not None and torch.device(device).type != "cpu":
        raise UserError(f"{spec.kind}: files run on the CPU, not on {device!r}", allowed="--device cpu")
    stated, settings, where = read_settings(path, spec)
    library, load = LOADERS[path.suffix.lower()]
    MODELS.require(library)
    runtime, digest = load_file(spec, load, settings.outputs or [], "cpu")
    layout, wide, high = _input_of(runtime, settings, path.name)
    inputs = checked(Inputs, {**stated, "width": wide, "height": high}, where, strict=False)
    # Lists of boxes have no dimension for the pictures of a batch in common.
    batch = None if task == "segment" or DECODINGS[str(settings.decoding)].overlap else 1

    def find(pictures: Sequence[np.ndarray]) -> list[Any]:
        pixels = torch.from_numpy(np.stack(pictures))
        pixels = pixels if layout == "NHWC" else pixels.permute(0, 3, 1, 2)
        outputs = in_batches(runtime, pixels, batch, str(spec))
        if task == "segment":
            return [_class_map(first, layout) for [first, *_] in outputs]
        return [_detections(each, settings, (wide, high), str(spec)) for each in outputs]

    # The settings besides the preprocessing that determine the answers.
    names = ("label_offset", "decoding", "box_format", "shares", "nms", "outputs")
    used = {name: value for name in names if (value := getattr(settings, name)) is not None}
    return ObjectModel(
        find,
        read_labels(settings.labels),
        task,
        str(spec),
        inputs,
        settings.score if task == "detect" else 0.0,
        origin={"library": runtime.library, "file": str(path), "settings": {"layout": layout, **used}},
        fixed_hash=digest,
        nbytes=path.stat().st_size,
        leading=settings.label_offset if task == "segment" else 0,
    )


def read_settings(path: Path, spec: Spec) -> tuple[Json, ObjectSettings, str]:
    """The settings in FILE.json, overridden by the options of `spec`: all as they are stated, those that are not of the
    input, and what names them in an error."""
    kinds = ObjectSettings, Inputs
    stated, where = stated_beside(path, spec, *kinds)
    spec.check_options(*(setting.name for kind in kinds for setting in fields(kind)))
    stated |= {name: {"yes": True, "no": False}.get(text, text) for name, text in spec.options.items()}
    for name, count in (("outputs", 1), ("mean", 3), ("std", 3)):
        if not isinstance(values := stated.get(name, []), list):
            stated[name] = str(values).split(",") if "," in str(values) else [values] * count
    settings = checked(ObjectSettings, stated, where, strict=False)
    if spec.kind == "detector" and settings.decoding is None:
        raise UserError(
            f"it is not known how the outputs of {path.name} are read",
            allowed=f'a file {path.name}.json with "decoding", or ?decoding=…: {", ".join(DECODINGS)}',
        )
    check_known("decoding", [settings.decoding] if settings.decoding else [], DECODINGS)
    if not 0 <= (settings.nms or 0) <= 1:
        raise UserError(f"{path.name}: the IoU for suppression, nms, is {settings.nms}", allowed="0 to 1")
    return stated, settings, where


def _input_of(runtime: Runtime, settings: ObjectSettings, name: str) -> tuple[str, int, int]:
    """The layout, width and height of a file's input: as stated, or as the file says."""
    shape, layout = list(runtime.shape or ()), runtime.layout(settings.layout)
    sides = (shape[1:3] if layout == "NHWC" else shape[2:4]) if len(shape) == 4 else [None, None]
    high, wide = (
        stated if stated is not None else side
        for stated, side in zip((settings.height, settings.width), sides, strict=True)
    )
    if not isinstance(high, int) or not isinstance(wide, int):
        raise UserError(f"{name} takes pictures of any size", allowed=f"width and height in {name}.json")
    return layout, wide, high


def _detections(outputs: Sequence[np.ndarray], settings: ObjectSettings, size: tuple[int, int], name: str) -> Found:
    """What a detector's outputs say about one picture: boxes in pixels of the input, their classes and scores."""
    decoding = DECODINGS[str(settings.decoding)]
    overlap = decoding.overlap if settings.nms is None else settings.nms
    try:
        detections = decoding.boxes(outputs, size, settings.box_format, settings.shares)
    except (LookupError, ValueError, OverflowError):
        shapes = [output.shape for output in outputs]
        raise UserError(
            f"the outputs of {name}, {shapes}, are none of {settings.decoding}",
            allowed=f"another decoding, of {', '.join(DECODINGS)}, or outputs by name",
        ) from None
    boxes, classes, scores = suppressed(detections, overlap) if overlap else detections
    return boxes, classes - settings.label_offset, scores


def _class_map(output: np.ndarray, layout: str) -> np.ndarray:
    """A segmenter's output for one picture: (h, w) of classes, or (h, w, classes) of scores."""
    values = output.reshape([side for side in output.shape if side != 1])
    return values.transpose(1, 2, 0) if values.ndim == 3 and layout == "NCHW" else values
