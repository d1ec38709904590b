from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from drawn_scenes import SAMPLE, sample_scene
from unswayed.edits.composition import WithoutObject
from unswayed.edits.recipes import RECIPES, named_recipe, open_recipe
from unswayed.errors import UserError

IMAGENET_E = [
    "original",
    "inversion",
    "background-simple",
    "background-complex",
    "background-adversarial",
    "background-random",
    "size-full",
    "size-0.1",
    "size-0.08",
    "size-0.05",
    "position",
    "direction",
    "direction-small",
    "reinsertion",
]


def test_imagenet_e_has_its_names_in_order_and_their_controls() -> None:
    recipe = open_recipe("imagenet-e")
    assert [item.name for item in recipe.items] == IMAGENET_E
    controls = {item.name: item.control for item in recipe.items}
    assert {name for name in IMAGENET_E if controls[name] == "inversion"} == {
        name for name in IMAGENET_E if name.startswith("background-")
    }
    assert {name for name in IMAGENET_E if controls[name] is None} == {
        "original", "inversion", "reinsertion", "size-full"  # the last renders nothing, so there is nothing to control
    }  # fmt: skip
    assert controls["position"] == "reinsertion"


def test_imagenet_e_parameters_are_the_papers() -> None:
    parameters = {item.name: item.parameters["chain"] for item in open_recipe("imagenet-e").items}
    assert parameters["original"] == []
    assert parameters["background-simple"][0]["strength"] == -20
    assert parameters["background-complex"][0]["strength"] == 20
    assert parameters["background-adversarial"][0]["strength"] == 20
    assert parameters["background-random"][0]["start"] == 0.5
    assert [step["edit"] for step in parameters["position"]] == ["size", "position"]
    assert [step["edit"] for step in parameters["direction"]] == ["direction"]
    assert [step["edit"] for step in parameters["direction-small"]] == ["size", "direction"]
    assert parameters["direction-small"][0]["rate"] == 0.05


@pytest.mark.parametrize("name", RECIPES)
def test_every_item_of_every_recipe_composes_and_its_parameters_are_json(name: str) -> None:
    for item in named_recipe(name).items:
        composition = item.compose(sample_scene("pig"), np.random.default_rng(0), SAMPLE)
        assert composition.scene_id == "pig"
        assert json.loads(json.dumps(item.parameters)) == item.parameters
        json.dumps(dict(composition.requested))


def test_a_sweep_has_log_spaced_levels_where_the_attribute_says_so() -> None:
    recipe = open_recipe("size=0.02:0.5:12")
    levels = [item.level for item in recipe.items if item.attribute == "size"]
    assert len(levels) == 12
    assert levels[0] == 0.02
    assert levels[-1] == 0.5
    ratios = np.array(levels[1:]) / np.array(levels[:-1])
    assert np.allclose(ratios, ratios[0], rtol=0.002)
    assert [item.name for item in recipe.items][:2] == ["original", "reinsertion"]


def test_a_sweep_is_linear_elsewhere() -> None:
    items = open_recipe("direction=-40:40:5").items
    assert [item.level for item in items if item.attribute == "direction"] == [-40, -20, 0, 20, 40]
    assert items[-1].name == "direction+40"


def test_a_grid_crosses_its_attributes_in_the_order_they_are_written() -> None:
    items = open_recipe("size=0.05,0.1 x direction=0,20,40").items[2:]
    assert len(items) == 6
    assert items[1].name == "size-0.05-direction+20"
    assert items[1].attribute == "size x direction"
    assert items[1].level == "0.05 x 20"
    assert items[1].levels == (("size", 0.05), ("direction", 20.0))
    composition = items[1].compose(sample_scene("pig"), np.random.default_rng(0), SAMPLE)
    assert composition.requested == {"size": 0.05, "pixel_rate": 0.05, "direction": 20.0}


def test_background_and_size_cross() -> None:
    item = open_recipe("background=random x size=0.05").items[-1]
    composition = item.compose(sample_scene("pig"), np.random.default_rng(0), SAMPLE)
    assert composition.background == WithoutObject(composition.requested["from"])
    assert composition.start == 0.5
    assert item.control == "inversion"


def test_fixed_parameters_become_part_of_the_name() -> None:
    items = open_recipe("lighting(where=both)=-2,0,2").items[1:]
    assert [item.name for item in items] == ["lighting-both-2", "lighting-both-0", "lighting-both+2"]
    assert items[0].attribute == "lighting-both"


def test_edits_one_by_one() -> None:
    recipe = open_recipe("size-0.05, direction,original")
    assert [item.name for item in recipe.items] == ["original", "reinsertion", "size-0.05", "direction"]


def test_a_file_holds_expressions_and_chains(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'edits = ["size=0.05,0.1", "direction"]\n'
        '[[item]]\nname = "low-left"\n'
        'chain = [{edit = "size", rate = 0.05}, {edit = "position", x = 0, y = 1}]\n'
    )
    recipe = open_recipe(str(file))
    assert recipe.name == "mine"
    names = [item.name for item in recipe.items]
    assert names == ["original", "reinsertion", "size-0.05", "size-0.1", "direction", "low-left"]
    assert recipe.items[-1].attribute == "size x position"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("imagenet-f", "did you mean 'imagenet-e'"),
        ("sise=0.05", "did you mean 'size'"),
        ("size=0:0.5:3", r"0\.001 to 1"),
        ("size=0.1:0.5:1", "count of 2 to 1000"),
        ("size=0.1:0.1:4", "count of 2 to 1000"),
        ("size=7", r"0\.001 to 1"),
        ("size(pace=1)=0.05", "parameter of size 'pace'"),
        ("size(start)=0.05", "list of parameters"),
        ("size=0.05,0.05", "more than once"),
        ("lighting(where=sky)=1", "object, background, both"),
        ("nowhere.toml", "does not exist"),
        ("", "empty"),
        (",", "empty"),
    ],
)
def test_bad_recipes_say_what_is_allowed(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_recipe(spec)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("edits = [", "not TOML"),
        ("edit = []", "did you mean 'edits'"),
        ("edits = 3", "a list of texts"),
        ("name = 'x'", "contains no edits"),
        ("[[item]]\nname = 'a b'\nchain = []", "letters, digits"),
        ("[[item]]\nname = 'a'\nchain = [3]", "a chain"),
        ("[[item]]\nname = 'a'\nchain = [{edit = 'siez'}]", "did you mean 'size'"),
        ("[[item]]\nname = 'a'\nchain = [{edit = 'size', rte = 1}]", "did you mean 'rate'"),
        ("[[item]]\nname = 'a'\nchian = []", "did you mean 'chain'"),
        ("edits = ['size-0.05']\n[[item]]\nname = 'size-0.05'\nchain = []", "different edits"),
    ],
)
def test_bad_files_say_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        open_recipe(str(file))


@pytest.mark.parametrize("text", ["size=0.05,0.1,position", "position size=0.05,0.1", "imagenet-e;size=0.05,0.1"])
def test_a_sweep_beside_a_named_edit_is_refused_with_the_way_to_have_both(text):
    with pytest.raises(UserError, match="has a sweep and the edit") as refused:
        open_recipe(text)
    assert 'edits = ["size=0.05,0.1", ' in str(refused.value)
