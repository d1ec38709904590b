from __future__ import annotations

import json
import subprocess
import sys

import pytest

from unfazed.edits import EDITS, make_edit, parse_edit
from unfazed.edits.catalogue import catalogue
from unfazed.errors import UserError


def unfazed(*arguments: str) -> str:
    program = "from unfazed.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    ).stdout


def test_the_command_prints_every_edit_its_ranges_and_every_recipe() -> None:
    printed = unfazed("edits")
    for name in EDITS:
        assert f"\n{name}: " in f"\n{printed}"
    assert "0.001 to 1 of the picture, or full" in printed
    assert "recipe imagenet-e:" in printed


def test_the_command_prints_json() -> None:
    assert json.loads(unfazed("edits", "--json")) == json.loads(json.dumps(catalogue()))


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_can_be_made_with_what_it_declares(name: str) -> None:
    for parameter, declared in catalogue()["edits"][name]["parameters"].items():
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
