"""Words as edits: what a text means, grids of words, the shipped recipe, and who refuses them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from command_line import refused
from sample_scenes import SAMPLE_IDS
from unswayed.edits import make_edit, parse_edit
from unswayed.edits.composition import Impossible, Pool, Words
from unswayed.edits.edit import as_json
from unswayed.edits.recipes import Item, open_recipe
from unswayed.rendering import open_renderer
from unswayed.rendering.layers import Refusal
from unswayed.rendering.photograph import Request, chain_of, compose
from unswayed.rendering.settings import RenderSettings
from unswayed.scene import Scene, frame
from unswayed.sources import open_source


def words_of(item: Item, label: int | None = 0) -> Words | None:
    scene = frame(replace(open_source("sample")["dog"], label=label))
    pool = Pool(tuple(SAMPLE_IDS), open_source("sample").__getitem__, 64, ("husky", "cat"))
    return item.compose(scene, np.random.default_rng(0), pool).words


@pytest.mark.parametrize(
    ("text", "kind"), [("a beach at sunset", "words"), ("random", "random"), ("-20", "simple"), ("checker", "checker")]
)
def test_two_words_are_a_description_and_names_stay_what_they_were(text: str, kind: str) -> None:
    edit = parse_edit("background", text)
    assert edit.kind == kind
    assert as_json(edit).get("prompt") == (text if kind == "words" else None)


@pytest.mark.parametrize("text", ["simpel", "no such file.jpg", "beach"])
def test_a_single_word_or_a_missing_file_is_a_mistake(text: str) -> None:
    with refused(f"there is no background '{text}'", allowed="a description of at least two words"):
        parse_edit("background", text)


def test_words_need_their_kind_and_a_text() -> None:
    for wrong in ({"kind": "words"}, {"kind": "random", "prompt": "a beach"}, {"kind": "words", "prompt": " "}):
        with refused("with the prompt", allowed="kind words and a description"):
            make_edit("background", **wrong)
    with refused("5,000 characters", allowed="at most 4,000"):
        make_edit("background", kind="words", prompt="a " * 2500)


def test_the_class_stands_in_for_its_name_and_is_needed() -> None:
    [*_, item] = open_recipe("background(negative=people)=a {class} in the snow").items
    assert words_of(item) == Words("a husky in the snow", "people")
    with pytest.raises(Impossible, match="class of this photograph is not known"):
        words_of(item, label=None)


def test_a_grid_of_words_is_one_description_for_each_combination() -> None:
    recipe = open_recipe(
        "background=on a beach,in a street x background=at noon,at night x background=in fog,under rain"
    )
    made = [words_of(item).prompt for item in recipe.items[2:]]  # after the original and the control
    assert len(made) == 8
    assert made[0] == "on a beach, at noon, in fog" and made[-1] == "in a street, at night, under rain"
    assert recipe.items[-1].control == "inversion"
    assert recipe.items[-1].level == "in a street x at night x under rain"


def test_words_that_are_also_names_of_recipes_are_words(tmp_path) -> None:
    assert [item.level for item in open_recipe("background=beyond the hills,in a demo room").items[2:]] == [
        "beyond the hills",
        "in a demo room",
    ]
    file = tmp_path / "mine.toml"
    file.write_text(
        'edits = ["background=on a beach"]\n[[item]]\nname = "comma"\n'
        'chain = [{edit = "background", kind = "words", prompt = "at sea, at night", negative = "boats"}]\n'
    )
    [*_, beach, comma] = open_recipe(str(file)).items
    assert words_of(beach) == Words("on a beach") and words_of(comma) == Words("at sea, at night", "boats")


def test_a_long_description_has_a_short_folder_name_of_its_own() -> None:
    long = "in a very long sentence about " + "one thing and another and " * 5
    first, second = open_recipe(f"background={long}here,{long}there").items[2:]
    assert first.name != second.name and len(first.name) < 80


def test_the_shipped_recipe_has_24_backgrounds_in_four_families() -> None:
    recipe = open_recipe("words")
    drawn = [item for item in recipe.items if item.name not in ("original", "inversion")]
    families = [item.name.split("-")[1] for item in drawn]
    assert {name: families.count(name) for name in families} == {"nature": 6, "built": 6, "light": 6, "weather": 6}
    assert {item.control for item in drawn} == {"inversion"}
    assert len({words_of(item).prompt for item in drawn}) == 24
    assert not any("{class}" in words_of(item).prompt for item in drawn)


@pytest.mark.parametrize("renderer", ["paste", "diffusion"])
def test_renderers_that_read_no_words_say_which_does(renderer: str) -> None:
    request = Request(chain_of({"background": "a beach at sunset"}), renderer=renderer, removal="patches")
    scene: Scene = open_source("sample")["dog"]
    [answer] = open_renderer(RenderSettings(renderer=renderer, device="cpu")).render([compose(request, scene)[1]])
    assert isinstance(answer, Refusal) and answer.status == "skipped"
    assert "--renderer diffusers:NAME_OR_FOLDER" in answer.reason
