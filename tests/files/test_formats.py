"""The format numbers of files on disk: what a later version wrote is refused in words, not misread."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

import pytest

from command_line import refusal, run_cli
from unswayed.benchmark.rows import FORMAT as BENCHMARK_FORMAT
from unswayed.evaluation.model_cards import FORMAT as PREDICTIONS_FORMAT

DEMO = Path(str(resources.files("unswayed.data").joinpath("demo")))


@pytest.mark.parametrize(
    ("folder", "card", "now", "command"),
    [
        ("benchmark", "benchmark.json", BENCHMARK_FORMAT, "licenses"),
        ("predictions", "lite-0.json", PREDICTIONS_FORMAT, "analyze"),
    ],
)
def test_a_later_format_is_refused_and_the_present_one_is_read(folder, card, now, command, tmp_path):
    copy = shutil.copytree(DEMO / folder, tmp_path / folder)
    content = json.loads((copy / card).read_text())
    (copy / card).write_text(json.dumps({**content, "format": now}))
    assert run_cli(command, copy).exit_code == 0
    (copy / card).write_text(json.dumps({**content, "format": now + 1}))
    refusal(
        run_cli(command, copy), f"has the format {now + 1}", allowed=f"formats 1 to {now}",
        run="pip install --upgrade unswayed",
    )  # fmt: skip


def test_what_is_written_now_states_its_format(tmp_path):
    assert run_cli("build", "sample", "-o", tmp_path / "b", "--recipe", "original", "--limit", 1).exit_code == 0
    assert json.loads((tmp_path / "b/benchmark.json").read_text())["format"] == BENCHMARK_FORMAT
    assert run_cli("evaluate", tmp_path / "b", "-m", "lite:0", "-o", tmp_path / "p").exit_code == 0
    assert json.loads((tmp_path / "p/lite-0.json").read_text())["format"] == PREDICTIONS_FORMAT
