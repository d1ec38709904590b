"""A user's own case: twelve classes with masks, a small module of their own; build, evaluate, look.

The photographs are crops of the sample's; the module compares a picture with a small template of each class.
"""

from __future__ import annotations

import csv
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import unswayed
from command_line import run_cli
from unswayed.benchmark import BuildSettings, build
from unswayed.evaluation import EvaluateSettings, cards, run_evaluation

SAMPLE = resources.files("unswayed.data") / "sample"
CROPS = (0, 3, 6, 9)
MODEL = '''
import json
from pathlib import Path
import torch
from torch import nn
from unswayed.models import Classifier, Transform

HERE = Path(__file__).parent


class Nearest(nn.Module):
    """Minus the distance to each class's template, an 8 x 8 picture."""

    def __init__(self, templates):
        super().__init__()
        self.templates = nn.Parameter(templates)

    def forward(self, x):
        small = nn.functional.adaptive_avg_pool2d(x, 8).flatten(1)
        return -10 * torch.cdist(small, self.templates)


def build(order="names.json"):
    templates = torch.load(HERE / "templates.pt")
    labels = json.loads((HERE / order).read_text())
    return Classifier(Nearest(templates), Transform(72, 64, mean=(0.5,) * 3, std=(0.5,) * 3), labels)


def wrong_order():
    return build("wrong.json")
'''


def photographs(root: Path) -> list[str]:
    """`root/<class>/<number>.png` with masks beside them: four crops of each of twelve photographs."""
    with (SAMPLE / "CREDITS.csv").open(encoding="utf-8") as file:
        names = [row["file"] for row in csv.DictReader(file)][:12]
    for name in names:
        image = Image.open(str(SAMPLE / f"{name}.jpg")).convert("RGB")
        mask = Image.open(str(SAMPLE / f"{name}.png")).convert("L")
        (root / name).mkdir(parents=True)
        for number, cut in enumerate(CROPS):
            box = (cut, cut, image.width - cut, image.height - cut)
            image.crop(box).resize((160, 120)).save(root / name / f"{number}.jpg", quality=95)
            mask.crop(box).resize((160, 120)).save(root / name / f"{number}_mask.png")
    return names


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photographs, a built benchmark and the user's module, whose labels are in their own order."""
    import json

    import torch

    root = tmp_path_factory.mktemp("case")
    names = photographs(root / "photos")
    built = build(
        f"folder:{root}/photos",
        root / "bench",
        BuildSettings(recipe="original,size-0.1,background-random", renderer="paste", size=96),
    )
    assert built.counts["failed"] == 0
    order = [names[(5 * index) % 12] for index in range(12)]
    pool = torch.nn.AdaptiveAvgPool2d(8)
    templates = []
    for name in order:
        files = sorted((root / "bench/images/original").glob(f"{name}*.png"))
        assert len(files) == len(CROPS)
        pictures = [np.asarray(Image.open(file).convert("RGB").resize((72, 72)))[4:68, 4:68] for file in files]
        batch = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
        templates.append(pool((batch - 0.5) / 0.5).flatten(1).mean(0))
    torch.save(torch.stack(templates), root / "templates.pt")
    (root / "mine.py").write_text(MODEL)
    (root / "names.json").write_text(json.dumps([name.upper() for name in order]))
    (root / "wrong.json").write_text(json.dumps(sorted(order)))
    return root


def test_labels_are_matched_by_name(case: Path) -> None:
    spec = f"python:{case}/mine.py:build"
    frame = unswayed.evaluate(case / "bench", spec, case / "predictions", EvaluateSettings(device="cpu"))
    assert frame.filter(edit="original")["correct"].mean() > 0.9
    assert set(frame["edit"]) >= {"original", "size-0.1", "background-random"}
    # A template of the whole picture lives on the background, and falls with it.
    assert frame.filter(edit="background-random")["correct"].mean() < 0.6
    assert frame.filter(edit="original")["object_survives"].is_between(0.3, 1).all()
    drops = unswayed.dropped_accuracy(case / "predictions").filter(edit="background-random")
    assert drops["n"][0] == 48
    assert drops["low"][0] > 20
    (card,) = cards(case / "predictions").values()
    assert (card["mapping"]["kind"], card["warnings"]) == ("names", [])


def test_a_wrong_label_order_is_detected_and_named(case: Path) -> None:
    spec = f"python:{case}/mine.py:wrong_order"
    done = run_evaluation(case / "bench", [spec], case / "wrong", EvaluateSettings(device="cpu"))
    (warning,) = done.warnings[spec]
    assert "suspected: the label order" in warning
    assert "means" in warning
    assert "would be 9" in warning or "would be 100" in warning


def test_the_command_says_so_too(case: Path) -> None:
    models = ["-m", f"python:{case}/mine.py:build", "-m", f"python:{case}/mine.py:wrong_order"]
    arguments = ["evaluate", str(case / "bench"), *models, "-o", str(case / "both"), "--device", "cpu"]
    told = run_cli(*arguments)
    assert "originals" in told.stdout
    assert "suspected: the label order" in told.stderr


def test_the_benchmark_is_verified_when_asked(case: Path, tmp_path: Path) -> None:
    import shutil

    from unswayed.errors import UserError

    shutil.copytree(case / "bench", tmp_path / "bench")
    spec = f"python:{case}/mine.py:build"
    assert run_evaluation(
        tmp_path / "bench", [spec], tmp_path / "out", EvaluateSettings(device="cpu", verify=True)
    ).scored == (spec,)
    victim = next((tmp_path / "bench/images/size-0.1").glob("*.png"))
    Image.new("RGB", (96, 96)).save(victim)
    with pytest.raises(UserError, match="fails verification"):
        run_evaluation(tmp_path / "bench", [spec], tmp_path / "out", EvaluateSettings(device="cpu", verify=True))
