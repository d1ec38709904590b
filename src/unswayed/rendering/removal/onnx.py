"""Object removal by any exported in-painting network that takes a picture and a mask: `onnx:migan_pipeline_v2.onnx`.

The input types declared in the file decide the ranges: uint8 inputs take 0…255 (MI-GAN's pipeline: mask 255 = keep,
0 = hole), float inputs 0…1 (LaMa: mask 1 = hole). Pictures are resized to a fixed input size. The range of the output
is derived from its type and values.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np

from unswayed.errors import UserError
from unswayed.files.whole import sha256
from unswayed.models.runtime import open_session

from . import hole_of

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, NodeArg


class OnnxRemoval:
    """A callable (image (S, S, 3) uint8, mask (S, S), seed, label) -> (S, S, 3) uint8, changed only in the hole."""

    def __init__(self, path: str | Path = "") -> None:
        self.path = Path(path)
        self.session = open_session(self.path)
        self.picture, self.mask = _inputs(self.session, self.path)
        self.name = f"onnx-{self.path.stem}-{sha256(self.path)[:12]}"

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int = 0, label: int | None = None) -> np.ndarray:
        hole = hole_of(mask)
        if not hole.any():
            return image.copy()
        high, wide = _size(self.picture, image.shape[:2])
        small = cv2.resize(image, (wide, high), interpolation=cv2.INTER_AREA)
        hole_small = cv2.resize(hole.astype(np.uint8), (wide, high), interpolation=cv2.INTER_NEAREST).astype(bool)
        feeds = {self.picture.name: _as_input(small, self.picture), self.mask.name: _as_mask(hole_small, self.mask)}
        try:
            answer = self.session.run(None, feeds)[0]
        except Exception as error:
            raise UserError(f"{self.path} failed on a picture of {wide}×{high}: {str(error).splitlines()[0]}") from None
        filled = _as_picture(np.asarray(answer), self.path)
        filled = cv2.resize(filled, image.shape[1::-1], interpolation=cv2.INTER_CUBIC)
        return np.where(hole[..., None], filled, image)


def _inputs(session: InferenceSession, path: Path) -> tuple[NodeArg, NodeArg]:
    """(picture input, mask input): found by name, else by channels."""
    inputs = session.get_inputs()
    described = ", ".join(f"{port.name} {port.shape} {port.type}" for port in inputs)
    masks = [port for port in inputs if "mask" in port.name.lower()] or [
        port for port in inputs if _channels(port) == 1
    ]
    pictures = [port for port in inputs if port not in masks and _channels(port) in (3, None)]
    if len(inputs) != 2 or len(masks) != 1 or len(pictures) != 1:
        given = f"{path} takes {described}"
        raise UserError(given, allowed="two inputs: a picture (3 channels) and a mask (1 channel)")
    return pictures[0], masks[0]


def _channels(port: NodeArg) -> int | None:
    shape = port.shape
    places = [shape[1], shape[-1]] if len(shape) == 4 else []
    return next((size for size in places if size in (1, 3)), None)


def _last(port: NodeArg) -> bool:
    """Whether channels come last."""
    return len(port.shape) == 4 and port.shape[-1] in (1, 3) and port.shape[1] not in (1, 3)


def _size(port: NodeArg, wanted: tuple[int, int]) -> tuple[int, int]:
    """The input's fixed height and width; the picture's own where they are not fixed."""
    places = port.shape[1:3] if _last(port) else port.shape[2:4]
    fixed = [size if isinstance(size, int) and size > 0 else own for size, own in zip(places, wanted, strict=True)]
    return fixed[0], fixed[1]


def _as_input(image: np.ndarray, port: NodeArg) -> np.ndarray:
    array = image if "uint8" in port.type else (image.astype(np.float32) / 255)
    if "float16" in port.type:
        array = array.astype(np.float16)
    return np.ascontiguousarray((array if _last(port) else array.transpose(2, 0, 1))[None])


def _as_mask(hole: np.ndarray, port: NodeArg) -> np.ndarray:
    if "uint8" in port.type:
        array = np.where(hole, 0, 255).astype(np.uint8)
    else:
        array = hole.astype(np.float16 if "float16" in port.type else np.float32)
    if len(port.shape) == 3:
        return array[None]
    return array[None, ..., None] if _last(port) else array[None, None]


def _as_picture(answer: np.ndarray, path: Path) -> np.ndarray:
    picture = answer[0] if answer.ndim == 4 else answer
    if picture.ndim == 3 and picture.shape[0] == 3 and picture.shape[-1] != 3:
        picture = picture.transpose(1, 2, 0)
    if picture.ndim != 3 or picture.shape[-1] != 3 or not np.isfinite(picture).all():
        given = f"{path} returned {answer.shape}, which is not a picture"
        raise UserError(given, allowed="(1, 3, H, W) or (1, H, W, 3)")
    if picture.dtype == np.uint8:
        return picture
    # LaMa exports return 0…1 or 0…255; no real picture has a maximum below 2 of 255.
    scale = 1.0 if float(picture.max()) > 2 else 255.0
    return np.clip(np.rint(picture.astype(np.float32) * scale), 0, 255).astype(np.uint8)
