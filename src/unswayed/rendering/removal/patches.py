"""Hole filling from patches of the rest of the picture, coarse to fine: structure first, then texture.

Ring by ring from the rim inward, every patch that touches the hole finds its nearest match among the known patches
(Criminisi, Perez and Toyama 2004); then each pixel of the hole becomes the mean of the matches of all patches over it,
and the search repeats (Wexler, Shechtman and Irani 2007). Colors are integers and a patch has 7×7×3 of them, so every
sum stays below 2**24 and is exact in float32: the same bytes on every machine and for any number of threads.
"""

from __future__ import annotations

import cv2
import numpy as np

from unswayed.edits.composition import Impossible
from unswayed.edits.layers import membrane

from . import hole_of

REACH = 3  # a patch is 7×7
PATCH = np.ones((2 * REACH + 1, 2 * REACH + 1), np.uint8)
COARSE = 32
# Weight of a patch's position relative to its colors: sky is filled from the sky, ground from the ground.
DOWN, ACROSS = 6, 2
FEWEST = 16
ALIKE = 12  # number of matching patches that a cell's texture is drawn from: a single one would repeat visibly


class PatchRemoval:
    """Removal without a network: a generous hole, filled from patches of the rest of the picture."""

    name = "patches-1"

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int = 0, label: int | None = None) -> np.ndarray:
        return fill_hole(image, hole_of(mask), seed)


def fill_hole(image: np.ndarray, hole: np.ndarray, seed: int = 0) -> np.ndarray:
    """`image` (S, S, 3) uint8 with the pixels of `hole` (S, S) bool filled from the others."""
    if not hole.any():
        return image
    if hole.all():
        raise Impossible("the hole covers the whole picture, so there is nothing to fill it from")
    smooth = membrane(image, (~hole).astype(np.float32))
    coarse, fine = (_Level(smooth, hole, size) for size in (COARSE, 2 * COARSE))
    if image.shape[0] <= 2 * COARSE or len(coarse.sources) < FEWEST or len(fine.sources) < FEWEST:
        return smooth
    nearest = coarse.grown()
    for _ in range(2):
        filled = coarse.voted(nearest)
        nearest = coarse.propagated(coarse.searched(filled), filled)
    # The matches of one level, transferred to the level of twice its size.
    steps = np.repeat(np.repeat(nearest - coarse.places, 2, axis=0), 2, axis=1) * 2
    nearest = np.clip(fine.places + steps, 0, len(steps) - 1)
    for _ in range(2):
        nearest = fine.propagated(nearest, fine.voted(nearest))
    filled = fine.voted(nearest)
    matches = coarse.drawn(cv2.resize(filled, (COARSE, COARSE), interpolation=cv2.INTER_AREA), seed)
    return _detailed(smooth, hole, filled, matches)


