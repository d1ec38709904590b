"""The recipes of docs/gate.md, line by line: green for a good model, red for a worse one, and cannot tell with few
photographs, with the number that would tell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from PIL import Image, ImageDraw
from test_action import INPUTS, STEPS, Job

PAGE = (Path(__file__).parents[3] / "docs" / "gate.md").read_text(encoding="utf-8")
MODEL = '''
import torch
from torch import nn
from unswayed.models import Classifier, Transform

class Color(nn.Module):
    """Answers by the strongest color anywhere in the picture, or by the mean color, which small objects hardly move."""
    def __init__(self, mean):
        super().__init__()
        self.mean, self.scale = mean, nn.Parameter(torch.tensor(20.0))

    def forward(self, x):
        color = x - x.mean(1, keepdim=True)
        return self.scale * (color.mean((2, 3)).round(decimals=1) if self.mean else color.amax((2, 3)))

def load():
    plain = Transform(96, 96, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    return Classifier(Color({mean}), plain, labels=["red", "green", "blue"])
'''

LIMITS = {("drop", "size-0.05"), ("drop", "background-random"), ("drop", "position"), ("accuracy", "original")}
MORE = r"about [\d,]+ more photographs would decide"
COLORS = {"red": (230, 20, 20), "green": (20, 230, 20), "blue": (20, 20, 230)}


def block(language: str, words: str) -> str:
    """The one block of code of the page that holds these words."""
    (found,) = (text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if words in text)
    return found


def project(folder: Path, photographs: int, mean: bool) -> Job:
    """A repository with photographs, a model, the limits of the page, and `unswayed` on the path."""
    job = Job(folder)
    rng = np.random.default_rng(0)
    for index in range(photographs):
        kind = list(COLORS)[index % 3]
        picture = Image.fromarray(np.repeat(rng.integers(90, 130, (96, 96, 1), dtype=np.uint8), 3, axis=2))
        mask = Image.new("L", picture.size)
        center, radius = rng.integers(40, 56, 2), rng.integers(20, 28)
        box = [*(center - radius).tolist(), *(center + radius).tolist()]
        ImageDraw.Draw(picture).ellipse(box, fill=COLORS[kind])
        ImageDraw.Draw(mask).ellipse(box, fill=255)
        for place, made in (("photos", picture), ("photos/masks", mask)):
            path = folder / place / kind / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            made.save(path)
    (folder / "model.py").write_text(MODEL.replace("{mean}", str(mean)))
    (folder / "gate.toml").write_text(block("toml", "[max-drop]"))
    return job


def gitlab(job: Job, branch: str = "feature") -> subprocess.CompletedProcess[str]:
    """The script of the page's job as a runner executes it: its lines in one shell that stops at the first failure."""
    script = yaml.safe_load(block("yaml", "image: python"))["robustness"]["script"]
    assert script[1] == "pip install unswayed"
    environment = {**job.environment, "CI_COMMIT_BRANCH": branch, "CI_DEFAULT_BRANCH": "main", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", "\n".join(script[2:])],
        cwd=job.folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    job = project(tmp_path_factory.mktemp("good") / "job", 90, mean=False)
    return job, gitlab(job, "main")


@pytest.fixture(scope="module")
def worse(tmp_path_factory, good):
    job = project(tmp_path_factory.mktemp("worse") / "job", 90, mean=True)
    (job.folder / "bench").symlink_to(good[0].folder / "bench")  # from the cache
    (job.folder / "baseline").symlink_to(good[0].folder / "baseline")
    return job, gitlab(job)


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    job = project(tmp_path_factory.mktemp("few") / "job", 9, mean=False)
    return job, gitlab(job)


def checked(job: Job, where: str) -> set[tuple[str, str]]:
    """The checks of a JUnit file, as (measure, edit)."""
    named = (case.get("name", "").split(": ") for case in ElementTree.parse(job.folder / where).iter("testcase"))
    return {(measure, edit) for edit, measure in named}


def test_gitlab_is_green_for_a_good_model(good):
    job, done = good
    assert done.returncode == 0, done.stdout + done.stderr
    assert "unswayed check: pass" in done.stdout
    assert (job.folder / "baseline").is_dir()
    assert checked(job, "check.xml") == LIMITS


def test_gitlab_is_red_for_a_worse_model(worse):
    job, done = worse
    assert done.returncode == 1, done.stdout + done.stderr
    assert "unswayed check: fail" in done.stdout
    assert "fail" in (job.folder / "check.md").read_text()
    compared = checked(job, "check.xml") - LIMITS
    assert {edit for measure, edit in compared if measure == "accuracy lost"} >= {"original", "size-0.05", "position"}


def test_gitlab_cannot_tell_with_few_photographs_and_says_how_many_would(few):
    job, done = few
    assert done.returncode == 3, done.stdout + done.stderr
    assert re.search(f"unswayed check: cannot tell; {MORE}", done.stdout)
    assert re.search(MORE, (job.folder / "check.xml").read_text())
    assert yaml.safe_load(block("yaml", "image: python"))["robustness"]["allow_failure"]["exit_codes"] == 3


@pytest.mark.parametrize(("name", "code", "words"), [("good", 0, "3 passed"), ("worse", 1, "failed"), ("few", 0, MORE)])
def test_pytest_recipe(request, name, code, words):
    job, _ = request.getfixturevalue(name)
    (job.folder / "test_gate.py").write_text(block("python", "def test_small_objects"))
    assert "pytest --unswayed-predictions predictions" in PAGE
    installed = "unswayed" in entry_points(group="pytest11").names
    plugin = ["-p", "no:cacheprovider", *([] if installed else ["-p", "unswayed.views.pytest_plugin"])]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "test_gate.py", *plugin, "--unswayed-predictions", "predictions"],
        cwd=job.folder, env=job.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    assert re.search(words, done.stdout), done.stdout


