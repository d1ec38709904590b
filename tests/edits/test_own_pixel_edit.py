"""The pixel edit of docs/edits.md, run as it is printed there; and sweeps over any parameter."""

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from unswayed.benchmark import Benchmark, BuildSettings, build
from unswayed.edits import EDITS
from unswayed.edits.recipes import open_recipe
from unswayed.errors import UserError
from unswayed.registry import Part
from unswayed.sources.pictures import read_mask
from unswayed.transforms import BatchEdit, EditMixture

PAGE = Path(__file__).parents[2] / "docs" / "edits.md"


@pytest.fixture
def ground_shadow(monkeypatch):
    code = re.search(r"```python\n# ground_shadow.py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    space: dict = {"__name__": "ground_shadow"}
    exec(compile(code, "ground_shadow.py", "exec"), space)
    load = EDITS.load
    monkeypatch.setitem(EDITS._own, "ground-shadow", Part("ground_shadow:GroundShadow"))
    monkeypatch.setattr(EDITS, "load", lambda name: space["GroundShadow"] if name == "ground-shadow" else load(name))
    return space["GroundShadow"]


def test_the_shadow_of_the_docs_darkens_the_ground_and_not_the_object(ground_shadow, tmp_path):
    recipe = "ground-shadow=0.4,0.8"
    build("sample", tmp_path / "b", BuildSettings(recipe=recipe, renderer="paste", limit=1, size=128))
    benchmark = Benchmark(tmp_path / "b")
    rows = {row.edit: row for _, _, row in benchmark}
    pictures = {row.edit: np.asarray(image, int) for image, _, row in benchmark}
    assert set(pictures) == {"source", "original", "ground-shadow-0.4", "ground-shadow-0.8"}
    change = pictures["original"] - pictures["ground-shadow-0.8"]
    assert change.sum(axis=(1, 2)).argmax() > 64, "the shadow lies in the lower half, where the object stands"
    inside = cv2.erode(read_mask(benchmark.root / rows["ground-shadow-0.8"].mask_path), np.ones((7, 7))) > 0.99
    assert inside.any() and (change[inside] == 0).all(), "the object itself stays as it is"
    assert change.sum() > 1.5 * (pictures["original"] - pictures["ground-shadow-0.4"]).sum() > 0


def test_an_edit_of_the_registry_can_be_trained_with_unless_it_says_otherwise(ground_shadow):
    images = torch.full((2, 3, 64, 64), 200, dtype=torch.uint8)
    masks = torch.zeros(2, 64, 64)
    masks[:, 20:40, 20:40] = 1
    edited, _ = BatchEdit(EditMixture(weights={"ground-shadow": 1.0}, probability=1.0))(images, masks)
    assert (edited != images).flatten(1).any(dim=1).all()
    assert torch.equal(edited[..., 24:36, 24:36], images[..., 24:36, 24:36]), "the object itself stays as it is"
    with pytest.raises(UserError, match="reinsertion") as refused:
        EditMixture(weights={"reinsertion": 1.0})
    assert refused.value.allowed.endswith("occlusion, fog, rain, snow, night, shadow, sun, ground-shadow")


@pytest.mark.parametrize(
    ("text", "names", "attribute", "levels"),
    [
        ("color(saturation=0,0.5,1)", ["-0", "-0.5", "-1"], "color-saturation", [0, 0.5, 1]),
        ("color(saturation=0:1:3)", ["-0", "-0.5", "-1"], "color-saturation", [0, 0.5, 1]),
        ("color(hue=30, saturation=0,1)", ["-0", "-1"], "color-saturation-30", [0, 1]),
        ("blur(where=object,both, pixels=4)", ["-object", "-both"], "blur-where-4", ["object", "both"]),
    ],
)
def test_any_parameter_can_be_swept(text, names, attribute, levels):
    items = [item for item in open_recipe(text).items if item.name != "original"]
    assert [item.name for item in items] == [attribute + name for name in names]
    assert [item.levels for item in items] == [((attribute, level),) for level in levels]


def test_a_swept_parameter_reaches_the_edit():
    (_, gray, full) = open_recipe("color(saturation=0,1)").items
    assert (gray.chain[0].saturation, full.chain[0].saturation, gray.chain[0].hue) == (0, 1, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("color(saturation=0,1)=30,60", "sweeps hue and saturation"),
        ("color(hue=0,1, saturation=0,1)", "does not say which parameter is swept"),
        ("color(saturations=0,1)", "did you mean 'saturation'"),
        ("color(saturation=0,9)", "saturation is 9"),
    ],
)
def test_sweeps_that_make_no_sense_are_refused(text, message):
    with pytest.raises(UserError, match=message):
        open_recipe(text)
