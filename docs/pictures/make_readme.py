"""The README's picture: one photograph under every edit, from a benchmark that `unswayed demo` built.

python docs/pictures/make_readme.py demo/benchmark koala
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

EDITS = (
    "original", "inversion", "background-simple", "background-complex", "background-adversarial", "background-random",
    "reinsertion", "size-full", "size-0.1", "size-0.05", "position", "direction", "direction-small",
)  # fmt: skip


def main(benchmark: str, scene: str) -> None:
    found = [edit for edit in EDITS if (Path(benchmark) / "images" / edit / f"{scene}.png").exists()]
    columns, side, line = 6, 200, 22
    rows = -(-len(found[:12]) // columns)
    sheet = Image.new("RGB", (columns * (side + 4) - 4, rows * (side + line)), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(13)
    for number, edit in enumerate(found[:12]):
        left, top = number % columns * (side + 4), number // columns * (side + line)
        picture = Image.open(Path(benchmark) / "images" / edit / f"{scene}.png")
        sheet.paste(picture.resize((side, side), Image.Resampling.LANCZOS), (left, top + line))
        draw.text((left + 2, top + 3), edit, fill="black", font=font)
    sheet.save(Path(__file__).with_name("readme-strip.jpg"), quality=88)


if __name__ == "__main__":
    main(*sys.argv[1:3])
