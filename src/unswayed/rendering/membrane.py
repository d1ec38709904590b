"""A smooth continuation of a picture into its unknown parts."""

from __future__ import annotations

import cv2
import numpy as np


def membrane(picture: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The picture where `weight` is 1, and a smooth blend of what surrounds it where it is 0.

    picture: (H, W, 3) uint8; weight: (H, W) float32 in [0, 1]. Known pixels are averaged down a pyramid until every
    gap is closed, and the gaps filled on the way back up; if nothing is known, the result is black.
    """
    known = weight[..., None].astype(np.float32)
    levels = [np.concatenate([picture.astype(np.float32) * known, known], axis=2)]
    while min(levels[-1].shape[:2]) > 1 and levels[-1][..., 3].min() < 0.99:
        levels.append(cv2.pyrDown(levels[-1]))
    filled = levels[-1][..., :3] / np.maximum(levels[-1][..., 3:], 1e-6)
    for level in reversed(levels[:-1]):
        share = np.minimum(level[..., 3:], 1)
        coarse = cv2.pyrUp(filled, dstsize=level.shape[1::-1])
        filled = level[..., :3] + (1 - share) * coarse
    return np.clip(np.round(filled), 0, 255).astype(np.uint8)
