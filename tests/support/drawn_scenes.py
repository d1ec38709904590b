"""Scenes for the tests of geometry: random masks (blobs, thin lines, several pieces) and the sample."""

from __future__ import annotations

import functools

import cv2
import numpy as np
from hypothesis import strategies as st

from unswayed.edits import Edit
from unswayed.edits.composition import Composition, Impossible, Pool
from unswayed.scene import Scene, frame
from unswayed.sources import open_source


@functools.cache
def sample_scene(scene_id: str) -> Scene:
    return frame(open_source("sample")[scene_id])


SAMPLE_IDS = open_source("sample").ids
SAMPLE = Pool(SAMPLE_IDS, sample_scene)
ALONE = Pool((), sample_scene)


def attempted(edit: Edit, scene: Scene, pool: Pool, seed: int = 0) -> Composition | str:
    """The scene under the edit, or the reason why that cannot be."""
    try:
        return edit.apply(Composition.of(scene), np.random.default_rng(seed), pool)
    except Impossible as refusal:
        return str(refusal)


def rate_of(alpha: np.ndarray) -> float:
    return float((alpha > 0.5).mean())


def striped(side: int) -> np.ndarray:
    """A picture in which every place has its own colour."""
    y, x = np.mgrid[:side, :side] / side
    return np.round(np.stack([x * 255, y * 255, 127 + 120 * np.sin(9 * x + 5 * y)], axis=2)).astype(np.uint8)


@st.composite
def scenes(draw: st.DrawFn, thin: bool = True) -> Scene:
    """A square scene of 80 to 320 pixels with one to three pieces: ellipses, boxes, or thin lines."""
    side = draw(st.integers(80, 320))
    mask = np.zeros((side, side), np.uint8)
    shapes = ["ellipse", "box", "line"] if thin else ["ellipse", "box"]
    for _ in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from(shapes))
        x, y = (draw(st.integers(0, side - 1)) for _ in range(2))
        long, wide = (draw(st.integers(max(side // 12, 3), side // 3)) for _ in range(2))
        turn = draw(st.integers(0, 179))
        if shape == "ellipse":
            cv2.ellipse(mask, (x, y), (long, wide), turn, 0, 360, 255, -1)
        elif shape == "box":
            cv2.rectangle(mask, (x, y), (x + long, y + wide), 255, -1)
        else:
            across = (int(x + 2 * long * np.cos(turn)), int(y + 2 * long * np.sin(turn)))
            cv2.line(mask, (x, y), across, 255, draw(st.integers(1, 5)))
    soft = cv2.GaussianBlur(mask, (0, 0), 0.8) if draw(st.booleans()) else mask
    return Scene("drawn", striped(side), np.maximum(soft, mask if not soft.max() > 127 else 0) / np.float32(255), 0)