class _Level:
    """The picture at one size: its known pixels, the source patches and the target patches.

    A map of nearest matches is (H, W, 2) int: for a target's center the center of its match, elsewhere itself.
    """

    def __init__(self, smooth: np.ndarray, hole: np.ndarray, size: int) -> None:
        self.picture = cv2.resize(smooth, (size, size), interpolation=cv2.INTER_AREA)
        self.known = cv2.resize((~hole).astype(np.float32), (size, size), interpolation=cv2.INTER_AREA) > 0.99
        self.usable = cv2.erode(self.known.astype(np.uint8), PATCH).astype(bool)
        self.sources = np.argwhere(self.usable)
        self.targets = np.argwhere(~self.usable)
        self.size = size
        self.places = _itself(self.known.shape)
        # For voting: the hole's pixels as indices into the padded picture, and the centers of the patches over them.
        inside = np.argwhere(~self.known)
        self.hole = (inside + REACH) @ (size + 2 * REACH, 1)
        steps = np.argwhere(PATCH) - REACH
        self.over = np.clip(inside + steps[:, None], 0, size - 1) @ (size, 1)
        depth = cv2.distanceTransform((~self.known).astype(np.uint8), cv2.DIST_L2, 3)
        # Integers again, so that the sums are exact.
        self.trust = np.maximum(np.round(1024 * 1.3**-depth), 1).astype(np.float32).reshape(-1, 1)

    def grown(self) -> np.ndarray:
        """Nearest matches from the rim inward, each found by the pixels known or filled so far."""
        picture, known = self.picture.copy(), self.known.copy()
        nearest = _itself(known.shape)
        theirs = _features(picture, self.sources)
        squares = theirs * theirs
        while not known.all():
            ring = np.argwhere(~known & cv2.dilate(known.astype(np.uint8), PATCH[:3, :3]).astype(bool))
            seen = _features(np.repeat(known[..., None], 3, axis=2).astype(np.uint8), ring)
            seen[:, -2:] = 1
            ours = _features(picture, ring) * seen
            distance = seen @ squares.T - 2 * (ours @ theirs.T)
            matches = self.sources[distance.argmin(axis=1)]
            nearest[ring[:, 0], ring[:, 1]] = matches
            picture[ring[:, 0], ring[:, 1]] = picture[matches[:, 0], matches[:, 1]]
            known[ring[:, 0], ring[:, 1]] = True
        return nearest

    def searched(self, filled: np.ndarray) -> np.ndarray:
        """The nearest match of every patch that touches the hole."""
        return self._chosen(self._all_distances(filled).argmin(axis=1))

    def drawn(self, filled: np.ndarray, seed: int) -> np.ndarray:
        """One of the few nearest matches of every patch that touches the hole, drawn by `seed`."""
        few = min(ALIKE, len(self.sources)) - 1
        ranked = np.argpartition(self._all_distances(filled), few, axis=1)[:, : few + 1]
        # Sorted by position, since the order after the partition is not defined.
        ranked.sort(axis=1)
        pick = np.random.default_rng(seed).integers(ranked.shape[1], size=len(ranked))
        return self._chosen(ranked[np.arange(len(ranked)), pick])

    def propagated(self, nearest: np.ndarray, filled: np.ndarray) -> np.ndarray:
        """`nearest`, improved by the neighbors' matches and by matches one pixel away.

        A neighbor's match is taken even if it is slightly worse: patches that move together copy texture as one piece.
        """
        rows, columns = self.targets.T
        every = _features(filled, _itself(self.known.shape).reshape(-1, 2)).reshape(self.size, self.size, -1)
        ours = every[rows, columns]
        best = np.clip(nearest[rows, columns], 0, self.size - 1)
        least = self._distances(every, ours, best)
        for step in ((0, 1), (0, -1), (1, 0), (-1, 0)):
            beside = np.clip(self.targets + step, 0, self.size - 1)
            carried = nearest[beside[:, 0], beside[:, 1]] - (beside - self.targets)
            for candidate, factor in ((carried, np.float32(0.8)), (best + step, np.float32(1.05))):
                candidate = np.clip(candidate, 0, self.size - 1)
                distance = self._distances(every, ours, candidate) * factor
                better = distance < least
                best, least = np.where(better[:, None], candidate, best), np.where(better, distance, least)
        propagated = nearest.copy()
        propagated[rows, columns] = best
        return propagated

    def voted(self, nearest: np.ndarray) -> np.ndarray:
        """The picture with every pixel of the hole replaced by the mean of the matches of the patches over it.

        Patches near the hole's rim have more weight, since they contain known pixels.
        """
        padded = cv2.copyMakeBorder(self.picture, REACH, REACH, REACH, REACH, cv2.BORDER_REFLECT_101)
        colors = np.dstack([padded, np.ones(padded.shape[:2])]).reshape(-1, 4).astype(np.float32)
        stride = padded.shape[1]
        offsets = ((nearest - self.places) @ (stride, 1)).ravel()
        total = np.zeros((len(self.hole), 4), np.float32)
        for centers in self.over:
            total += self.trust[centers] * colors[self.hole + offsets[centers]]
        filled = self.picture.copy()
        filled[~self.known] = np.round(total[:, :3] / total[:, 3:]).astype(np.uint8)
        return filled

    def _all_distances(self, filled: np.ndarray) -> np.ndarray:
        """Squared distances of every target patch to every source patch, up to a constant per row."""
        ours, theirs = _features(filled, self.targets), _features(filled, self.sources)
        return (theirs * theirs).sum(axis=1) - 2 * (ours @ theirs.T)

    def _chosen(self, indices: np.ndarray) -> np.ndarray:
        nearest = self.places.copy()
        nearest[self.targets[:, 0], self.targets[:, 1]] = self.sources[indices]
        return nearest

    def _distances(self, every: np.ndarray, ours: np.ndarray, centers: np.ndarray) -> np.ndarray:
        difference = every[centers[:, 0], centers[:, 1]] - ours
        distance = np.einsum("ij,ij->i", difference, difference)
        return np.where(self.usable[centers[:, 0], centers[:, 1]], distance, np.float32(np.inf))


