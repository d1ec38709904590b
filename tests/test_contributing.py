"""The examples of CONTRIBUTING.md, run as a package that is installed beside unswayed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from outside_package import install, path_with
from unswayed.sources import open_source

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
EXAMPLE = """
import json, sys
from pathlib import Path
from command_line import run_cli

recipe = "backlight=1 x size=0.05,0.1"
run_cli("build", "npz:scenes", "-o", "bench", "--recipe", recipe, "--renderer", "paste", "--removal", "telea", code=4)
run_cli("evaluate", "bench", "-m", "chance:0", "-o", "predictions", "--workers", "1", code=0)
run_cli("analyze", "predictions", "--table", "flip-rates", "--format", "json", "-o", "flips.json", code=0)
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the package of the page was installed and its commands were run on two photographs."""
    root = tmp_path_factory.mktemp("contributing")
    files = dict(re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    project = tomllib.loads(files.pop("pyproject.toml"))["project"]
    (root / "unswayed_example").mkdir()
    for name, code in files.items():
        (root / name).write_text(code, encoding="utf-8")
    install(root, project["entry-points"])
    (root / "scenes").mkdir()
    sample = open_source("sample")
    for name in ("panda", "koala"):
        scene = sample[name]
        np.savez(root / "scenes" / f"{name}.npz", image=scene.image, mask=scene.mask, label=scene.label)
    whole = (root / "scenes" / "panda.npz").read_bytes()
    (root / "scenes" / "short.npz").write_bytes(whole[: len(whole) // 2])
    place = whole.index(b"image.npy") + 5000
    (root / "scenes" / "damaged.npz").write_bytes(whole[:place] + bytes(100) + whole[place + 100 :])
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLE],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path_with(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def test_the_source_and_the_edit_build_a_benchmark(example):
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(example / "bench" / "manifest.parquet").to_pylist()
    backlit = [row for row in rows if row["edit"].startswith("backlight")]
    assert {row["source_id"] for row in rows if row["status"] == "ok"} == {"panda", "koala"}
    assert len([row for row in backlit if row["status"] == "ok"]) == 4


def test_the_source_gives_the_reasons_why_damaged_files_are_left_out(example):
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(example / "bench" / "manifest.parquet").to_pylist()
    reasons = {row["source_id"]: row["reason"] for row in rows if row["status"] == "failed"}
    assert "short.npz: it cannot be read: " in reasons["short"] and "zip" in reasons["short"]
    assert "damaged.npz: " in reasons["damaged"] and "CRC" in reasons["damaged"]
    assert set(reasons) == {"short", "damaged"}


def test_the_removal_is_on_the_card_of_a_benchmark_that_used_it(example):
    assert "telea-1" in (example / "bench" / "benchmark.json").read_text()


def test_the_analysis_has_one_row_per_model_and_edit(example):
    rows = json.loads((example / "flips.json").read_text())
    assert {row["model"] for row in rows} == {"chance:0"}
    assert all(row["n"] == 2 for row in rows if row["edit"].startswith("backlight"))
    assert all(0 <= row["flip_rate"] <= 1 for row in rows)
