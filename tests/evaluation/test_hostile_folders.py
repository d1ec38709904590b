"""Folders of pictures with what is no picture: links to nowhere or in a circle, pipes, folders, damaged files."""

from __future__ import annotations

import os
from pathlib import Path

from PIL import Image

from command_line import run_cli
from unswayed.evaluation import cards


def test_what_is_no_picture_is_recorded_and_the_rest_is_evaluated(own_models: str, tmp_path: Path) -> None:
    folder = tmp_path / "photographs" / "red"
    folder.mkdir(parents=True)
    (folder.parent / "green").mkdir()
    for number in range(4):
        Image.new("RGB", (40, 40), (200, 20, 20)).save(folder / f"{number}.png")
        Image.new("RGB", (40, 40), (20, 200, 20)).save(folder.parent / "green" / f"{number}.png")
    # Before, a name that is no text ended the run with a traceback.
    Image.new("RGB", (40, 40), (200, 20, 20)).save(folder / os.fsdecode(b"a\xff\xfe.png"))
    (folder / os.fsdecode(b"b\xff.png")).write_bytes(b"no picture")
    os.symlink("/nonexistent", folder / "nowhere.png")
    os.symlink("circle.png", folder / "circle.png")
    os.symlink("/dev/zero", folder / "device.png")
    os.mkfifo(folder / "pipe.png")
    (folder / "folder.png").mkdir()
    (folder / "empty.png").write_bytes(b"")
    spec = f"{own_models}good"
    done = run_cli("evaluate", f"images:{folder.parent}", "-m", spec, "-o", tmp_path / "out", "--device", "cpu", code=0)
    [card] = cards(tmp_path / "out").values()
    assert card["rows"] == 9
    assert {name.split("/")[0] for name in card["unreadable"]} >= {"red--nowhere", "red--circle", "red--empty"}
    assert "Traceback" not in done.output
