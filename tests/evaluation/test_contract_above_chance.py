"""Faults of models that are better than chance: outputs that are no logits, exchanged classes, a wrong transform."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from torch import nn

from color_world import CLASSES, coloured
from unswayed.analyses.drops.gate import check
from unswayed.errors import UserError
from unswayed.evaluation import EvaluateSettings, cards, read_predictions, run_evaluation
from unswayed.evaluation.contract import suspect_exchange
from unswayed.labels import imagenet, own
from unswayed.models import Classifier
from unswayed.models.opening import brings_transform
from unswayed.models.transforms import Transform, transform_from
from unswayed.sources import open_source
from unswayed.views.report.drop_tables import remark_lines

CPU = EvaluateSettings(device="cpu")


@pytest.fixture(scope="module")
def scored(benchmark: Path, own_models: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Predictions of models whose outputs are and are not logits."""
    out = tmp_path_factory.mktemp("scored")
    names = ("good", "soft", "soft_half", "soft_stated", "sigmoid", "constant")
    run_evaluation(benchmark, [f"{name}={own_models}{name}" for name in names], out, CPU)
    return out


def test_a_softmax_or_a_sigmoid_inside_the_model_is_remarked(scored: Path) -> None:
    remarks = {name: card["remarks"] for name, card in cards(scored).items()}
    for name in ("soft", "soft_half"):
        (remark,) = remarks[name]
        assert "sum to 1 for each picture" in remark and "LogProbabilities" in remark
    assert "as those of sigmoids" in remarks["sigmoid"][0]
    assert remarks["good"] == remarks["soft_stated"] == remarks["constant"] == []


def test_a_remark_is_repeated_and_does_not_stop_the_gate(scored: Path) -> None:
    assert "seems to end in a softmax" in " ".join(remark_lines(scored, ["soft"]))
    assert cards(scored)["soft"]["suspicion"] is None
    assert "softmax" in " ".join(cards(scored)["soft"]["warnings"])
    found = check(scored, models=["soft"], max_drop={"dark": 60})
    assert found.checks["verdict"].to_list() == ["pass"]
    assert "seems to end in a softmax" in " ".join(found.remarks)


class Wider(nn.Module):
    """The mean colors and one more class, whose logit is the same for every picture."""

    def __init__(self, background: float) -> None:
        super().__init__()
        self.background = nn.Parameter(torch.tensor([background]))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.cat([20 * pixels.mean((2, 3)), self.background.expand(len(pixels), 1)], 1)


@pytest.mark.parametrize(("background", "outside", "verdict"), [(0.0, 0, "pass"), (100.0, 6, "not measured")])
def test_answers_outside_the_benchmarks_classes_are_counted(
    background: float, outside: int, verdict: str, tmp_path: Path
) -> None:
    for name in ("red", "green", "blue"):
        _write(tmp_path, name, 2)
    plain = Transform(32, 28, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    model = Classifier(Wider(background), plain, own(["red", "green", "blue", "background"]), "m")
    run_evaluation(f"images:{tmp_path}/pictures", [model], tmp_path / "p", CPU)
    said = f"scored over 3 of its 4 classes, those of the pictures; for {outside} of 6 originals it prefers"
    found = check(tmp_path / "p", min_accuracy={"original": 30})
    assert found.verdict == verdict
    assert said in " ".join([*found.remarks, *found.checks["reason"].to_list()])
    assert said in " ".join(remark_lines(tmp_path / "p"))


def test_stated_probabilities_are_those_of_the_logits(scored: Path) -> None:
    frame = read_predictions(scored).sort("sample_id")
    good, stated, soft = (frame.filter(pl.col("model") == name) for name in ("good", "soft_stated", "soft"))
    assert stated["probability"].to_list() == pytest.approx(good["probability"].to_list(), abs=1e-5)
    assert soft["probability"].max() < 0.5 < good["probability"].max()


def _write(root: Path, name: str, count: int) -> None:
    (root / "pictures" / name).mkdir(parents=True)
    for number in range(count):
        Image.fromarray(coloured(CLASSES.index(name), number)).save(root / "pictures" / name / f"{number}.png")


def test_a_softmax_with_groups_is_suspicious(own_models: str, tmp_path: Path) -> None:
    """The probabilities of a group's classes are added, so the predicted classes depend on what the outputs are."""
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps({"red": ["crimson", "scarlet"]}))
    for name in ("red", "green", "grey"):
        _write(tmp_path, name, 2)
    settings = EvaluateSettings(device="cpu", groups=groups)
    run_evaluation(f"images:{tmp_path}/pictures", [f"m={own_models}soft_shades"], tmp_path / "p", settings)
    assert "seems to end in a softmax" in cards(tmp_path / "p")["m"]["suspicion"]
    assert cards(tmp_path / "p")["m"]["remarks"] == []


