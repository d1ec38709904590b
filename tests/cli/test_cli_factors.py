"""`unfazed factors` as a person runs it: tables on stdout, remarks on stderr, mistakes with exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "analyses"))

from factor_worlds import random_answers, write_annotations

from unfazed.analyses.factors import FACTORS, load_annotations


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(annotations folder, predictions folder, environment)."""
    root = tmp_path_factory.mktemp("factors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNFAZED_CACHE", str(root / "cache"))
        folder = write_annotations(root / "annotations")
        annotations = load_annotations("top", folder=folder)
        (root / "predictions").mkdir()
        for seed, rows in enumerate((397, 100)):
            table = random_answers([f"{k}.JPEG" for k in annotations.keys], annotations.labels, seed)
            table.head(rows).write_csv(root / "predictions" / f"m{seed}.csv")
        yield folder, root / "predictions"


def factors(world, *options: str) -> subprocess.CompletedProcess[str]:
    folder, predictions = world
    command = [sys.executable, "-c", "from unfazed.cli import main; main()", "factors", str(predictions)]
    return subprocess.run(
        [*command, "--annotations", str(folder), *options], capture_output=True, text=True, check=False
    )


def test_json_is_a_list_of_records_and_coverage_is_said_beside_it(world):
    done = factors(world, "--format", "json", "--which", "multi", "--resamples", "50")
    assert done.returncode == 0
    records = json.loads(done.stdout)
    assert {"model", "factor", "n", "accuracy", "error_ratio", "low", "high"} <= set(records[0])
    assert [r["factor"] for r in records if r["model"] == "m0"][:16] == list(FACTORS)
    assert all(r["low"] <= r["error_ratio"] <= r["high"] for r in records if r["n"] > 50)
    assert done.stderr == "m1: 25.2% of the 397 annotated images\n"


def test_metaclasses_figures_and_other_tables(world, tmp_path):
    by_metaclass = factors(world, "--by", "metaclass", "--format", "csv", "--resamples", "0")
    assert by_metaclass.stdout.splitlines()[0] == "model,metaclass,factor,n,accuracy,error_ratio,low,high,coverage"
    drawn = factors(world, "--figure", str(tmp_path / "profile.svg"), "--right", "real", "--format", "markdown")
    assert drawn.returncode == 0
    assert (
        b"person blocking" in (tmp_path / "profile.svg").read_bytes()
        or (tmp_path / "profile.svg").stat().st_size > 10_000
    )
    assert "| human |" in drawn.stdout
    assert "--right real-standard" in drawn.stderr
    assert factors(world, "--table", "compare", "--models", "m0,m1").returncode == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--which", "best"], "no factor selection 'best'"),
        (["--partition", "test"], "no partition 'test'"),
        (["--right", "top5"], "no notion of right 'top5'"),
        (["--by", "class"], "no grouping 'class'"),
        (["--format", "xml"], "no format 'xml'"),
        (["--table", "adjusted"], "--which multi"),
        (["--partition", "train"], "none of the 397 file names"),
    ],
)
def test_mistakes_exit_with_two_and_say_what_is_allowed(world, options, reason):
    done = factors(world, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
