"""`unswayed models` and `unswayed evaluate` on the command line: exit codes, what goes to stdout and stderr."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import refusal, run_cli


def test_evaluate_prints_what_came_of_it(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    arguments = ["evaluate", str(benchmark), "-m", own_models + "good", "-o", str(tmp_path), "--device", "cpu"]
    first = run_cli(*arguments, "--json")
    assert first.exit_code == 0
    assert json.loads(first.stdout)["scored"] == [own_models + "good"]
    assert json.loads(first.stdout)["originals"] == {own_models + "good": {"accuracy": 1.0, "n": 24, "chance": 0.25}}
    again = run_cli(*arguments)
    assert "100.0% of 24 originals (already evaluated)" in again.stdout


def test_exit_codes_tell_some_failures_from_all(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    arguments = ["evaluate", str(benchmark), "-o", str(tmp_path), "--device", "cpu", "-m", own_models + "broken"]
    alone = run_cli(*arguments)
    assert alone.exit_code == 2
    assert "NaN or infinite" in alone.stderr
    assert run_cli(*arguments, "-m", own_models + "good").exit_code == 4


def test_models_lists_the_sources() -> None:
    listed = json.loads(run_cli("models", "--json").stdout)
    assert listed["lite"].startswith("lite:0, lite:1, lite:2")
    assert {"timm", "torchvision", "open_clip", "transformers", "onnx", "python", "head", "wrappers"} <= set(listed)


def test_models_prints_a_card() -> None:
    card = json.loads(run_cli("models", "lite:1", "--json").stdout)
    assert card["transform"]["crop"] == 240
    assert card["heat layer"]["name"] == "bn2"
    assert "bn2" in run_cli("models", "lite:1").stdout


def test_a_wrong_name_is_a_users_error() -> None:
    refusal(run_cli("models", "lite:5"), given="'5'", allowed="0, 1, 2")
