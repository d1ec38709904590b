"""Does a mask belong to its photograph? The colors on both sides of its outline then differ more than elsewhere."""

from __future__ import annotations

import cv2
import numpy as np

SIDE = 256  # the length in pixels of the photograph's longer side at which it is measured
NEAR, FAR = 3, 12  # distances in pixels between which a band on each side of the outline lies
LEAST, MOST = 60, 800  # pixels of a band: with fewer it says nothing, of more a part is enough
CONVEX = 0.975  # share of its convex hull from which on a mask is a box, an ellipse or a hull instead of an outline
ASIDE = 20, 36  # distances in pixels by which the outline is moved aside
PLACES = 8  # the fewest outlines that must lie in the photograph for a comparison
PLAIN = 0.05  # contrast below which the whole photograph is too plain to say anything
FITS = 0.8  # standard deviations above the mean of the moved outlines; 1 % of right masks are below, 80 % of others
BELONGS = 2.0  # the same for a turned or mirrored mask that is said to fit
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


def misfit(image: np.ndarray, mask: np.ndarray) -> str | None:
    """What suggests that the mask belongs to another photograph; None if it fits or cannot be judged.

    image: (H, W, 3) uint8; mask: (H, W) in [0, 1]. A band inside the outline and one outside are compared by their
    colors, here and where the outline is moved aside, turned or mirrored. The bands begin a little beside the outline,
    so that a mask may be a few pixels too large or too small. Boxes and other convex masks are not judged.
    """
    scale = SIDE / max(mask.shape)
    size = max(round(mask.shape[1] * scale), 1), max(round(mask.shape[0] * scale), 1)
    inside = (cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0.5).astype(np.uint8)
    bands = _bands(inside)
    if bands is None:
        return None
    colors = _colors(cv2.resize(image, size, interpolation=cv2.INTER_AREA))
    own = _contrast(colors, bands)
    angles = np.arange(8) * np.pi / 4
    steps = [np.rint([far * np.sin(angle), far * np.cos(angle)]).astype(int) for far in ASIDE for angle in angles]
    moved = [_contrast(colors, [band + step for band in bands]) for step in steps]
    turned = {
        name: _contrast(colors, [_turned(band, inside.shape, *how) for band in bands]) for name, how in TURNS.items()
    }
    others = np.array([one for one in (*moved, *turned.values()) if one is not None])
    if own is None or len(others) < PLACES or own >= others.mean() + FITS * others.std() or others.max() < PLAIN:
        return None
    aside = np.array([one for one in moved if one is not None])
    name, best = max(((name, one or 0.0) for name, one in turned.items()), key=lambda pair: pair[1])
    if len(aside) >= PLACES and best > max(own, aside.mean() + BELONGS * aside.std()):
        return f"it would fit {name}"
    return "it looks like that of another photograph, or is shifted"


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
