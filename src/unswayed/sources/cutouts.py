"""`cutouts:PATH`: objects with an alpha channel, each composed over a photograph from a folder of backgrounds."""

from __future__ import annotations

import hashlib
from pathlib import Path

import cv2
import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.scene import Scene
from unswayed.specs import Spec, existing_folder

from .labeled import SPACES, class_folder, label_space, pictures_below, within
from .pictures import read_cutout, read_picture, shrunk
from .source import Entry, Source, named

BACKGROUNDS = "backgrounds"


def open_cutouts(spec: Spec) -> Source:
    """One scene per cut-out, labeled by class folders, over a background chosen by the cut-out's name.

    backgrounds=DIR: the background photographs (PATH/backgrounds by default); fill: the longer side of the object as
    a share of the background's shorter side; space: auto, imagenet-1k or own.
    """
    root = spec.folder()
    spec.check_options("backgrounds", "fill", "space")
    space, fill = spec.one_of("space", SPACES), spec.number("fill", float, 0.01, 1, 0.6)
    folder = existing_folder(within(root, spec.options.get("backgrounds", BACKGROUNDS)), spec.text)
    backgrounds = pictures_below(folder)
    if not backgrounds:
        raise UserError(f"{folder} holds no background pictures for the cut-outs")
    behind = (folder, root / BACKGROUNDS)
    names = [name for name in pictures_below(root) if not any(map((root / name).is_relative_to, behind))]
    labels = label_space(map(class_folder, names), space)
    entries = []
    for name in names:
        kind = class_folder(name)
        label = None if kind is None else labels.index(kind)
        # The draw depends only on the name, so a cut-out keeps its background in any selection.
        digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        background = str(folder / backgrounds[int.from_bytes(digest) % len(backgrounds)])
        entries.append(Entry(name, str(root / name), None, label, detail=(background, fill)))
    return Source(spec.text, labels, named(entries), load_over_background)


def load_over_background(entry: Entry) -> Scene:
    """The cut-out in the center of its background, with a note about it."""
    path, fill = entry.detail
    colors, alpha = read_cutout(entry.image)
    if not (alpha > 0.5).any():
        raise BadPicture(f"{entry.image}: the cut-out is empty (no pixel is more than half opaque)")
    image, mask = composed(colors, alpha, read_picture(path), fill)
    return shrunk(Scene(entry.id, image, mask, entry.label, notes=(f"cut-out laid over {Path(path).name}",)))


def composed(
    colors: np.ndarray, alpha: np.ndarray, background: np.ndarray, fill: float
) -> tuple[np.ndarray, np.ndarray]:
    """The object, its longer side `fill` of the background's shorter, centered on it: picture and mask.

    colors: (h, w, 3) uint8; alpha: (h, w) in [0, 1]; background: (H, W, 3) uint8 -> (H, W, 3) uint8, (H, W) float32.
    """
    rows, columns = (np.flatnonzero((alpha > 0).any(axis=axis)) for axis in (1, 0))
    object_part = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    alpha = alpha[object_part]
    # Colors are weighted by alpha before they are mixed, else colors hidden under full transparency bleed in.
    weighted = colors[object_part].astype(np.float32) * alpha[..., None]
    high, wide = background.shape[:2]
    factor = fill * min(high, wide) / max(alpha.shape)
    size = max(1, round(alpha.shape[1] * factor)), max(1, round(alpha.shape[0] * factor))
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    alpha, weighted = cv2.resize(alpha, size, interpolation=how), cv2.resize(weighted, size, interpolation=how)
    left, top = (wide - size[0]) // 2, (high - size[1]) // 2
    window = np.s_[top : top + size[1], left : left + size[0]]
    image, mask = background.copy(), np.zeros((high, wide), np.float32)
    mixed = weighted + image[window] * (1 - alpha[..., None])
    image[window] = np.clip(np.rint(mixed), 0, 255).astype(np.uint8)
    mask[window] = alpha
    return image, mask
