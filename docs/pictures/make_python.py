"""The picture of docs/python.md and the README: a photograph beside the result of one line of Python.

python docs/pictures/make_python.py
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image

import unswayed

SIDE = 256


def main() -> None:
    scene = unswayed.open_source("sample")["dog"]
    result = unswayed.edit(scene, size=0.05, background="random", seed=3, renderer="paste")
    before = Image.fromarray(unswayed.frame(scene).image).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    sheet = Image.new("RGB", (2 * SIDE + 8, SIDE), "white")
    sheet.paste(before, (0, 0))
    sheet.paste(result.image, (SIDE + 8, 0))
    sheet.save(Path(__file__).with_name("python-edit.jpg"), quality=90)


if __name__ == "__main__":
    main()