def inputs() -> dict[str, str]:
    """The inputs that the page gives the action."""
    steps = yaml.safe_load(block("yaml", "runs-on"))["jobs"]["gate"]["steps"]
    given = {key.replace("-", "_"): str(value) for key, value in steps[1]["with"].items()}
    assert {key.replace("_", "-") for key in given} <= set(INPUTS)
    return given


@pytest.mark.parametrize(("name", "code", "words"), [("good", 0, "✅"), ("worse", 1, "❌")])
def test_action_recipe(request, name, code, words):
    """The step that checks, with the inputs of the page and the predictions of the models."""
    job, _ = request.getfixturevalue(name)
    (job.folder / ".unswayed").mkdir()
    for folder in ("predictions", "baseline"):
        (job.folder / ".unswayed" / folder).symlink_to(job.folder / folder)
    done = job.step("Check", **inputs())
    assert done.returncode == code, done.stdout + done.stderr
    assert words in job.summary()
    lost = {edit for measure, edit in checked(job, ".unswayed/check.xml") - LIMITS if measure == "accuracy lost"}
    assert "position" in lost


def test_every_step_of_the_action_runs_and_few_photographs_are_a_warning_with_the_number_that_would_tell(tmp_path):
    job = project(tmp_path / "job", 9, mean=False)
    for name in [name for name in STEPS if not name.startswith("Install")]:
        done = job.step(name, **inputs())
        assert done.returncode == 0, f"{name}\n{done.stdout}\n{done.stderr}"
        assert name != "Check" or "::warning::unswayed: cannot tell" in done.stdout
    assert re.search(MORE, job.summary())
    assert checked(job, ".unswayed/check.xml") == LIMITS
    card = json.loads((job.folder / ".unswayed/benchmark/benchmark.json").read_text())
    assert card["renderer"]["renderer"] == "paste"
    assert (job.folder / ".unswayed/report.html").is_file() and (job.folder / ".unswayed/baseline").is_dir()
