"""How far a mask that nobody drew can be trusted: agreement of two segmenters, contrast at its edge, plausible size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Confidence:
    """agreement, edge, size and their product `value`, each in [0, 1]; below 0.7 a person should look."""

    agreement: float
    edge: float
    size: float

    @property
    def value(self) -> float:
        return self.agreement * (0.5 + 0.5 * self.edge) * self.size


LOOK_BELOW = 0.7
NO_EDGE = 0.2  # edge contrast below which an outline follows nothing: loose but right masks have 0.35, blank walls 0


def mask_confidence(image: np.ndarray, mask: np.ndarray, agreement: float) -> Confidence:
    """The confidence of a mask (H, W) in [0, 1] of an image (H, W, 3) uint8, given its agreement with another."""
    return Confidence(agreement, edge_contrast(image, mask), plausible_size(mask))


def edge_contrast(image: np.ndarray, mask: np.ndarray) -> float:
    """How much the picture changes across the mask's outline compared with elsewhere, in [0, 1]; 0.5 is no more.

    The share of pixel pairs (one on the outline, one anywhere) in which the outline has the stronger gradient.
    """
    import cv2

    shape = (mask > 0.5).astype(np.uint8)
    ring = cv2.dilate(shape, np.ones((3, 3), np.uint8)) - cv2.erode(shape, np.ones((3, 3), np.uint8))
    if not ring.any() or ring.all():
        return 0.0
    gray = cv2.GaussianBlur(image, (0, 0), 1.0).astype(np.float32).mean(axis=2)
    strength = np.hypot(cv2.Sobel(gray, cv2.CV_32F, 1, 0), cv2.Sobel(gray, cv2.CV_32F, 0, 1))
    everywhere = np.sort(strength[ring == 0])
    return float((np.searchsorted(everywhere, strength[ring > 0]) / len(everywhere)).mean())


def plausible_size(mask: np.ndarray, least: float = 0.01, most: float = 0.9) -> float:
    """1 for a mask that covers a usual share of the picture, falling to 0 where it covers almost nothing or all of it.

    >>> plausible_size(np.zeros((10, 10))), plausible_size(np.eye(10))
    (0.0, 1.0)
    """
    share = float((mask > 0.5).mean())
    return float(min(share / least, 1.0) * np.clip((1 - share) / (1 - most), 0.0, 1.0))
