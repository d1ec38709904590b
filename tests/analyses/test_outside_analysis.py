"""An analysis of another package: installed, it is a table of `unswayed analyze` and a section of the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from outside_package import install, path_with
from prediction_worlds import benchmark, folder, frame, random_answers

ANALYSIS = """
import polars as pl

from unswayed.registry import declare


@declare(help="how often an edit hits", facts={"title": "Hits of each edit", "notes": "hits: shares in [0, 1]."})
def hits(predictions):
    return predictions.group_by("model", "edit").agg(hits=pl.col("correct").mean()).sort("model", "edit")
"""
SCRIPT = """
import contextlib, io, json, sys
from command_line import run_cli

def unswayed(*arguments):
    return run_cli(*arguments, code=0).stdout

said = {
    "rows": json.loads(unswayed("analyze", sys.argv[1], "--table", "hits", "--format", "json")),
    "cut": json.loads(unswayed("analyze", sys.argv[1], "--table", "hits", "-e", "size-0.1", "--format", "json")),
    "table": unswayed("analyze", sys.argv[1], "--table", "hits"),
    "help": unswayed("analyze", "--help"),
}
unswayed("report", sys.argv[1], "-o", "report.html")
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """The folder in which the commands ran with the package installed, and what they printed."""
    root = tmp_path_factory.mktemp("outside")
    install(root, {"unswayed.analyses": {"hits": "hitting:hits"}}, hitting=ANALYSIS)
    shares = {"original": 0.9, "size-0.05": 0.5, "size-0.1": 0.7}
    bench = benchmark(root / "bench", {edit: {} for edit in shares}, 40)
    models = {
        name: frame(random_answers(seed, 40, shares)).with_columns(
            predicted=pl.col("label") + ~pl.col("correct"), probability=pl.lit(0.5)
        )
        for seed, name in enumerate("ab")
    }
    predictions = folder(root / "p", models, dict.fromkeys(models, {"benchmark": {"path": str(bench)}}))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(predictions)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path_with(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return root, json.loads(done.stdout.splitlines()[-1])


def test_it_is_a_table_of_analyze(outside) -> None:
    said = outside[1]
    assert {(row["model"], row["edit"]) for row in said["rows"]} == {
        (model, edit) for model in "ab" for edit in ("original", "size-0.05", "size-0.1")
    }
    assert {row["edit"] for row in said["cut"]} == {"size-0.1"}
    assert "Hits of each edit" in said["table"]
    assert "hits: shares in [0, 1]." in said["table"]


def test_the_help_lists_it_with_its_line(outside) -> None:
    listed = " ".join(outside[1]["help"].replace("│", " ").split())
    assert "hits: how often an edit hits" in listed
    assert "corruptions: corruption errors on ImageNet-C" in listed


def test_it_is_a_section_of_the_report(outside) -> None:
    page = (outside[0] / "report.html").read_text(encoding="utf-8")
    assert 'id="hits"' in page
    assert "Hits of each edit" in page
