"""Predictions that cannot be scored are refused, with the reason."""

import polars as pl
import pytest

from prediction_worlds import folder, frame
from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.errors import UserError


def test_duplicated_rows_are_refused():
    predictions = frame({"original": [1, 1, 0], "size-0.1": [1, 0, 0]})
    with pytest.raises(
        UserError, match=r"1 pictures of m occur more than once, such as image-0002, edit original, run 0"
    ):
        dropped_accuracy(pl.concat([predictions, predictions.filter(sample_id="image-0002/original/0")]))


def test_a_model_in_two_files_is_refused(tmp_path):
    predictions = frame({"original": [1, 1, 0], "size-0.1": [1, 0, 0]})
    folder(tmp_path, {"a": predictions})
    predictions.with_columns(model=pl.lit("a")).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(UserError, match="the model a is in a.parquet and in b.parquet"):
        dropped_accuracy(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda frame: frame.drop("correct"), "lacks the column correct"),
        (lambda frame: frame.drop("run", "edit"), "lacks the columns edit, run"),
        (lambda frame: frame.clear(), "is empty"),
        (lambda frame: frame.filter(pl.col("edit") != "original"), "have no edit 'original'"),
        (lambda frame: frame.with_columns(correct=pl.lit(None, pl.Boolean)), "6 pictures of m have no label"),
        (lambda frame: frame.with_columns(model=pl.lit(None, pl.String)), "6 rows have no model"),
    ],
)
def test_unusable_predictions_are_refused(spoil, message):
    with pytest.raises(UserError, match=message):
        dropped_accuracy(spoil(frame({"original": [1, 1, 0], "size-0.1": [1, 0, 0]})))


def test_folders_without_predictions_are_refused(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        dropped_accuracy(tmp_path / "nowhere")
    with pytest.raises(UserError, match="contains no predictions"):
        dropped_accuracy(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no Parquet at all")
    with pytest.raises(UserError, match="a.parquet is not a readable Parquet"):
        dropped_accuracy(tmp_path)


def test_a_file_that_lacks_columns_is_named(tmp_path):
    frame({"original": [1]}).drop("correct").write_parquet(tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet lacks the column correct"):
        dropped_accuracy(tmp_path)


def test_unknown_names_come_with_the_nearest():
    predictions = frame({"original": [1, 1], "size-0.1": [1, 0]})
    for given, nearest in (
        ({"models": ["n"]}, "there is no model 'n'"),
        ({"edits": ["size-0.2"]}, "did you mean 'size-0.1'"),
        ({"by": "clas"}, "did you mean 'class'"),
        ({"interval": "bootstrp"}, "did you mean 'bootstrap'"),
    ):
        with pytest.raises(UserError, match=nearest):
            dropped_accuracy(predictions, **given)
    with pytest.raises(UserError, match="the level of the intervals is 95"):
        dropped_accuracy(predictions, level=95)
