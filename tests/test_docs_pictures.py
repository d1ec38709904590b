"""Every picture of the documentation is shown, is made by a script, and `make pictures` runs every script."""

from __future__ import annotations

import re
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
PICTURES = {path.name for path in FOLDER.iterdir() if path.suffix in (".jpg", ".png", ".gif", ".svg")}
SCRIPTS = {path.stem.removeprefix("make_"): path.read_text(encoding="utf-8") for path in FOLDER.glob("make_*.py")}


def test_every_picture_is_shown_and_every_shown_picture_is_there() -> None:
    pages = [page.read_text("utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    shown = {name for page in pages for name in re.findall(r"\]\((?:docs/)?pictures/([\w.-]+)\)", page)}
    assert shown == PICTURES


def test_every_picture_has_a_script_and_make_runs_it() -> None:
    texts = "\n".join(SCRIPTS.values())
    strips = re.findall(r'"([\w-]+)": \("', SCRIPTS["edits"])  # written as edits-NAME.jpg
    made = {*re.findall(r'"([\w-]+\.(?:jpg|png|gif))"', texts), *(f"edits-{name}.jpg" for name in strips)}
    assert made >= PICTURES
    target = (ROOT / "Makefile").read_text("utf-8").split("\npictures:")[1].split("\n\n")[0]
    assert set(SCRIPTS) <= set(re.findall(r"\w+", target))


def test_the_moving_picture_is_short_and_small() -> None:
    assert (FOLDER / "readme-film.gif").stat().st_size < 3_000_000
    assert sum((FOLDER / name).stat().st_size for name in PICTURES) < 8_000_000
    with Image.open(FOLDER / "readme-film.gif") as film:
        assert film.width >= 700 and 15 <= film.n_frames <= 60
        assert "readme-film.gif" in (ROOT / "README.md").read_text("utf-8")[:300], "it is the first thing to see"
