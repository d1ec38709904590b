"""Prediction files that were changed after `unswayed evaluate` wrote them are refused by every reader of them."""

import json

import polars as pl
import pytest

from command_line import refusal, run_cli
from prediction_worlds import folder, frame, random_answers
from unswayed.analyses.flips import find_flips

EDITS = {"original": 0.95, "size-0.05": 0.6, "position": 0.8}


def answers(seed=0, label=None):
    rows = frame(random_answers(seed, 40, EDITS), label=label)
    wrong = (~pl.col("correct")).cast(pl.Int64)
    return rows.with_columns(predicted=pl.col("label") + wrong, probability=pl.lit(0.6), true_probability=pl.lit(0.5))


def stored(path, change=lambda rows: rows, rows=None):
    made = answers()
    there = folder(path, {"m": made, "other": answers(1)})
    change(made).with_columns(model=pl.lit("m")).write_parquet(there / "m.parquet")
    card = json.loads((there / "m.json").read_text()) | {"rows": made.height if rows is None else rows}
    (there / "m.json").write_text(json.dumps(card))
    return there


def commands(there, out):
    yield "analyze", there
    yield "compare", there, "m", "other"
    yield "check", there, "--max-drop", "average=90"
    yield "report", there, "-o", out


def test_a_file_as_it_was_written_is_read(tmp_path):
    for command in commands(stored(tmp_path / "p"), tmp_path / "r.html"):
        run_cli(*command, code=0)


def test_rows_that_were_deleted_are_noticed(tmp_path):
    """Before, deleting the wrong answers improved every number without a word."""
    there = stored(tmp_path / "p", lambda rows: rows.filter("correct"))
    for command in commands(there, tmp_path / "r.html"):
        refusal(run_cli(*command), given=r"m\.parquet has \d+ rows, but its card m\.json says 120", run="evaluate")


def test_an_answer_that_contradicts_its_class_is_refused(tmp_path):
    there = stored(tmp_path / "p", lambda rows: rows.with_columns(correct=pl.lit(True)))
    for command in commands(there, tmp_path / "r.html"):
        refusal(run_cli(*command), given="rows contradict themselves", allowed="predicted class is the label")


def test_a_report_of_labels_outside_the_label_space_shows_their_numbers(tmp_path):
    there = folder(tmp_path / "p", {"m": answers(label=lambda index: 5000 + index % 3)})
    run_cli("report", there, "-o", tmp_path / "r.html", code=0)
    assert "5001" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("name", ["probability", "true_probability"])
def test_missing_probabilities_end_in_no_traceback(tmp_path, name):
    """Before: bad operand type for unary -: 'NoneType'."""
    there = stored(tmp_path / "p", lambda rows: rows.with_columns(pl.lit(None, pl.Float64).alias(name)))
    done = [
        run_cli("check", there, "--max-drop", "average=90", "--markdown", tmp_path / "c.md"),
        run_cli("report", there, "-o", tmp_path / "r.html"),
    ]
    if name == "probability":
        for refused in done:
            refusal(refused, "probability")
    else:
        assert [result.exit_code for result in done] == [0, 0]
        assert len(find_flips(there, limit=5).shown) == 5
