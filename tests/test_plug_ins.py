"""An edit and a removal method of another package: installed, they are used like the built-in ones everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EDIT = """
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from unswayed.edits import Edit
from unswayed.edits.composition import Adjustment
from unswayed.edits.edit import Change
from unswayed.edits.geometry import after, kept_inside, outline, relocated, shift
from unswayed.edits.edit import Choice, Range, parameter


@dataclass(frozen=True)
class Shake(Edit):
    name: ClassVar[str] = "hand-shake"
    axis: ClassVar[str] = "reach"
    axis_label: ClassVar[str] = "reach of the shake, share of the frame"
    description: ClassVar[str] = "how far a hand shakes the object"
    control: ClassVar[str] = "reinsertion"
    order: ClassVar[int] = 45
    changes: ClassVar[tuple] = (Change("object shaken", "reach", 0.0, 0.5),)

    reach: float = parameter(0.1, Range(0.0, 0.5, step=0.02), "largest step")
    along: str = parameter("both", Choice(("both", "x", "y")), "which way")

    @property
    def random(self):
        return True

    @property
    def needs(self):
        return ("removal",)

    def apply(self, composition, rng, pool):
        x, y = rng.uniform(-self.reach, self.reach, 2)
        step = shift(x if self.along != "y" else 0.0, y if self.along != "x" else 0.0)
        placement = kept_inside(after(step, composition.placement), outline(composition.mask), "shake")
        return relocated(composition.adjust(Adjustment(inverted, ()), "object"), placement, 0.0, shake=self.reach)

    def describe(self):
        return f"object shaken by up to {self.reach:g} of the frame"


def inverted(pixels, weight):
    return 255 - pixels, weight
"""

REMOVAL = """
from unswayed.registry import declare
from unswayed.rendering.removal import hole_of


@declare(help="fills the hole with one gray", usage="plain:VALUE")
class Plain:
    def __init__(self, detail="128"):
        self.value, self.name = int(detail), f"plain-{detail}"

    def __call__(self, image, mask, seed=0, label=None):
        filled = image.copy()
        filled[hole_of(mask)] = self.value
        return filled

"""

# One process for all commands: their imports take longer than their work.
SCRIPT = """
import contextlib, io, json, sys
from unswayed.views.cli import build_app

def unswayed(*arguments):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        build_app()(list(arguments), standalone_mode=False)
    return printed.getvalue()

unswayed("build", "sample", "-o", "bench", "--recipe", "hand-shake=0.05:0.3:4", "--runs", "3", "--limit", "3",
        "--renderer", "paste", "--removal", "plain:77")
unswayed("evaluate", "bench", "-m", "lite:0", "-o", "predictions")
drops = json.loads(unswayed("analyze", "predictions", "--format", "json"))
unswayed("report", "predictions", "-o", "report.html")
unswayed("edit", sys.argv[1], "--hand-shake", "0.2", "--renderer", "paste", "--removal", "plain", "-o", "shaken.png")
listed = unswayed("edits")

from unswayed.views.app.page import build_page
from unswayed.views.app.results import Results
from unswayed.views.app.studio import Studio
from unswayed.evaluation.changes import directions

page = build_page(Studio(["lite:0"]), Results("predictions"))
components = {one["props"].get("elem_id"): one for one in page.config["components"]}
shown = {name: (components[name]["type"], components[name]["props"]) for name in
         ("on-hand-shake", "hand-shake-reach", "hand-shake-along")}

import torch
from torchvision import tv_tensors
from unswayed.repair.settings import weights_of
from unswayed.transforms import BatchEdit, EditMixture, RandomEdit, Scenes

