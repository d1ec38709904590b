"""The picture of docs/weather.md: `python docs/pictures/make_weather.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from unswayed.edits import Edit, make_edit
from unswayed.edits.composition import Composition, Pool
from unswayed.edits.geometry import resized
from unswayed.edits.layers import composite, realize
from unswayed.scene import frame
from unswayed.sources import open_source

HERE = Path(__file__).parent
SCENES = {"fog": "cow", "rain": "dog", "snow": "polar_bear", "night": "sheep", "shadow": "panda", "sun": "bison"}
PARTS: dict[str, tuple[Edit, ...]] = {
    "photograph": (),
    "night, background": (make_edit("night", severity=4, where="background"),),
    "the same, then relight": (make_edit("night", severity=4, where="background"), make_edit("relight")),
    "night, both": (make_edit("night", severity=4),),
    "snow, background": (make_edit("snow", severity=4, where="background"),),
    "rain, object": (make_edit("rain", severity=4, where="object"),),
}
TILE, CAPTION, SIZE = 144, 18, 256


class Own:
    """Only the photographs' own backgrounds."""

    size = SIZE

    def resolve(self, reference: object, composition: Composition) -> np.ndarray:
        return resized(composition.image, SIZE)


def picture(scene_id: str, chain: tuple[Edit, ...]) -> Image.Image:
    """A photograph of the sample under a chain of edits."""
    source = open_source("sample")
    composition = Composition.of(frame(source[scene_id]))
    for edit in chain:
        composition = edit.apply(composition, np.random.default_rng(0), Pool((), lambda one: frame(source[one]), SIZE))
    layers = realize(composition, Own(), 0)
    return Image.fromarray(composite(layers.object, layers.alpha, layers.background))


def main() -> None:
    rows = [
        [(f"{name} {severity}", picture(scene, (make_edit(name, severity=severity),))) for severity in range(6)]
        for name, scene in SCENES.items()
    ]
    rows.append([(caption, picture("koala", chain)) for caption, chain in PARTS.items()])
    sheet = Image.new("RGB", (6 * (TILE + 3) - 3, len(rows) * (TILE + CAPTION)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for row, tiles in enumerate(rows):
        for column, (caption, image) in enumerate(tiles):
            left, top = column * (TILE + 3), row * (TILE + CAPTION)
            pen.text((left + 2, top + 2), caption, fill=(40, 40, 40), font=font)
            sheet.paste(image.resize((TILE, TILE), Image.Resampling.LANCZOS), (left, top + CAPTION - 1))
    sheet.save(HERE / "weather.jpg", quality=76)


if __name__ == "__main__":
    main()
