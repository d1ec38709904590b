"""The pytest plugin in a real pytest run: passes, fails with interval and flips, and says when it cannot tell."""

from __future__ import annotations

import json
import shutil
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import polars as pl
import pytest

pytest_plugins = ["pytester"]
DECLARED = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]
# Where the package is installed with its entry points, pytest has loaded the plugin already.
PLUGIN = () if "unswayed" in entry_points(group="pytest11").names else ("-p", DECLARED["pytest11"]["unswayed"])
TEST = """
def test_size(unswayed_results):
    assert unswayed_results.drop("size-0.05") < {limit}

def test_accuracy(unswayed_results):
    assert unswayed_results.accuracy() >= 90
    assert 0 < float(unswayed_results.drop("size-0.05")) < 100
"""


@pytest.fixture(scope="module")
def predictions(tmp_path_factory) -> Path:
    """200 photographs, all right before the edit; 40 of them wrong on size-0.05."""
    folder = tmp_path_factory.mktemp("plugin") / "predictions"
    folder.mkdir()
    rows = [
        {"model": "m", "source_id": f"photo-{i}", "edit": edit, "run": 0, "label": 207, "correct": i >= lost,
         "predicted": 207 if i >= lost else 208, "probability": 1 - i / 400}
        for edit, lost in {"original": 0, "size-0.05": 40}.items()
        for i in range(200)
    ]  # fmt: skip
    pl.DataFrame(rows).write_parquet(folder / "m.parquet")
    (folder / "m.json").write_text(json.dumps({"model": "m", "labels": {"name": "imagenet-1k"}}))
    return folder


def outcome(pytester: pytest.Pytester, *options: object, limit: float = 10) -> pytest.RunResult:
    pytester.makepyfile(TEST.format(limit=limit))
    return pytester.runpytest_inprocess(*PLUGIN, "-p", "no:cacheprovider", *map(str, options))


def test_a_drop_below_the_limit_passes(pytester, predictions):
    outcome(pytester, "--unswayed-predictions", predictions, limit=40).assert_outcomes(passed=2)


def test_a_failure_shows_interval_number_and_flips(pytester, predictions):
    result = outcome(pytester, "--unswayed-predictions", predictions)
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert "drop of m on size-0.05: 20.0 points (95 % interval 14.4 to 25.6" in text and "n = 200" in text
    assert "40 flips, the worst: photo-0 (golden retri" in text and "became Labrador retriever, 100%)" in text


@pytest.mark.parametrize(("choice", "expected"), [("skip", {"skipped": 1}), ("fail", {"failed": 1})])
def test_an_undecided_comparison_is_skipped_or_fails_as_asked(pytester, predictions, choice, expected):
    options = ("--unswayed-predictions", predictions, "--unswayed-undecided", choice, "-rs")
    result = outcome(pytester, *options, limit=22)
    result.assert_outcomes(passed=1, **expected)
    assert "cannot tell whether <drop of m on size-0.05" in result.stdout.str()


def test_the_ini_file_names_the_folder_and_without_one_tests_are_skipped(pytester, predictions):
    result = outcome(pytester, "-rs", limit=40)
    result.assert_outcomes(skipped=2)
    assert "pytest --unswayed-predictions P" in result.stdout.str()
    pytester.makeini(f"[pytest]\nunswayed_predictions = {predictions}\n")
    outcome(pytester, limit=40).assert_outcomes(passed=2)


def test_an_unknown_edit_is_an_error_with_the_nearest_name(pytester, predictions):
    pytester.makepyfile("def test_it(unswayed_results):\n    assert unswayed_results.drop('size-0.5') < 1\n")
    result = pytester.runpytest_inprocess(*PLUGIN, "--unswayed-predictions", str(predictions))
    result.assert_outcomes(failed=1)
    assert "did you mean 'size-0.05'?" in result.stdout.str()


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        ({"suspicion": "m: the labels are reversed"}, "not measured: m: the labels are reversed"),
        ({"originals": {"chance": 0.9}}, "so a drop of more than 40 points cannot be seen"),
    ],
)
def test_what_check_calls_not_measured_fails(pytester, predictions, tmp_path, card, reason):
    """Before, the model of a card with a suspicion passed, and so did one with nothing to lose."""
    shutil.copytree(predictions, tmp_path / "p")
    (tmp_path / "p/m.json").write_text(json.dumps({"model": "m", "labels": {"name": "imagenet-1k"}, **card}))
    result = outcome(pytester, "--unswayed-predictions", tmp_path / "p", limit=40)
    assert result.parseoutcomes()["failed"] >= 1
    assert reason in result.stdout.str()


def test_unsure_masks_leave_a_comparison_undecided(pytester, predictions, tmp_path):
    shutil.copytree(predictions, tmp_path / "p")
    masks = {"automatic": 200, "of": 200, "median_confidence": 0.6, "below_limit": 60}
    card = {"model": "m", "labels": {"name": "imagenet-1k"}, "benchmark": {"masks": masks}}
    (tmp_path / "p/m.json").write_text(json.dumps(card))
    result = outcome(pytester, "--unswayed-predictions", tmp_path / "p", "-rs", limit=40)
    result.assert_outcomes(passed=1, skipped=1)
    assert "30% of the masks are automatic and unsure" in result.stdout.str()
