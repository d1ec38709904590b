from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unfazed.edits import EDITS, make_edit, parse_edit
from unfazed.edits.catalog import catalog
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
    assert json.loads(unfazed("edits", "--json")) == json.loads(json.dumps(catalog()))


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


def test_another_package_adds_an_edit_by_an_entry_point(tmp_path: Path) -> None:
    (tmp_path / "foggy.py").write_text(
        "from dataclasses import dataclass\n"
        "from unfazed.edits.parameters import Range, check, parameter\n"
        "@dataclass(frozen=True)\n"
        "class Fog:\n"
        "    '''Fog before everything.'''\n"
        "    name, axis = 'fog', 'density'\n"
        "    density: float = parameter(0.5, Range(0.0, 1.0), 'how dense')\n"
        "    __post_init__ = check\n"
        "    def apply(self, composition, rng, pool):\n"
        "        return composition\n"
    )
    (tmp_path / "foggy-1.dist-info").mkdir()
    (tmp_path / "foggy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: foggy\nVersion: 1\n")
    (tmp_path / "foggy-1.dist-info" / "entry_points.txt").write_text("[unfazed.edits]\nfog = foggy:Fog\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from unfazed.edits.recipes import open_recipe\n"
        "from unfazed.edits.catalog import catalog\n"
        "print([item.name for item in open_recipe('fog=0:1:3').items], catalog()['edits']['fog']['explains'])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split("]")[0] == "['original', 'fog-0', 'fog-0.5', 'fog-1'"
    assert "Fog before everything." in printed
