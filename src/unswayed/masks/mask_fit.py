"""Does a mask belong to its photograph? The colors on both sides of its outline then differ more than elsewhere."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

SIDE = 256  # the length in pixels of the photograph's longer side at which it is measured
NEAR, FAR = 3, 12  # distances in pixels between which a band on each side of the outline lies
LEAST, MOST = 60, 800  # pixels of a band: with fewer it says nothing, of more a part is enough
CONVEX = 0.975  # share of its convex hull from which on a mask is a box, an ellipse or a hull instead of an outline
ASIDE = 20, 36  # distances in pixels by which the outline is moved aside
PLACES = 8  # the fewest outlines that must lie in the photograph for a comparison
PLAIN = 0.05  # contrast below which the whole photograph is too plain to say anything
BELONGS = 2.0  # standard deviations above the mean of the moved outlines from which on a turned mask fits
LEVELS = 8  # of each color channel
# How masks are often turned by mistake: whether the axes are exchanged, and the signs of rows and columns.
TURNS = {
    "mirrored": (False, 1, -1),
    "upside down": (False, -1, 1),
    "turned by 180 degrees": (False, -1, -1),
    "transposed": (True, 1, 1),
    "turned left by 90 degrees": (True, -1, 1),
    "turned right by 90 degrees": (True, 1, -1),
}


class Fit(NamedTuple):
    """How a mask fits a photograph.

    deviations: how much more the colors beside its outline differ than at other places, in standard deviations of
    those; turn: one of TURNS that would make it fit much better, if there is one.
    """

    deviations: float
    turn: str | None


def mask_fit(image: np.ndarray, mask: np.ndarray) -> Fit | None:
    """The fit of a mask (H, W) in [0, 1] to a photograph (H, W, 3) uint8; None if it cannot be judged.

    A band inside the outline and one outside are compared by their colors, here and where the outline is moved aside,
    turned or mirrored. The bands begin a little beside the outline, so that a mask may be a few pixels too large or
    too small. Boxes and other convex masks are not judged.
    """
    scale = SIDE / max(mask.shape)
    size = max(round(mask.shape[1] * scale), 1), max(round(mask.shape[0] * scale), 1)
    inside = (cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0.5).astype(np.uint8)
    bands = _bands(inside)
    if bands is None:
        return None
    colors = _colors(cv2.resize(image, size, interpolation=cv2.INTER_AREA))
    angles = np.arange(8) * np.pi / 4
    steps = [np.rint([far * np.sin(angle), far * np.cos(angle)]).astype(int) for far in ASIDE for angle in angles]
    own, *moved = (_contrast(colors, [band + step for band in bands]) for step in ((0, 0), *steps))
    turned = {
        name: _contrast(colors, [_turned(band, inside.shape, *how) for band in bands]) for name, how in TURNS.items()
    }
    others, aside = (np.array([one for one in some if one is not None]) for some in ((*moved, *turned.values()), moved))
    if own is None or len(aside) < PLACES or others.max() < PLAIN:
        return None
    name, best = max(((name, one or 0.0) for name, one in turned.items()), key=lambda pair: pair[1])
    better = best > max(own, aside.mean() + BELONGS * aside.std())
    return Fit(float((own - others.mean()) / max(others.std(), 1e-9)), name if better else None)


def _bands(inside: np.ndarray) -> list[np.ndarray] | None:
    """Rows and columns of pixels inside and outside the outline; None if there are too few or the mask is convex."""
    outlines, _ = cv2.findContours(inside, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    if not outlines:
        return None
    hull = cv2.fillPoly(np.zeros_like(inside), [cv2.convexHull(np.concatenate(outlines))], 1)
    near, far = (cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * r + 1, 2 * r + 1)) for r in (NEAR, FAR))
    inner = np.argwhere(cv2.erode(inside, near) > cv2.erode(inside, far))
    outer = np.argwhere(cv2.dilate(inside, far) > cv2.dilate(inside, near))
    if inside.sum() > CONVEX * hull.sum() or min(len(inner), len(outer)) < LEAST:
        return None
    return [band[:: max(len(band) // MOST, 1)] for band in (inner, outer)]


def _turned(band: np.ndarray, shape: tuple[int, ...], exchanged: bool, down: int, right: int) -> np.ndarray:
    high, wide = shape
    if exchanged:
        band = (band[:, ::-1] * [high / wide, wide / high]).astype(int)
    return band * [down, right] + [high - 1 if down < 0 else 0, wide - 1 if right < 0 else 0]


def _colors(image: np.ndarray) -> np.ndarray:
    """The number of each pixel's color among LEVELS³, with finer steps where colors are pale."""
    lab = cv2.cvtColor(cv2.GaussianBlur(image, (0, 0), 1), cv2.COLOR_RGB2LAB).astype(int)
    hues = np.clip((lab[..., 1:] - 128) // 8 + LEVELS // 2, 0, LEVELS - 1)
    return (lab[..., 0] * LEVELS // 256 * LEVELS + hues[..., 0]) * LEVELS + hues[..., 1]


def _contrast(colors: np.ndarray, bands: list[np.ndarray]) -> float | None:
    """How different the colors of two bands are, from 0 to 1; None if most of one is outside the photograph."""
    shares = []
    for band in bands:
        there = ((band >= 0) & (band < colors.shape)).all(1)
        if there.mean() < 0.5:
            return None
        counts = np.bincount(colors[tuple(band[there].T)], minlength=LEVELS**3)
        shares.append(counts / counts.sum())
    return 1 - float(np.sqrt(shares[0] * shares[1]).sum())
