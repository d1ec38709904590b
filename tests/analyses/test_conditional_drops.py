"""`analyze` on valid pictures: both figures where they differ, one condition if asked for, the human ceiling."""

import json

import polars as pl
import pytest

from command_line import refusal, run_cli
from prediction_worlds import benchmark, folder, frame
from unswayed.analyses.tables import analyze
from unswayed.benchmark.rows import Review, add_review

RIGHT = {"original": [1] * 20, "position": [1] * 10 + [0] * 10, "size-0.1": [1] * 20}


def world(path, validity):
    columns = {"validity": validity, "status": lambda index, edit: "ok"} if validity else {}
    bench = benchmark(path / "bench", {edit: {} for edit in RIGHT}, 20, **columns)
    return folder(path / "p", {"m": frame(RIGHT)}, {"m": {"benchmark": {"path": str(bench)}}}), bench


def invalid_where_wrong(index, edit):
    """Half of the wrong answers are on pictures that are not valid."""
    return 0.2 if edit == "position" and index >= 15 else 0.9


def drop_of(table, edit, column="drop"):
    return table.filter(pl.col("edit") == edit)[column][0]


def test_both_figures_are_shown_where_they_differ(tmp_path):
    predictions, _ = world(tmp_path, invalid_where_wrong)
    table = analyze(predictions)
    assert drop_of(table, "position") == pytest.approx(50)
    assert drop_of(table, "position", "valid_drop") == pytest.approx(100 * 5 / 15)
    assert drop_of(table, "position", "valid_n") == 15
    assert drop_of(table, "size-0.1", "valid_drop") == drop_of(table, "size-0.1")
    assert "valid drop" in run_cli("analyze", predictions, "--format", "markdown").output


def test_one_figure_is_shown_where_all_pictures_are_valid(tmp_path):
    predictions, _ = world(tmp_path, lambda index, edit: 0.9)
    assert "valid_drop" not in analyze(predictions).columns
    assert "valid drop" not in run_cli("analyze", predictions, "--format", "markdown").output


def test_valid_only_leaves_invalid_pictures_out(tmp_path):
    predictions, _ = world(tmp_path, invalid_where_wrong)
    rows = json.loads(run_cli("analyze", predictions, "--valid-only", "--format", "json").output)
    [row] = [row for row in rows if row["edit"] == "position"]
    assert (row["n"], row["drop"]) == (15, pytest.approx(100 * 5 / 15))


def test_valid_only_needs_a_manifest_with_validity(tmp_path):
    predictions, _ = world(tmp_path, None)
    refusal(run_cli("analyze", predictions, "--valid-only"), "has no validity")
    assert run_cli("analyze", predictions).exit_code == 0


def test_two_conditions_at_once_are_refused(tmp_path):
    predictions, _ = world(tmp_path, invalid_where_wrong)
    refusal(run_cli("analyze", predictions, "--valid-only", "--human-valid-only"), "one of them")


def test_human_answers_are_the_ceiling_and_a_condition(tmp_path):
    predictions, bench = world(tmp_path, lambda index, edit: 0.9)
    for index in range(20):
        source = f"image-{index:04d}"
        answer = "unrecognizable" if index >= 16 else "valid"
        add_review(bench, Review(f"{source}/position/0", source, "position", 0, "ann", answer))
    table = analyze(predictions)
    assert drop_of(table, "position", "human_accuracy") == pytest.approx(0.8)
    assert drop_of(table, "size-0.1", "human_accuracy") is None
    assert "human %" in run_cli("analyze", predictions, "--format", "markdown").output
    kept = analyze(predictions, condition="human")
    assert drop_of(kept, "position") == pytest.approx(100 * 6 / 16)
    assert "size-0.1" not in set(kept["edit"])
