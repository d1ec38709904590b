"""The pictures of docs/edits.md and docs/recipes.md: `python docs/pictures/make_edits.py [--renderer diffusion]`."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from unswayed.edits.composition import Impossible, Pool
from unswayed.edits.layers import realize
from unswayed.edits.recipes import open_recipe
from unswayed.rendering import RenderSettings, open_renderer
from unswayed.rendering.layers import Backgrounds, Refusal, Rendering
from unswayed.rendering.removal import open_removal
from unswayed.scene import frame
from unswayed.sources import open_source

HERE = Path(__file__).parent
STRIPS = {
    "beyond": ("beyond", "koala", 8),
    "textures": ("textures", "duck", 7),
    "size": ("size=0.02:0.25:7", "polar_bear", 9),
}
TILE, CAPTION = 168, 22


def strip(recipe: str, scene_id: str, columns: int, renderer_name: str) -> Image.Image:
    """One photograph under every edit of a recipe, captioned; what cannot be made says why."""
    source = open_source("sample")
    pool = Pool(source.ids, lambda one: frame(source[one]))
    backgrounds = Backgrounds(pool, open_removal("diffusion"))
    renderer = open_renderer(RenderSettings(renderer=renderer_name))
    scene, tiles = frame(source[scene_id]), []
    for number, item in enumerate(open_recipe(recipe).items):
        try:
            layers = realize(item.compose(scene, np.random.default_rng([7, number]), pool), backgrounds, number)
            (answer,) = renderer.render([layers])
        except Impossible as reason:
            answer = Refusal(str(reason))
        tiles.append(captioned(item.name, answer))
    rows = -(-len(tiles) // columns)
    sheet = Image.new("RGB", (columns * (TILE + 4) - 4, rows * (TILE + CAPTION)), "white")
    for number, tile in enumerate(tiles):
        sheet.paste(tile, (number % columns * (TILE + 4), number // columns * (TILE + CAPTION)))
    return sheet


def captioned(name: str, answer: Rendering | Refusal) -> Image.Image:
    """The picture under its name, or the reason why there is none."""
    card = Image.new("RGB", (TILE, TILE + CAPTION), "white")
    pen, font = ImageDraw.Draw(card), ImageFont.load_default(12)
    pen.text((2, 3), name, fill=(40, 40, 40), font=font)
    if isinstance(answer, Rendering):
        card.paste(Image.fromarray(answer.image).resize((TILE, TILE), Image.Resampling.LANCZOS), (0, CAPTION - 2))
    else:
        pen.rectangle((0, CAPTION - 2, TILE, TILE + CAPTION - 3), fill=(232, 232, 232))
        pen.text((10, 40), textwrap.fill(answer.reason, 24), fill=(90, 90, 90), font=font)
    return card


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--renderer", default="paste")
    chosen = parser.parse_args()
    for name, (recipe, scene_id, columns) in STRIPS.items():
        strip(recipe, scene_id, columns, chosen.renderer).save(HERE / f"edits-{name}.jpg", quality=86)


if __name__ == "__main__":
    main()