shaken = EditMixture({"hand-shake": 1.0}, probability=1.0, most=1, ranges={"hand-shake": (0.2, 0.3)})
assert EditMixture.from_json(shaken.to_json()) == shaken
images, masks, _ = zip(*(Scenes("sample", 96)[place] for place in range(3)))
images, masks = torch.stack([*images]), torch.stack([*masks])
batch, moved = BatchEdit(shaken)(images, masks)
torch.manual_seed(0)
single, mask = RandomEdit(shaken)(tv_tensors.Image(images[0][:, :80]), tv_tensors.Mask(masks[0][:80]))
trained = {
    "weights": weights_of({"hand-shake-0.1": 10.0, "size-0.05": 5.0}),
    # the object lies elsewhere and is inverted: its colors are those of a negative
    "batch": [float((after != before).float().mean()) for after, before in zip(moved, masks)],
    "inverted": [float(picture.permute(1, 2, 0)[mask > 0.99].float().mean() + image.permute(1, 2, 0)[before > 0.99]
                 .float().mean()) for picture, mask, image, before in zip(batch, moved, images, masks)],
    "single": [list(single.shape), float((mask > 0.5).float().mean()), bool((single != images[0][:, :80]).any())],
}
print(json.dumps({"drops": drops, "listed": listed, "shown": shown, "directions": list(directions()),
                  "trained": trained}, default=str))
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """The folder in which the commands ran with the package installed, and what they printed."""
    packages, folder = tmp_path_factory.mktemp("packages"), tmp_path_factory.mktemp("used")
    (packages / "shaking.py").write_text(EDIT)
    (packages / "plain_removal.py").write_text(REMOVAL)
    about = packages / "shaking-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shaking\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[unswayed.edits]\nhand-shake = shaking:Shake\n[unswayed.removals]\nplain = plain_removal:Plain\n"
    )
    from unswayed.sources import open_source

    photograph = open_source("sample").entry("dog").image
    paths = [str(packages), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(photograph)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_the_build_makes_every_run_with_the_control_and_the_removal(outside) -> None:
    import pyarrow.parquet

    folder, _ = outside
    rows = pyarrow.parquet.read_table(folder / "bench" / "manifest.parquet").to_pylist()
    shaken = [row for row in rows if row["attribute"] == "hand-shake"]
    assert {row["run"] for row in shaken} == {0, 1, 2}
    assert {row["control"] for row in shaken} == {"reinsertion"}
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["run"] for row in rows if row["edit"] == "reinsertion"} == {0}
    of_one = [row["sha256"] for row in shaken if (row["source_id"], row["level"]) == (shaken[0]["source_id"], "0.3")]
    assert len(set(of_one)) == 3
    card = json.loads((folder / "bench" / "benchmark.json").read_text())
    assert card["removal"] == {"spec": "plain:77", "name": "plain-77"}


def test_analyze_subtracts_its_control(outside) -> None:
    shaken = [row for row in outside[1]["drops"] if row["edit"].startswith("hand-shake")]
    assert len(shaken) == 4
    assert {(row["kind"], row["control"], row["runs"]) for row in shaken} == {("edit", "reinsertion", 3)}
    assert all(row["net_drop"] is not None for row in shaken)


def test_the_report_has_its_axis_label_and_its_words(outside) -> None:
    page = (outside[0] / "report.html").read_text(encoding="utf-8")
    assert "reach of the shake, share of the frame" in page
    assert "object shaken by up to 0.05 of the frame" in page


def test_the_app_has_its_switch_its_slider_and_its_list(outside) -> None:
    shown = outside[1]["shown"]
    assert shown["on-hand-shake"][1]["info"] == "how far a hand shakes the object"
    kind, slider = shown["hand-shake-reach"]
    assert (kind, slider["minimum"], slider["maximum"], slider["step"]) == ("slider", 0.0, 0.5, 0.02)
    kind, choice = shown["hand-shake-along"]
    assert kind == "dropdown"
    assert [value for _, value in choice["choices"]] == ["both", "x", "y"]
    assert "object shaken" in outside[1]["directions"]


def test_training_transforms_and_repair_draw_it(outside) -> None:
    trained = outside[1]["trained"]
    assert trained["weights"]["hand-shake"] == 1.0
    assert trained["weights"]["size"] == 0.5
    assert min(trained["batch"]) > 0.01
    assert trained["inverted"] == pytest.approx([255.0] * 3, abs=8)
    shape, rate, changed = trained["single"]
    assert shape == [3, 80, 96]
    assert rate > 0.01
    assert changed


def test_the_commands_know_both(outside) -> None:
    folder, said = outside
    assert "hand-shake: how far a hand shakes the object" in said["listed"]
    assert "removal plain:VALUE: fills the hole with one gray" in said["listed"]
    record = json.loads((folder / "shaken.json").read_text())
    assert record["request"]["chain"] == [{"edit": "hand-shake", "reach": 0.2, "along": "both"}]