def _features(picture: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Patches around `centers` as rows of integers, the position appended: (N, 149) float32."""
    padded = cv2.copyMakeBorder(picture, REACH, REACH, REACH, REACH, cv2.BORDER_REFLECT_101)
    windows = np.lib.stride_tricks.sliding_window_view(padded, PATCH.shape, axis=(0, 1))
    colors = windows[centers[:, 0], centers[:, 1]].reshape(len(centers), -1)
    scale = COARSE / picture.shape[0]
    offsets = np.round(centers * (DOWN * scale, ACROSS * scale))
    return np.concatenate([colors, offsets], axis=1).astype(np.float32)


def _detailed(smooth: np.ndarray, hole: np.ndarray, filled: np.ndarray, matches: np.ndarray) -> np.ndarray:
    """The coarse filling at full size, with fine texture from similar places.

    filled: (L, L, 3) uint8; matches: (K, K, 2), for every cell of a K×K grid the cell that its texture comes from. A
    pixel's texture is a blend of the four cells around it, rescaled to keep the contrast that blending would reduce.
    """
    size, cells = smooth.shape[0], matches.shape[0]
    step = size / cells
    base = cv2.resize(filled, (size, size), interpolation=cv2.INTER_CUBIC)
    even = cv2.resize(cv2.resize(smooth, filled.shape[:2], interpolation=cv2.INTER_AREA), (size, size))
    fine = np.subtract(smooth, even, dtype=np.float32)
    fine[hole] = 0
    places = np.argwhere(hole)
    grid = (places + 0.5) / step - 0.5
    corner = np.floor(grid).astype(np.int32)
    share = (grid - corner).astype(np.float32)
    offsets = np.round((matches - _itself(matches.shape[:2])) * step).astype(np.int32)
    texture, power = np.zeros((len(places), 3), np.float32), np.zeros((len(places), 1), np.float32)
    for down, across in np.ndindex(2, 2):
        cell = np.clip(corner + (down, across), 0, cells - 1)
        beside = np.abs(places + offsets[cell[:, 0], cell[:, 1]])  # mirrored at the border, as in the next line
        source = np.clip(size - 1 - np.abs(size - 1 - beside), 0, size - 1)
        weight = np.abs(1 - down - share[:, :1]) * np.abs(1 - across - share[:, 1:])
        texture += weight * fine[source[:, 0], source[:, 1]]
        power += weight * weight
    # Toward the rim the filling changes into the colors just outside, so that the hole's outline does not show.
    depth = cv2.distanceTransform(hole.astype(np.uint8), cv2.DIST_L2, 3)[hole][:, None]
    deep = np.clip(depth / (0.025 * size), 0, 1)
    known = (~hole[..., None]).astype(np.float32)
    around = cv2.GaussianBlur(np.concatenate([smooth * known, known], axis=2), (0, 0), 0.01 * size)[hole]
    outside = around[:, :3] / np.maximum(around[:, 3:], 1e-6)
    tone = np.where(around[:, 3:] > 1e-4, outside + deep * (base[hole] - outside), base[hole])
    result, colors = smooth.copy(), tone + texture / np.sqrt(power) * np.clip(depth / 3, 0, 1)
    result[hole] = np.clip(np.round(colors), 0, 255).astype(np.uint8)
    return result


def _itself(shape: tuple[int, ...]) -> np.ndarray:
    """Every position of a picture, (H, W, 2)."""
    return np.moveaxis(np.indices(shape[:2]), 0, 2)
