from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import run_cli
from unswayed.edits import EDITS, catalog, edits_table, make_edit, parse_edit
from unswayed.edits.recipes import RECIPES
from unswayed.errors import UserError


def unswayed(*arguments: str) -> str:
    return run_cli(*arguments, code=0).stdout


def test_the_command_prints_every_edit_its_ranges_and_every_recipe() -> None:
    printed = unswayed("edits")
    first = [line.split()[0] for line in printed.splitlines() if line.strip()]
    assert {*EDITS, *RECIPES} <= set(first)
    assert "0.001 to 1 of the picture, or largest, or full" in " ".join(printed.split())


def test_the_command_prints_json() -> None:
    printed = json.loads(unswayed("edits", "--json"))
    assert "patches" in printed.pop("removals")
    assert printed.pop("renderers")["diffusers"]["usage"] == "diffusers:NAME_OR_FOLDER"
    assert printed == json.loads(json.dumps(catalog()))


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_can_be_made_with_what_it_declares(name: str) -> None:
    for parameter, declared in catalog()["edits"][name]["parameters"].items():
        assert declared["explains"]
        if "low" in declared and name != "background":
            for value in (declared["low"], declared["high"], *declared["words"]):
                assert getattr(make_edit(name, **{parameter: value}), parameter) == value
            with pytest.raises(UserError, match="allowed"):
                make_edit(name, **{parameter: declared["high"] + 1})


def test_an_edit_that_does_not_exist_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'lighting'"):
        make_edit("lightning")
    with pytest.raises(UserError, match="did you mean 'occlusion'"):
        parse_edit("oclusion", "0.3")
    with pytest.raises(UserError, match="size has no value"):
        parse_edit("size", " ")


def test_the_tables_of_the_documentation_are_current() -> None:
    """After a change of an edit: replace the tables in docs/edits.md by what `unswayed edits --markdown` prints."""
    page = Path(__file__).parents[2] / "docs" / "edits.md"
    assert edits_table() in page.read_text(encoding="utf-8")


def test_what_an_edit_declares_follows_from_its_parameters() -> None:
    assert make_edit("direction").random
    assert not make_edit("direction", degrees=20).random
    assert make_edit("background", kind="checker").random
    assert make_edit("background", kind="random").borrows
    assert make_edit("background", kind="adversarial").needs == ("network", "guide")
    assert make_edit("lighting").needs == ()
    assert make_edit("size").blends_from == 0.25
