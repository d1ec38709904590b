"""One definition of certainty: intervals, p-values, words and marks agree in every table."""

import numpy as np
import polars as pl
import pytest

from command_line import run_cli
from prediction_worlds import benchmark, folder, frame, random_answers, row
from unswayed.analyses.drops.compare import compare, compare_all
from unswayed.analyses.drops.drop import dropped_accuracy, gap_between, with_effect
from unswayed.analyses.statistics import certain_rows, corrected, in_words, is_certain
from unswayed.analyses.statistics.paired import IntervalSettings, sign_flip
from unswayed.evaluation.facts import Facts


def world(seed, edits=6, share=0.85, n=60, model="m", original=0.95):
    names = [f"edit-{index}" for index in range(edits)]
    return frame(random_answers(seed, n, {"original": original, **dict.fromkeys(names, share)}), model)


def contains_zero(row):
    return row["low"] <= 0 <= row["high"]


def test_an_average_is_a_family_of_its_own():
    few, many = (row(dropped_accuracy(world(1, edits)), edit="average") for edits in (2, 12))
    for average in (few, many):
        assert average["p_holm"] == average["p_value"] is not None
    table = dropped_accuracy(world(1, 12))
    alone = dropped_accuracy(world(1, 12).filter(pl.col("edit").is_in(["original", "edit-0"])))
    assert row(table, edit="edit-0")["p_holm"] > row(alone, edit="edit-0")["p_holm"], "edits share one correction"
    pairs = compare_all(pl.concat([world(seed, 3, model=f"m{seed}") for seed in range(3)]), None)
    averages = pairs.filter(edit="average")
    assert averages["p_holm"].to_list() == averages["p_value"].to_list()


def test_the_p_value_of_an_average_is_that_of_the_photographs_means():
    answers = random_answers(3, 50, {"original": 0.9, "size-0.1": 0.8, "size-0.05": 0.7, "reinsertion": 0.88})
    found = row(dropped_accuracy(frame(answers)), edit="average")
    means = {name: np.array(column, dtype=float) for name, column in answers.items()}
    edited = (means["size-0.1"] + means["size-0.05"]) / 2
    assert found["p_value"] == pytest.approx(sign_flip(means["original"] - edited, 2))
    assert found["net_p_value"] == pytest.approx(sign_flip(means["reinsertion"] - edited, 2))


def test_intervals_and_p_values_of_averages_always_agree():
    """Before, an average had no p-value, and that of a comparison was corrected for all edits."""
    certain = set()
    for seed in range(60):
        for n in (5, 12, 60):
            average = row(dropped_accuracy(world(seed, 2, 0.88, n), resamples=50), edit="average")
            assert (average["p_holm"] >= 0.05) <= contains_zero(average), average
            certain.add(is_certain(average["low"], average["high"], average["p_holm"]))
    assert certain == {True, False}


def test_five_of_five_photographs_are_no_certainty():
    """The score interval alone excludes zero here; the exact test gives p = 0.0625."""
    found = row(dropped_accuracy(frame({"original": [1] * 5, "size-0.05": [0] * 5})), edit="size-0.05")
    assert found["p_value"] == pytest.approx(0.0625)
    assert found["low"] == 0 < found["high"]
    assert not with_effect(dropped_accuracy(frame({"original": [1] * 5, "size-0.05": [0] * 5})))["certain"].any()


def test_words_need_the_test_and_the_interval():
    assert in_words([2.0, 1.0, 3.0, 0.04], "more", "less", "no") == "more"
    assert in_words([-2.0, -3.0, -1.0, 0.04], "more", "less", "no") == "less"
    for low, high, p in ((1.0, 3.0, 0.06), (-1.0, 3.0, 0.01), (None, None, None), (1.0, 3.0, None)):
        assert in_words([2.0, low, high, p], "more", "less", "no") == "no"
        table = pl.DataFrame(
            {"low": [low], "high": [high], "p_holm": [p]}, schema=dict.fromkeys(["low", "high", "p_holm"], pl.Float64)
        )
        assert table.select(certain_rows()).to_series().to_list() == [False]


def test_no_model_is_called_more_accurate_without_a_test_that_says_so():
    """Before, `compare` said "second is more accurate" wherever the interval of the accuracies excluded zero."""
    first = frame({"original": [1] * 5 + [0], "size-0.05": [0] * 5 + [0]}, "a")
    second = frame({"original": [1] * 6, "size-0.05": [1] * 5 + [0]}, "b")
    table = compare(pl.concat([first, second]), "a", "b")
    for found in table.iter_rows(named=True):
        assert found["accuracy_p_value"] >= 0.05
        assert "more accurate" not in found["verdict"], found
    n = 60
    first = frame({"original": [1] * n, "size-0.05": [0] * n}, "a")
    second = frame({"original": [1] * n, "size-0.05": [1] * n}, "b")
    verdicts = compare(pl.concat([first, second]), "a", "b", measure="accuracy")["verdict"].to_list()
    assert verdicts == ["no difference shown", "second is more accurate", "second is more accurate"]


def test_the_gap_between_two_edits_is_certain_only_with_its_test():
    few = frame({"original": [1] * 5, "size-0.05": [0] * 5, "position": [1] * 5})
    gap = gap_between(few, "size-0.05", "position", Facts(), IntervalSettings())
    assert gap is not None and (gap["points"], gap["p"]) == (100, pytest.approx(0.0625))
    assert not gap["certain"]
    many = frame({"original": [1] * 50, "size-0.05": [0] * 50, "position": [1] * 50})
    assert gap_between(many, "size-0.05", "position", Facts(), IntervalSettings())["certain"]


def test_corrections_leave_missing_tests_out():
    table = pl.DataFrame({"edit": ["a", "b", "average"], "p_value": [0.02, None, 0.03]})
    assert corrected(table)["p_holm"].to_list() == [0.02, None, 0.03]


def test_an_edit_without_its_control_shows_its_raw_interval_and_is_marked(tmp_path):
    """Before, the terminal showed dashes instead of its interval and p-value, and for the average too."""
    shares = {"original": 0.95, "reinsertion": 0.93, "size-0.05": 0.6, "background-random": 0.7}
    facts = {name: {"control": "reinsertion" if name.startswith("size") else None} for name in shares}
    facts["background-random"]["control"] = "inversion"
    bench = benchmark(tmp_path / "bench", facts, 80)
    cards = {"m": {"benchmark": {"path": str(bench)}}}
    predictions = folder(tmp_path / "p", {"m": frame(random_answers(4, 80, shares))}, cards)
    lines = run_cli("analyze", predictions, code=0).stdout.splitlines()
    found = {words[0]: words for words in (line.split() for line in lines) if len(words) > 3}
    for edit in ("background-random", "average"):
        assert "†" in found[edit][2] and "–" not in found[edit][2:6], found[edit]
        assert "to" in found[edit]
    assert "†" not in found["size-0.05"][2]
    assert any("† raw" in line for line in lines)
