"""Does a mask belong to its photograph? Its outline then lies on edges, and the same outline moved aside does not."""

from __future__ import annotations

import cv2
import numpy as np

SIDE = 256  # the size at which it is measured
NEAR = np.ones((3, 3), np.uint8)
BORDER = 3  # pixels at the border that do not count: an object that is cut off has no edge there
LEAST = 30  # pixels of an outline below which it says nothing
STEPS = tuple((round(r * np.sin(a)), round(r * np.cos(a))) for r in (12, 24) for a in np.arange(8) * np.pi / 4)


def outline_fit(image: np.ndarray, mask: np.ndarray) -> float | None:
    """The share of 16 places aside at which the outline of the object meets no stronger edges than where it is.

    image: (H, W, 3) uint8; mask: (H, W) in [0, 1]. It is 1 for nearly every right mask and about one half for a
    mirrored one or that of another photograph. None if the outline is too short to tell.
    """
    scale = SIDE / max(mask.shape)
    size = max(round(mask.shape[1] * scale), 1), max(round(mask.shape[0] * scale), 1)
    gray = cv2.cvtColor(cv2.resize(image, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
    inside = (cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0.5).astype(np.uint8)
    edges = cv2.dilate(np.hypot(cv2.Sobel(gray, cv2.CV_32F, 1, 0), cv2.Sobel(gray, cv2.CV_32F, 0, 1)), NEAR)
    line = cv2.morphologyEx(inside, cv2.MORPH_GRADIENT, NEAR) > 0
    line[:BORDER] = line[-BORDER:] = False
    line[:, :BORDER] = line[:, -BORDER:] = False
    rows, columns = np.nonzero(line)
    if len(rows) < LEAST:
        return None
    own = float(edges[rows, columns].mean())
    weaker = []
    for down, right in STEPS:
        y, x = rows + down, columns + right
        there = (y >= 0) & (y < size[1]) & (x >= 0) & (x < size[0])
        if there.mean() > 0.6:
            weaker.append(float(edges[y[there], x[there]].mean()) <= own)
    return float(np.mean(weaker)) if weaker else None
