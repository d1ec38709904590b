"""`unswayed analyze`: p-values corrected over what is printed, and a word on models whose last evaluation failed."""

import io
import json

import numpy as np
import polars as pl
import pytest
from statsmodels.stats.multitest import multipletests

from command_line import refusal, run_cli
from prediction_worlds import benchmark, folder, frame, random_answers

SHARES = {"original": 0.9, "size-0.05": 0.78, "size-0.1": 0.83, "position": 0.86, "size-0.05-position": 0.6}
LEVELS = {
    "size-0.05": {"attribute": "size", "level": "0.05"},
    "position": {"attribute": "position", "level": "1"},
    "size-0.05-position": {"attribute": "size x position", "level": "0.05 x 1"},
}


def analyze(*arguments):
    return run_cli("analyze", *arguments)


@pytest.fixture
def predictions(tmp_path):
    bench = benchmark(tmp_path / "bench", {edit: LEVELS.get(edit, {}) for edit in SHARES}, 90)
    card = {"benchmark": {"path": str(bench)}}
    models = {name: frame(random_answers(seed, 90, SHARES)) for seed, name in enumerate("abc")}
    return folder(tmp_path / "p", models, dict.fromkeys(models, card))


@pytest.mark.parametrize(
    ("whole", "cut"),
    [
        ([], ["-e", "size-0.1"]),
        ([], ["-m", "b"]),
        (["--by", "class"], ["-e", "size-0.1", "-m", "b"]),
        (["--groups", "all"], ["-e", "size-0.05-position", "-e", "position"]),
        (["--groups", "GROUPS"], ["-m", "training: plain"]),
        (["--table", "interactions"], ["-m", "c"]),
    ],
)
def test_p_values_of_edits_are_corrected_over_the_rows_that_are_printed(predictions, tmp_path, whole, cut):
    (tmp_path / "groups.csv").write_text("model,training\na,robust\nb,plain\nc,plain\n")
    whole = [str(tmp_path / "groups.csv") if one == "GROUPS" else one for one in whole]
    sizes = []
    for options in (whole, [*whole, *cut]):
        text = analyze(predictions, "--format", "csv", "--resamples", 20, *options).stdout
        tested = pl.read_csv(io.StringIO(text)).drop_nulls("p_value").filter(pl.col("edit") != "average")
        expected = multipletests(tested["p_value"].to_numpy(), method="holm")[1]
        np.testing.assert_allclose(tested["p_holm"], expected, rtol=1e-9)
        sizes.append(tested.height)
    assert 0 < sizes[1] < sizes[0]


def test_models_whose_last_evaluation_failed_are_named(predictions):
    quiet = analyze(predictions, "-e", "size-0.1")
    assert quiet.stderr == f"next: unswayed report {predictions} -o report.html\n"
    for model, error in (("a", "out of memory\nrun: unswayed evaluate"), ("timm:x.y", "there is no model x.y")):
        slug = model.replace(":", "-")
        (predictions / f"{slug}.failed.json").write_text(json.dumps({"model": model, "error": error}))
    found = analyze(predictions, "-e", "size-0.1")
    assert found.stderr.splitlines()[:-1] == [
        "warning: the last evaluation of a failed with: out of memory; its numbers are from an earlier evaluation",
        "warning: the last evaluation of timm:x.y failed with: there is no model x.y; it has no numbers",
    ]
    assert found.stdout == quiet.stdout


def test_a_folder_of_failures_alone_says_which(tmp_path):
    (tmp_path / "a.failed.json").write_text(json.dumps({"model": "a", "error": "no such weights"}))
    found = analyze(tmp_path)
    assert found.stderr.splitlines()[0] == (
        "warning: the last evaluation of a failed with: no such weights; it has no numbers"
    )
    refusal(found, "contains no predictions")


def test_the_next_command_is_not_refused_for_a_model_that_is_a_program(tmp_path):
    """Before, the report that `analyze` proposed for one's own `python:` model ended with exit code 2."""
    there = folder(tmp_path / "p", {"python:model.py:load": frame(random_answers(0, 30, SHARES))})
    lines = analyze(there, "-e", "size-0.1", "--resamples", 20).stderr.splitlines()
    assert lines[-2] == f"next: unswayed report {there} -o report.html --heat-maps 0"
    assert "--trust" in lines[-1] and "runs the code" in lines[-1]
