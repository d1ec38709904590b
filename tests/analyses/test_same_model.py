"""One model in two forms: unchanged, equivalent, worse, better, or too few photographs to tell."""

from __future__ import annotations

import json

import polars as pl
import pytest

from command_line import refusal, run_cli
from prediction_worlds import folder
from unswayed.analyses.drops.compare import same_model
from unswayed.errors import UserError


def answers(lost: dict[str, int], n: int = 2000, gained: int = 0) -> pl.DataFrame:
    """n photographs, right on the originals; on each edit the first half is right but for `lost` of them."""
    rows = [
        {
            "sample_id": f"{i}/{edit}/0", "source_id": f"{i:05}", "edit": edit, "run": 0, "label": 3,
            "correct": right, "predicted": 3 if right else 4,
        }
        for edit, missing in lost.items()
        for i in range(n)
        for right in [edit == "original" and i >= missing or edit != "original" and missing <= i < n // 2 + gained]
    ]  # fmt: skip
    return pl.DataFrame(rows)


def compared(tmp_path, second: pl.DataFrame, n: int = 2000, **settings):
    first = answers({"original": 0, "size-0.05": 0, "position": 0}, n)
    return same_model(folder(tmp_path / "p", {"a": first, "b": second}), "a", "b", **settings)


def test_the_same_classes_everywhere_cost_nothing_whatever_n(tmp_path):
    found = compared(tmp_path, answers({"original": 0, "size-0.05": 0, "position": 0}, 20), n=20)
    assert found.answer == "unchanged" and "same class as a on every picture" in found.sentence
    assert found.table["same"].to_list() == [1.0] * 4


def test_a_small_change_on_many_photographs_is_equivalent(tmp_path):
    found = compared(tmp_path, answers({"original": 0, "size-0.05": 4, "position": 2}))
    assert found.answer == "equivalent" and "within ±1 points" in found.sentence
    row = found.table.filter(edit="size-0.05").row(0, named=True)
    assert row["cost"] == pytest.approx(0.2) and row["same"] == pytest.approx(0.998)
    assert -1 < row["low"] < row["cost"] < row["high"] < 1


def test_a_real_loss_is_named_with_its_edit(tmp_path):
    found = compared(tmp_path, answers({"original": 0, "size-0.05": 120, "position": 2}))
    assert found.answer == "worse"
    assert found.sentence.startswith("Yes: b is less robust than a; it loses 6.0 points (")
    assert "on size-0.05" in found.sentence
    verdicts = dict(found.table.select("edit", "verdict").iter_rows())
    assert verdicts["position"] == "equivalent" and verdicts["size-0.05"] == "worse"


def test_a_gain_is_not_a_cost(tmp_path):
    found = compared(tmp_path, answers({"original": 0, "size-0.05": 0, "position": 0}, gained=100))
    assert found.answer == "better" and "it gains 5.0 points" in found.sentence


def test_few_photographs_cannot_tell_and_the_sentence_says_how_many_more(tmp_path):
    found = compared(tmp_path, answers({"original": 0, "size-0.05": 1, "position": 0}, 40), n=40)
    assert found.answer == "cannot tell"
    assert "on size-0.05 the difference" in found.sentence
    wide = compared(tmp_path / "wide", answers({"original": 0, "size-0.05": 1, "position": 0}, 40), n=40, margin=15)
    assert wide.answer == "equivalent"


def test_the_command_prints_the_sentence_last(tmp_path):
    place = folder(
        tmp_path / "p",
        {"a": answers({"original": 0, "position": 0}), "b": answers({"original": 0, "position": 200})},
    )
    command = ["compare", place, "a", "b"]
    told = run_cli(*command, "--same-model", code=0).stdout
    assert told.strip().splitlines()[-1].startswith("Yes: b is less robust than a; it loses 10.0")
    told = run_cli(*command, "--same-model", "--format", "json", "--margin", "20", code=0).stdout
    assert json.loads(told)["answer"] == "equivalent"
    refusal(run_cli(*command, "--margin", "2"), "--margin 2 needs --same-model")


def test_a_margin_of_nothing_is_refused(tmp_path):
    with pytest.raises(UserError, match="the margin is 0"):
        compared(tmp_path, answers({"original": 0, "size-0.05": 0, "position": 0}), margin=0)
