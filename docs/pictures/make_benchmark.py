"""Makes docs/pictures/benchmark-scene.jpg: one scene of a benchmark, picture over mask, a column an edit.

python docs/pictures/make_benchmark.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from PIL import Image, ImageDraw

from unswayed.benchmark import BuildSettings, build
from unswayed.benchmark.rows import read_rows

SIDE, LINE = 128, 16
SCENE = "dog"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "bench"
        build("sample", root, BuildSettings(renderer="paste", seed=7))
        rows = [row for row in read_rows(root, SCENE) if row.status == "ok" and row.mask_path is not None]
        sheet = Image.new("RGB", (len(rows) * (SIDE + 4) - 4, 2 * SIDE + 2 * LINE), "white")
        draw = ImageDraw.Draw(sheet)
        for column, row in enumerate(rows):
            left = column * (SIDE + 4)
            draw.text((left, 2), row.edit, fill="black")
            for line, path in enumerate((row.path, row.mask_path)):
                picture = Image.open(root / path).convert("RGB").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
                sheet.paste(picture, (left, LINE + line * SIDE))
            draw.text((left, LINE + 2 * SIDE + 2), f"covers {row.pixel_rate:.3f}", fill="black")
        sheet.save(Path(__file__).with_name("benchmark-scene.jpg"), quality=88)


if __name__ == "__main__":
    main()
