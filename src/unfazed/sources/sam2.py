"""The default of `[masks]`: a salient-object network finds the object, its box prompts SAM 2 (Hiera-tiny)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unfazed.engine import onnx_sessions
from unfazed.errors import BadPicture, UserError
from unfazed.known_weights import place_of

Box = tuple[int, int, int, int]
Salient = Callable[[np.ndarray, Box | None], np.ndarray]
FILES = ("silueta", "sam2-tiny-encoder", "sam2-tiny-decoder")
_SIDE, _LOW = 1024, 256
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, eq=False)
class Candidates:
    """What was found in one picture: the salient map and the promptable network's masks, best first.

    salient: (H, W) float32 in [0, 1]; masks: (N, H, W) float32 in [0, 1]; scores: (N,) how good each is thought to be.
    """

    salient: np.ndarray
    masks: np.ndarray
    scores: np.ndarray


def missing_files() -> list[str]:
    """The names of the weights that are not in the cache."""
    return [name for name in FILES if not place_of(name).is_file()]


def has_runtime() -> bool:
    """Whether onnxruntime is installed."""
    from importlib.util import find_spec

    return find_spec("onnxruntime") is not None


def file_of(name: str) -> Path:
    """The weights in the cache; the error has the command that gets them."""
    path = place_of(name)
    if not path.is_file():
        raise UserError(
            f"the weights of {name} are not in {path.parent}",
            allowed="--segmenter grabcut, which needs nothing; or onnx:FILE with a network of your own",
            run="unfazed weights fetch masks",
        )
    return path


@functools.cache
def open_session(path: str) -> Any:
    """A network of the segmenters, opened once."""
    return onnx_sessions.open_session(path, "masks")


@dataclass(frozen=True)
class PromptedSegmenter:
    """A segmenter: picture and box or None in, the mask of the best candidate out.

    salient: finds the object where there is no box; encoder, decoder: paths of SAM 2's two networks.
    """

    salient: Salient
    encoder: str
    decoder: str

    def __call__(self, image: np.ndarray, box: Box | None = None) -> np.ndarray:
        return self.candidates(image, box).masks[0]

    def candidates(self, image: np.ndarray, box: Box | None = None) -> Candidates:
        """Every candidate, in the order of its own score times its agreement with the salient map."""
        map_ = self.salient(image, box)
        prompt = box or box_of(map_)
        if prompt is None:
            raise BadPicture("no object stands out in the picture", allowed="--box X,Y,W,H around it, or a mask")
        embedded = self._embed(image)
        masks, scores = self._decode(embedded, image.shape, prompt)
        agreement = np.array([overlap(mask, map_) for mask in masks])
        order = np.argsort(-(scores * agreement), kind="stable")
        return Candidates(map_, masks[order], scores[order])

    def _embed(self, image: np.ndarray) -> list[np.ndarray]:
        import cv2

        pixels = cv2.resize(image, (_SIDE, _SIDE), interpolation=cv2.INTER_LINEAR).astype(np.float32) / 255
        batch = ((pixels - _MEAN) / _DEVIATION).transpose(2, 0, 1)[None].astype(np.float32)
        network = open_session(self.encoder)
        answers = network.run(None, {network.get_inputs()[0].name: batch})
        named = dict(zip((one.name for one in network.get_outputs()), answers, strict=True))
        return [named["image_embed"], named["high_res_feats_0"], named["high_res_feats_1"]]

    def _decode(
        self, embedded: Sequence[np.ndarray], shape: tuple[int, ...], box: Box
    ) -> tuple[np.ndarray, np.ndarray]:
        import cv2

        high, wide = shape[:2]
        x, y, box_wide, box_high = box
        corners = np.array([[[x, y], [x + box_wide, y + box_high]]], np.float32) * (_SIDE / wide, _SIDE / high)
        answers = open_session(self.decoder).run(
            None,
            {
                "image_embed": embedded[0],
                "high_res_feats_0": embedded[1],
                "high_res_feats_1": embedded[2],
                "point_coords": corners.astype(np.float32),
                "point_labels": np.array([[2, 3]], np.float32),  # the two corners of a box
                "mask_input": np.zeros((1, 1, _LOW, _LOW), np.float32),
                "has_mask_input": np.zeros(1, np.float32),
            },
        )
        logits, scores = answers[0][0], answers[1][0]
        masks = [cv2.resize(one, (wide, high), interpolation=cv2.INTER_LINEAR) for one in logits]
        return np.stack([1 / (1 + np.exp(-np.clip(one, -30, 30))) for one in masks]).astype(np.float32), scores


def box_of(mask: np.ndarray, least: float = 0.005) -> Box | None:
    """The box around every large part of a mask (a tenth of the largest and more), or None where there is nothing."""
    import cv2

    shape = (mask > 0.5).astype(np.uint8)
    count, _, measures, _ = cv2.connectedComponentsWithStats(shape)
    if count < 2 or shape.mean() < least:
        return None
    areas = measures[1:, cv2.CC_STAT_AREA]
    kept = measures[1:][areas >= areas.max() / 10]
    left, top = kept[:, cv2.CC_STAT_LEFT].min(), kept[:, cv2.CC_STAT_TOP].min()
    right = (kept[:, cv2.CC_STAT_LEFT] + kept[:, cv2.CC_STAT_WIDTH]).max()
    bottom = (kept[:, cv2.CC_STAT_TOP] + kept[:, cv2.CC_STAT_HEIGHT]).max()
    return int(left), int(top), int(right - left), int(bottom - top)


def overlap(first: np.ndarray, second: np.ndarray) -> float:
    """Intersection over union of two masks at 0.5, 1 where both are empty.

    >>> overlap(np.array([1.0, 1, 0]), np.array([1.0, 0, 0]))
    0.5
    """
    one, two = first > 0.5, second > 0.5
    union = (one | two).sum()
    return float((one & two).sum() / union) if union else 1.0
