"""`unswayed factors` as a person runs it: tables on stdout, remarks on stderr, mistakes with exit code 2."""

from __future__ import annotations

import json

import pytest

from command_line import run_cli
from factor_worlds import random_answers, write_annotations
from unswayed.sources.imagenet_x import FACTORS, load_annotations


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(annotations folder, predictions folder, environment)."""
    root = tmp_path_factory.mktemp("factors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSWAYED_CACHE", str(root / "cache"))
        folder = write_annotations(root / "annotations")
        annotations = load_annotations("top", folder=folder)
        (root / "predictions").mkdir()
        for seed, rows in enumerate((397, 100)):
            table = random_answers([f"{k}.JPEG" for k in annotations.keys], annotations.labels, seed)
            table.head(rows).write_csv(root / "predictions" / f"m{seed}.csv")
        yield folder, root / "predictions"


@pytest.fixture
def factors(world):
    """Run the command: options -> (exit code, stdout, stderr)."""

    def factors(*options: str) -> tuple[int, str, str]:
        folder, predictions = world
        result = run_cli("factors", predictions, "--annotations", folder, *options)
        return result.exit_code, result.stdout, result.stderr

    return factors


def test_json_is_a_list_of_records_and_coverage_is_said_beside_it(factors):
    code, out, remarks = factors("--format", "json", "--which", "multi", "--resamples", "50")
    records = json.loads(out)
    assert code == 0
    assert {"model", "factor", "n", "accuracy", "error_ratio", "low", "high"} <= set(records[0])
    assert [r["factor"] for r in records if r["model"] == "m0"][:16] == list(FACTORS)
    assert all(r["low"] <= r["error_ratio"] <= r["high"] for r in records if r["n"] > 50)
    assert remarks == "m1: 25.2% of the 397 annotated images\n"


def test_metaclasses_figures_and_other_tables(factors, tmp_path):
    _, by_metaclass, _ = factors("--by", "metaclass", "--format", "csv", "--resamples", "0")
    assert by_metaclass.splitlines()[0] == "model,metaclass,factor,n,accuracy,error_ratio,low,high,coverage"
    figure = tmp_path / "profile.png"
    code, markdown, remarks = factors("--figure", str(figure), "--right", "real", "--format", "markdown")
    assert (code, figure.read_bytes()[:4]) == (0, b"\x89PNG")
    assert "| human |" in markdown
    assert "--right real-standard" in remarks
    code, compared, _ = factors("--table", "compare", "--models", "m0,m1", "--format", "json")
    assert (code, len(json.loads(compared))) == (0, 17)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--which", "best"], "no factor selection 'best'"),
        (["--partition", "test"], "no partition 'test'"),
        (["--right", "top5"], "no definition of correct 'top5'"),
        (["--by", "class"], "no grouping 'class'"),
        (["--table", "adjusted"], "--which multi"),
        (["--partition", "train"], "none of the 397 file names"),
    ],
)
def test_mistakes_exit_with_two_and_say_what_is_allowed(factors, options, reason):
    code, out, error = factors(*options)
    assert (code, out) == (2, "")
    assert reason in error
    assert error.startswith("error: ")


def test_a_result_table_with_unknown_factors_is_refused_and_nothing_is_drawn(tmp_path):
    (tmp_path / "results.csv").write_text("model,pose,weather,average\na,0.5,0.4,0.6\n")
    figure = tmp_path / "figure.png"
    result = run_cli("factors", str(tmp_path / "results.csv"), "--table", "accuracy", "--figure", str(figure))
    assert (result.exit_code, result.stdout, figure.exists()) == (2, "", False)
    assert "weather, which are not factors of ImageNet-X" in result.stderr