def test_two_exchanged_classes_among_many_are_named() -> None:
    space = own([f"breed {index}" for index in range(37)])
    labels = np.repeat(np.arange(37), 20)
    rng = np.random.default_rng(0)
    answers = np.where(rng.random(len(labels)) < 0.15, rng.integers(0, 37, len(labels)), labels)
    assert suspect_exchange("m", space, labels, answers) is None
    swapped = np.arange(37)
    swapped[[3, 4]] = [4, 3]
    found = suspect_exchange("m", space, labels, swapped[answers])
    assert found is not None
    right = int((answers == labels)[np.isin(labels, (3, 4))].sum())
    assert f"'breed 3' and 'breed 4' look exchanged: {right} of 40 photographs of them" in found
    assert f"accuracy would be {(answers == labels).mean():.1%}" in found


def test_a_class_that_is_always_mistaken_for_another_is_not_called_exchanged() -> None:
    labels = np.repeat([0, 1], [100, 5])
    assert suspect_exchange("m", own(["cat", "dog"]), labels, np.ones_like(labels)) is None


def test_random_answers_of_a_thousand_classes_are_not_called_exchanged() -> None:
    labels = np.repeat(np.arange(1000), 50)
    answers = np.random.default_rng(0).integers(0, 1000, len(labels))
    assert suspect_exchange("m", imagenet(), labels, answers) is None


def test_exchanged_classes_are_found_on_all_originals(own_models: str, tmp_path: Path) -> None:
    """Too few for the check before the evaluation, which looks at 64 of them."""
    for name, count in {"red": 90, "grey": 90, "green": 8, "blue": 8}.items():
        _write(tmp_path, name, count)
    specs = [f"{name}={own_models}{name}" for name in ("exchanged", "good")]
    done = run_evaluation(f"images:{tmp_path}/pictures", specs, tmp_path / "p", CPU)
    assert "'blue' and 'green' look exchanged: 16 of 16 photographs" in " ".join(done.warnings["exchanged"])
    assert "accuracy would be 100.0%" in cards(tmp_path / "p")["exchanged"]["suspicion"]
    assert done.warnings["good"] == []


LITE = """
from dataclasses import replace
from unswayed.models import open_model

def with_transform(**changed):
    model = open_model("lite:0", device="cpu")
    return replace(model, transform=replace(model.transform, **changed))

def right(): return with_transform()
def small(): return with_transform(resize=56, crop=56)
def small_and_checked(): return with_transform(resize=56, crop=56, checked=True)
def flat(): return with_transform(std=(12.0,) * 3)
"""


def test_a_transform_that_costs_accuracy_is_named_unless_it_is_stated_to_be_right(tmp_path: Path) -> None:
    """EfficientNet-Lite0 on the sample's photographs; each wrong transform leaves it far above chance."""
    for scene in open_source("sample"):
        assert scene.label is not None
        folder = tmp_path / "pictures" / imagenet().wnids[scene.label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scene.image).save(folder / f"{scene.id}.png")
    (tmp_path / "mine.py").write_text(LITE)
    names = ("right", "small", "small_and_checked", "flat")
    specs = [f"{name}=python:{tmp_path}/mine.py:{name}" for name in names]
    run_evaluation(f"images:{tmp_path}/pictures", specs, tmp_path / "p", CPU)
    found = {name: card["suspicion"] for name, card in cards(tmp_path / "p").items()}
    assert found["right"] is found["small_and_checked"] is None
    assert "suspected: the transform. With resize 256 and crop 224 accuracy on 20 of them would be" in found["small"]
    assert "suspected: the transform. With " in found["flat"] and "state `checked` in it" in found["flat"]


def test_a_transform_is_stated_to_be_right_in_python_in_json_and_as_an_option() -> None:
    stated = Transform(checked=True)
    assert Transform.from_json(stated.to_json()) == stated == transform_from({"checked": "yes"}, Transform())
    assert "checked" not in Transform().to_json()
    with pytest.raises(UserError, match="checked is 'maybe'"):
        transform_from({"checked": "maybe"}, Transform())


@pytest.mark.parametrize(
    ("name", "brought"),
    [
        ("lite:0", True),
        ("prod=timm:resnet50", True),
        ("timm:resnet50?checkpoint=w.pt", False),
        ("torchvision:resnet50?crop=64", False),
        ("onnx:model.onnx", False),
        ("own", False),
    ],
)
def test_models_that_come_with_their_transform(name: str, brought: bool) -> None:
    assert brings_transform(name) is brought
