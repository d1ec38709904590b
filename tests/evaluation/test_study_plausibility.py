"""A study says what `evaluate` says about a model whose labels are in another order."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

from command_line import run_cli
from unswayed.benchmark.building import build
from unswayed.benchmark.plan import BuildSettings
from unswayed.errors import UserError
from unswayed.evaluation import EvaluateSettings, run_evaluation
from unswayed.evaluation.contract import suspect_order
from unswayed.evaluation.model_cards import sentences_in
from unswayed.evaluation.study import check_plausible, run_study
from unswayed.labels import RIVAL10, LabelSpace, imagenet
from unswayed.models import open_model
from unswayed.models.label_mapping import map_labels
from unswayed.sources import open_source
from unswayed.views.report import ReportSettings
from unswayed.views.report.extras import sensitivity_section
from unswayed.views.report.findings import Findings

CODE = """
from dataclasses import replace
import torch
from unswayed.models import open_model


class Rolled(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x).roll(-1, 1)


class Noisy(Rolled):
    def forward(self, x):
        return self.inner(torch.nn.functional.dropout(x, 0.5, training=True))


def shifted():
    model = open_model("lite:0", device="cpu")
    return replace(model, module=Rolled(model.module), name="shifted")


class Ended(Rolled):
    def forward(self, x):
        return self.inner(x).softmax(1)


def soft():
    model = open_model("lite:0", device="cpu")
    return replace(model, module=Ended(model.module), name="soft")


def noisy():
    model = open_model("lite:0", device="cpu")
    return replace(model, module=Noisy(model.module), name="noisy")
