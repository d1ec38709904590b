"""Every command of docs/reproduce.md runs, on miniature data in the official layouts.

The page has one `## PAPER` section per paper. Each section sets shell variables in an `export NAME=value` block and
then uses them in its commands: every inline code span that starts with `unswayed ` is a command. The commands of one
section run in the order of the page, in one working folder, in this process.

To add a paper, write a function `(folder) -> variables` that writes the miniature layouts below `folder` and returns a
value for every variable that the section exports, and enter it in `PAPERS` under the section's heading. `SHORTER` lists
settings of the page that only cost time; the tests run the commands with the second value instead of the first.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import run_cli
from paper_layouts import imagenet_x, rival10
from unswayed.benchmark.importing import OFFICIAL
from unswayed.labels import imagenet
from unswayed.sources import open_source
from unswayed.sources.imagenet_s import subset_classes

DATA = Path(__file__).parent / "data"
PAGE = Path(__file__).parent.parent / "docs" / "reproduce.md"
SHORTER: dict[str, str] = {
    "--norm both": "--norm linf --levels 210 --resamples 20",
    "--steps 100": "--steps 3",
    "--pixels 256": "--pixels 64",
    "--epochs 30": "--epochs 1",
}
# Two photographs cannot show that a repair helps.
VERDICTS = {"repair": 3}


def sections() -> dict[str, str]:
    """The text of each section of the page, by its heading."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(text: str) -> list[str]:
    """Every command of a section, in order."""
    return re.findall(r"`(unswayed [^`]+)`", text)


def imagenet_e(folder: Path) -> dict[str, str]:
    """ImageNet-S with two photographs, the official ImageNet-E release made of them, and ImageNet-C's layout."""
    scenes = [scene for scene in open_source("sample") if scene.label is not None][:2]
    root, release = folder / "ImageNetS919", folder / "ImageNet-E"
    classes, lines = subset_classes("919"), []
    for number, scene in enumerate(scenes, start=1):
        wnid, stem = imagenet().wnids[scene.label], f"ILSVRC2012_val_{number:08}"
        numbers = np.zeros((*scene.mask.shape, 3), np.uint8)
        numbers[scene.mask > 0.5] = (*divmod(classes.index(wnid) + 1, 256)[::-1], 0)
        for place in (root / "validation" / wnid, root / "validation-segmentation" / wnid):
            place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scene.image).save(root / "validation" / wnid / f"{stem}.JPEG")
        Image.fromarray(numbers).save(root / "validation-segmentation" / wnid / f"{stem}.png")
        for edit in OFFICIAL:
            (release / edit).mkdir(parents=True, exist_ok=True)
            suffix = "JPEG" if edit in ("ori", "full") else "png"
            Image.fromarray(scene.image).resize((256, 256)).save(release / edit / f"{stem}.{suffix}")
        lines.append(f"{stem}.JPEG\t{scene.label}\n")
    (release / "labels.txt").write_text("".join(lines))
    for severity, scene in itertools.product("15", scenes):
        place = folder / "c" / "fog" / severity / imagenet().wnids[scene.label]
        place.mkdir(parents=True)
        Image.fromarray(scene.image).save(place / "ILSVRC2012_val_00000001.JPEG")
    (folder / "models.csv").write_text("model,training,budget\nresnet50,plain,0\nvit,robust,4\nclip,robust,8\n")
    # A small network of guided-diffusion's build, for pictures of 64 pixels.
    state = json.loads((DATA / "adm_mini.json").read_text())
    shutil.copy(DATA / "adm_mini_weights.safetensors", folder / "adm_weights.safetensors")
    (folder / "adm.json").write_text(json.dumps({"config": {**state["config"], "image_size": 64}}))
    return {
        "IMAGENET_S": str(root),
        "IMAGENET_E": shutil.make_archive(str(folder / "ImageNet-E"), "zip", folder, "ImageNet-E"),
        "ADM": str(folder / "adm_weights.safetensors"),
        "GUIDE": "lite:0",
        "RESNET50": "lite:0",
        "VIT": "lite:1",
        "CLIP": "lite:2",
        "MODELS": str(folder / "models.csv"),
        "IMAGENET_A": str(root / "validation"),
        "IMAGENET": str(root / "validation"),
        "IMAGENET_C": str(folder / "c"),
    }


PAPERS: dict[str, Callable[[Path], dict[str, str]]] = {
    "ImageNet-E": imagenet_e,
    "RIVAL10": rival10,
    "ImageNet-X": imagenet_x,
}


def test_every_section_has_its_miniature_data():
    assert set(PAPERS) == set(sections())
    assert all(commands(text) for text in sections().values())


@pytest.mark.parametrize("paper", PAPERS)
def test_every_command_of_the_page_runs(paper, tmp_path):
    text = sections()[paper]
    variables = PAPERS[paper](tmp_path / "data")
    assert set(re.findall(r"^export (\w+)=", text, re.MULTILINE)) == set(variables)
    (tmp_path / "work").mkdir()
    with contextlib.chdir(tmp_path / "work"), pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        for command in commands(text):
            for long, short in SHORTER.items():
                command = command.replace(long, short)
            result = run_cli(*shlex.split(os.path.expandvars(command))[1:])
            assert result.exit_code == VERDICTS.get(command.split()[1], 0), f"{command}\n{result.output}"
