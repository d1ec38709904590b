"""Makes rendering-imagenet-e.jpg: every ImageNet-E edit of two sample scenes, by diffusion with the embedded network.

python docs/pictures/make_rendering.py
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from unswayed.edits.composition import Pool
from unswayed.edits.layers import realize
from unswayed.edits.recipes import open_recipe
from unswayed.rendering.layers import Backgrounds, Rendering
from unswayed.rendering.settings import RenderSettings, open_renderer, removal_of
from unswayed.scene import frame
from unswayed.sources import open_source

SCENES, SIDE, ACROSS, SEED = ("koala", "jaguar"), 170, 7, 11


def main() -> None:
    source = open_source("sample")
    pool = Pool(source.ids, lambda scene_id: frame(source[scene_id]))
    settings = RenderSettings(guide="lite:2")
    backgrounds, renderer = Backgrounds(pool, removal_of(settings)), open_renderer(settings)
    items = open_recipe("imagenet-e").items
    tiles = []
    for scene_id in SCENES:
        framed = frame(source[scene_id])
        made = [realize(item.compose(framed, np.random.default_rng(3), pool), backgrounds, SEED) for item in items]
        answers = renderer.render(made)
        tiles += [
            tile(item.name, one.image) for item, one in zip(items, answers, strict=True) if isinstance(one, Rendering)
        ]
    tiles += [np.full_like(tiles[0], 255)] * (-len(tiles) % ACROSS)
    rows = [np.concatenate(tiles[first : first + ACROSS], axis=1) for first in range(0, len(tiles), ACROSS)]
    path = Path(__file__).with_name("rendering-imagenet-e.jpg")
    cv2.imwrite(str(path), np.concatenate(rows)[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 84])


def tile(name: str, image: np.ndarray) -> np.ndarray:
    small = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    named = np.concatenate([np.full((22, SIDE, 3), 255, np.uint8), small])
    cv2.putText(named, name, (4, 15), cv2.FONT_HERSHEY_SIMPLEX, 0.42, (0, 0, 0), 1, cv2.LINE_AA)
    return named


if __name__ == "__main__":
    main()
