"""`--json` has one form in every command: printed, or written to a file that ends in .json."""

import inspect
import json
from importlib import import_module

import pytest

from command_line import run_cli
from unswayed.views.cli import COMMANDS, FILES


@pytest.mark.parametrize("place", [("--json",), ("--json", "-")])
def test_the_result_is_printed(place):
    listed = json.loads(run_cli("edits", *place, code=0).stdout)
    assert "size" in listed["edits"]


def test_the_result_is_written_to_a_file_beside_the_text(tmp_path):
    text = run_cli("edits", "--json", tmp_path / "edits.json", code=0).stdout
    assert json.loads((tmp_path / "edits.json").read_text()) == json.loads(run_cli("edits", "--json").stdout)
    assert text == run_cli("edits").stdout


@pytest.mark.parametrize("words", [("--json", "lite:0"), ("lite:0", "--json"), ("--json", "-", "lite:0")])
def test_what_follows_is_a_file_only_by_its_suffix(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert json.loads(run_cli("models", *words, code=0).stdout)["model"] == "lite:0"
    assert not list(tmp_path.iterdir())


def test_no_command_has_another_form():
    for file, names in FILES.items():
        module = import_module(f"unswayed.views.cli.{file}")
        for name in names:
            function = getattr(module, name.replace("-", "_"), None) or getattr(module, f"{name}_")
            annotations = inspect.get_annotations(function)
            assert "json" not in annotations
            assert annotations.get("as_json", "Json") == "Json", name
    assert sum("check" in panel for panel in COMMANDS.values()) == 1
