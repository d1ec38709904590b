"""python tools/sample_fills.py: write what the embedded network puts in the place of the sample's objects.

A file is found by what it was made from (picture, mask, network), so run this again when one of these or the way holes
are filled has changed; a test fails until then. Files of earlier pictures, masks and networks are deleted.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import cv2
import numpy as np

from unswayed.edits.geometry import resized
from unswayed.rendering import layers
from unswayed.rendering.removal import open_removal
from unswayed.scene import frame
from unswayed.sources import open_source

SIZE = 256


def main() -> None:
    removal, folder = open_removal("diffusion", "cpu"), layers.EMBEDDED
    with tempfile.TemporaryDirectory() as made:
        layers.EMBEDDED, written = Path(made), set[Path]()  # nothing is found there, so everything is made anew
        for scene in map(frame, open_source("sample")):
            image, mask = resized(scene.image, SIZE), resized(scene.mask, SIZE)
            removed = layers.removed_object(image, mask, scene.id, scene.label, removal, Path(made), removal.name)
            [path] = set(Path(made).glob("*.png")) - written
            changed = (removed != image).any(axis=2, keepdims=True)
            transparent = np.where(changed, np.dstack([removed[..., ::-1], np.full_like(mask, 255, np.uint8)]), 0)
            cv2.imwrite(str(path), transparent.astype(np.uint8), [cv2.IMWRITE_PNG_COMPRESSION, 9])
            written.add(path)
            print(scene.id, flush=True)
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.png"):
            old.unlink()
        for path in written:
            shutil.copy(path, folder)


if __name__ == "__main__":
    main()
