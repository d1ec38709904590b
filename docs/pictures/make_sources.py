"""The pictures of docs/sources.md: `python docs/pictures/make_sources.py`."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import cv2
import numpy as np
from PIL import Image

from unswayed.choices import Frame
from unswayed.masks.segment import segmented
from unswayed.scene import Scene, frame
from unswayed.sources import open_source

HERE = Path(__file__).parent
HIGH = 200


def outlined(scene: Scene) -> np.ndarray:
    """The picture with its object outlined, and what is not object darkened: (H, W, 3) uint8."""
    shade = 0.45 + 0.55 * scene.mask[..., None]
    picture = np.rint(scene.image * shade).astype(np.uint8)
    shapes, _ = cv2.findContours((scene.mask > 0.5).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(picture, shapes, -1, (255, 220, 0), 2)


def strip(pictures: list[np.ndarray]) -> np.ndarray:
    """Pictures side by side at one height, apart by white."""
    tiles = []
    for picture in pictures:
        wide = round(picture.shape[1] * HIGH / picture.shape[0])
        tiles += [cv2.resize(picture, (wide, HIGH), interpolation=cv2.INTER_AREA), np.full((HIGH, 8, 3), 255, np.uint8)]
    return np.hstack(tiles[:-1])


def main() -> None:
    sample = open_source("sample")
    crab = sample["crab"]
    Image.fromarray(strip([crab.image, *(frame(crab, how).image for how in get_args(Frame))])).save(
        HERE / "sources-framing.jpg", quality=88
    )
    panda, lemur = sample["panda"], sample["lemur"]
    made = [segmented(scene.id, scene.image, scene.label, "grabcut") for scene in (panda, lemur)]
    Image.fromarray(strip([outlined(one) for one in (panda, made[0], lemur, made[1])])).save(
        HERE / "sources-masks.jpg", quality=88
    )


if __name__ == "__main__":
    main()