"""
SETTINGS = {"levels": "60", "attributes": False, "ablation": False}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "mine.py"
    path.write_text(CODE)
    return f"python:{path}:"


def test_shifted_labels_are_said_in_the_study_in_its_table_and_in_the_report(models, tmp_path):
    out = tmp_path / "out"
    arguments = ["sensitivity", "sample", "-m", f"{models}shifted", "-m", "lite:0", "-o", out, "--limit", "8"]
    arguments += ["--levels", "60", "--no-attributes", "--no-ablation", "--resamples", "20"]
    done = run_cli(*arguments)
    assert done.exit_code == 0, done.output
    said, shown = (" ".join(text.split()) for text in (done.stderr, done.stdout))  # however their lines are broken
    assert "suspected: the label order" in said
    assert "output j means class j + 1" in said
    assert "Suspicious: " in shown and "label order" in shown
    assert len(sentences_in(out)) == 1
    rows = {"model": ["m"], "source_id": ["a"], "sample_id": ["a/original/0"], "edit": ["original"], "run": [0]}
    (tmp_path / "p").mkdir()
    pl.DataFrame({**rows, "label": [0], "predicted": [0], "probability": [0.9], "correct": [True]}).write_parquet(
        tmp_path / "p/m.parquet"
    )
    assert "label order" in str(sensitivity_section(out, Findings(tmp_path / "p", ReportSettings())).body)
    # A later run of another model into the same folder still says it, since the model stays in the tables.
    again = run_study("sample", ["other=lite:0"], out, **SETTINGS, limit=2)
    assert len(again.remarks) == 1


WRONG = {
    "the mask looks inverted in 2 of 2 scenes": lambda mask: mask < 0.5,
    "the mask may not fit the photograph in 2 of 2 scenes (in 2: it would fit mirrored)": lambda mask: (
        mask[:, ::-1] > 0.5
    ),
    "2 of 2 were made automatically with a confidence below 0.7": lambda mask: mask > 0.5,
}


@pytest.fixture(scope="module", params=WRONG)
def wrong(tmp_path_factory, request):
    """Two photographs of the sample with wrong masks, as a folder, and what is said about them."""
    root = tmp_path_factory.mktemp("wrong")
    for scene in (open_source("sample")[one] for one in ("cat", "dog")):
        place = root / imagenet().classes[scene.label]
        masks = root / "masks" / place.name
        place.mkdir()
        masks.mkdir(parents=True)
        Image.fromarray(scene.image).save(place / f"{scene.id}.jpg")
        mask = WRONG[request.param](scene.mask)
        Image.fromarray((mask * 255).astype(np.uint8)).save(masks / f"{scene.id}.png")
    if "automatically" in request.param:
        lines = [f"{path.relative_to(root)},0.5" for path in root.glob("*/*.jpg")]
        (root / "masks/confidence.csv").write_text("\n".join(["picture,confidence", *lines]))
    return f"folder:{root}", request.param


def test_wrong_masks_are_said_by_a_study(wrong, tmp_path):
    source, words = wrong
    study = run_study(source, ["lite:0"], tmp_path / "out", **SETTINGS)
    assert words in study.remarks[0]


def test_masks_that_look_wrong_are_said_by_evaluate_and_no_gate_passes_on_them(wrong, tmp_path):
    source, words = wrong
    build(source, tmp_path / "bench", BuildSettings(recipe="size=0.1", renderer="paste", quality="off"))
    done = run_evaluation(str(tmp_path / "bench"), ["lite:0"], tmp_path / "p", EvaluateSettings())
    assert "the masks may be wrong" in done.warnings["lite:0"][0] and words in done.warnings["lite:0"][0]
    gate = run_cli("check", tmp_path / "p", "--min-accuracy", "10")
    assert gate.exit_code == 3 and "the masks may be wrong" in " ".join(gate.output.split()), gate.output


def test_automatic_masks_that_seem_good_are_a_remark_of_every_table(tmp_path):
    folder = tmp_path / "photos"
    for scene in (open_source("sample")[one] for one in ("cat", "dog")):
        place = imagenet().classes[scene.label]
        for kind, suffix, pixels in (
            (place, ".jpg", scene.image),
            (f"masks/{place}", ".png", 255 * (scene.mask > 0.5)),
        ):
            (folder / kind).mkdir(parents=True)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / kind / f"{scene.id}{suffix}")
    lines = [f"{path.relative_to(folder)},0.9" for path in folder.glob("*/*.jpg")]
    (folder / "masks/confidence.csv").write_text("\n".join(["picture,confidence", *lines]))
    build(f"folder:{folder}", tmp_path / "bench", BuildSettings(recipe="size=0.1", renderer="paste", quality="off"))
    run_evaluation(str(tmp_path / "bench"), ["lite:0"], tmp_path / "p", EvaluateSettings())
    for arguments in (["analyze", str(tmp_path / "p")], ["check", str(tmp_path / "p"), "--min-accuracy", "10"]):
        output = " ".join(run_cli(*arguments).output.split())
        assert "2 of 2 masks were made automatically" in output, output


def test_a_softmax_inside_the_model_is_said_by_a_study(models, tmp_path):
    study = run_study("sample", [f"{models}soft"], tmp_path, **SETTINGS, limit=2)
    assert "seems to end in a softmax" in study.remarks[0] and "iRFS are wrong" in study.remarks[0]


class Wider(torch.nn.Module):
    """The network and one more class, whose logit is the same for every picture."""

    def __init__(self, inner, logit):
        super().__init__()
        self.inner, self.logit = inner, logit

    def forward(self, x):
        return torch.nn.functional.pad(self.inner(x), (0, 1), value=self.logit)


@pytest.mark.parametrize(("logit", "start", "count"), [(-100.0, "Note: wide", 0), (100.0, "Suspicious: wide", 4)])
def test_answers_of_other_classes_are_counted_as_by_evaluate(logit, start, count, tmp_path):
    model = open_model("lite:0", device="cpu")
    labels = LabelSpace("wide", (*imagenet().classes, "background"), (*imagenet().wnids, "n00000000"))
    wide = replace(model, module=Wider(model.module, logit), labels=labels, name="wide")
    check_plausible(wide, open_source("sample").select(4), tmp_path)
    (sentence,) = sentences_in(tmp_path)
    assert sentence.startswith(start) and "is scored over 1000 of its 1001 classes" in sentence
    assert f"for {count} of 4 originals it prefers one of the others" in sentence


def test_a_model_that_is_not_reproducible_is_refused(models, tmp_path):
    with pytest.raises(UserError, match="different logits for the same pictures"):
        run_study("sample", [f"{models}noisy"], tmp_path, **SETTINGS, limit=2)


def test_a_benchmark_is_checked_on_its_originals(models, tmp_path):
    settings = BuildSettings(recipe="size=0.1", renderer="paste", limit=6, quality="off")
    build("sample", tmp_path / "bench", settings)
    study = run_study(str(tmp_path / "bench"), [f"{models}shifted"], tmp_path / "out", **SETTINGS)
    assert "label order" in study.remarks[0]


def test_a_shift_is_found_where_a_class_has_several_outputs():
    """RIVAL10's classes are two ImageNet classes each; the outputs of the model are shifted by one."""
    space, target = imagenet(), LabelSpace("rival10", tuple(RIVAL10))
    labels = np.tile(np.arange(10), 3)
    mapping = map_labels(space, target, labels)
    right = np.array([mapping.members[label][place % 2] for place, label in enumerate(labels)])
    assert suspect_order(space, mapping, right, labels) is None
    found = suspect_order(space, mapping, right - 1, labels)
    assert found is not None
    assert "output j means class j + 1" in found.explanation
