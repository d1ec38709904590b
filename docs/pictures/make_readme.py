"""The README's strip: one photograph under several edits, with a model's answer on each, from what `make demo` made.

python docs/pictures/make_readme.py demo dragon lite-0
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as parquet
from PIL import Image, ImageDraw, ImageFont

from unswayed.labels import imagenet

EDITS = {
    "original": "as it was", "background-simple": "simple background", "background-complex": "complex background",
    "background-random": "other background", "size-0.1": "10 % of the picture", "size-0.05": "5 % of the picture",
    "position": "moved", "direction-small": "small and turned",
}  # fmt: skip
RIGHT, WRONG = (24, 120, 60), (176, 36, 24)
SIDE, LINE, GAP, COLUMNS = 256, 24, 6, 4


def main(demo: str, scene: str, model: str) -> None:
    table = parquet.read_table(Path(demo) / "predictions" / f"{model}.parquet").to_pylist()
    answers = {row["edit"]: row for row in table if row["source_id"] == scene and row["run"] == 0}
    names = imagenet().classes
    shown = [edit for edit in EDITS if edit in answers]
    rows = -(-len(shown) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (SIDE + GAP) - GAP, rows * (SIDE + 2 * LINE + GAP) - GAP), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    for number, edit in enumerate(shown):
        left, top = number % COLUMNS * (SIDE + GAP), number // COLUMNS * (SIDE + 2 * LINE + GAP)
        row = answers[edit]
        draw.text((left + 2, top + 3), EDITS[edit], fill="black", font=font)
        sheet.paste(Image.open(Path(demo) / "benchmark" / "images" / edit / f"{scene}.png"), (left, top + LINE))
        color, bottom = RIGHT if row["correct"] else WRONG, top + LINE + SIDE
        draw.rectangle((left, bottom, left + SIDE - 1, bottom + LINE - 1), fill=color)
        answer = f"{names[row['predicted']].split(',')[0]}, {100 * row['probability']:.0f} %"
        draw.text((left + 6, bottom + 3), answer, fill="white", font=font)
    sheet.save(Path(__file__).with_name("readme-strip.jpg"), quality=88)


if __name__ == "__main__":
    main(*sys.argv[1:4])
