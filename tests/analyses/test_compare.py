"""Two models on the same pictures: paired differences, corrected; nothing in common refused."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from prediction_worlds import folder, frame, random_answers, row
from unswayed.analyses.drops.compare import compare, compare_all
from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.errors import UserError


def pair(first, second):
    return pl.concat([frame(first, model="one"), frame(second, model="two")])


def test_a_comparison_by_hand():
    one = {"original": [1, 1, 1, 1, 0], "size-0.1": [1, 1, 1, 0, 0]}
    two = {"original": [1, 1, 1, 1, 1], "size-0.1": [1, 0, 0, 0, 1]}
    table = compare(pair(one, two), "one", "two")
    assert table["edit"].to_list() == ["original", "size-0.1", "average"]
    original, size, _ = table.iter_rows(named=True)
    assert original["accuracy_difference"] == pytest.approx(-20)
    assert original["drop_difference"] is None
    assert size["first_accuracy"] == pytest.approx(0.6)
    assert size["second_accuracy"] == pytest.approx(0.4)
    assert size["first_drop"] == pytest.approx(20)
    assert size["second_drop"] == pytest.approx(60)
    assert size["drop_difference"] == pytest.approx(-40)
    # The differences of drops are 0, -1, -1, 0, 0: two of two the same way, by chance one time in two.
    assert size["p_value"] == pytest.approx(0.5)
    assert size["verdict"] == "no difference shown"


def test_a_real_difference_is_seen_and_named():
    rng = np.random.default_rng(0)
    base = (rng.random(400) < 0.95).astype(int)
    strong = {"original": base, "size-0.05": base * (rng.random(400) < 0.9), "size-0.1": base * (rng.random(400) < 0.9)}
    weak = {"original": base, "size-0.05": base * (rng.random(400) < 0.6), "size-0.1": base * (rng.random(400) < 0.9)}
    predictions = pair(strong, weak)
    table = {row["edit"]: row for row in compare(predictions, "one", "two").iter_rows(named=True)}
    found = table["size-0.05"]
    assert found["verdict"] == "first drops less"
    assert found["high"] < -15
    assert table["size-0.1"]["verdict"] == "no difference shown"
    assert table["original"]["accuracy_difference"] == 0
    assert table["original"]["p_value"] == 1
    other_way = {row["edit"]: row for row in compare(predictions, "two", "one").iter_rows(named=True)}
    assert other_way["size-0.05"]["drop_difference"] == pytest.approx(-found["drop_difference"])
    assert other_way["size-0.05"]["verdict"] == "second drops less"
    assert other_way["size-0.05"]["p_value"] == pytest.approx(found["p_value"])


def test_accuracy_differences_use_the_paired_interval():
    one, two = ({"original": column, "size-0.1": column} for column in ([1] * 12 + [0] * 18, [1] * 10 + [0] * 20))
    original = compare(pair(one, two), "one", "two").row(0, named=True)
    unpaired = 1.96 * np.sqrt(0.4 * 0.6 / 30 + 1 / 3 * 2 / 3 / 30) * 100
    assert original["accuracy_low"] < 100 * 2 / 30 < original["accuracy_high"]
    assert original["accuracy_high"] - original["accuracy_low"] < 1.3 * unpaired
    assert original["p_value"] == pytest.approx(stats.binomtest(2, 2).pvalue)


def test_only_shared_photographs_and_edits_count():
    shares = {"original": 0.9, "size-0.1": 0.7}
    one = frame(random_answers(0, 50, shares | {"position": 0.5}), model="one")
    two = frame(random_answers(1, 80, shares), model="two").filter(pl.col("source_id") >= "image-0020")
    table = compare(pl.concat([one, two]), "one", "two")
    assert table["edit"].to_list() == ["original", "size-0.1", "average"]
    assert table["n"].unique().to_list() == [30]


def test_models_of_two_folders(tmp_path):
    shares = {"original": 0.9, "size-0.1": 0.7}
    new = folder(tmp_path / "new", {"m": frame(random_answers(0, 60, shares))})
    old = folder(tmp_path / "old", {"m": frame(random_answers(1, 60, shares))})
    table = compare(new, "m", "m", other=old)
    assert table["n"].to_list() == [60, 60, 60]


def test_several_runs_and_gaps():
    shares = {"original": 0.9, "background-simple": (0.7, 4), "size-0.1": 0.6}
    one, two = (frame(random_answers(seed, 90, shares), model=name) for seed, name in ((0, "one"), (1, "two")))
    gaps = two.filter(~((pl.col("edit") == "size-0.1") & (pl.col("source_id") < "image-0010")))
    table = compare(pl.concat([one, gaps]), "one", "two")
    counts = dict(table.select("edit", "n").rows())
    assert counts == {"original": 90, "background-simple": 90, "size-0.1": 80, "average": 90}
    assert table["p_value"].is_between(0, 1).all()
    mean = table.filter(pl.col("edit").is_in(["background-simple", "size-0.1"]))["drop_difference"].mean()
    assert table.filter(edit="average")["drop_difference"][0] == pytest.approx(mean)


def test_wrong_comparisons_are_refused():
    predictions = pair({"original": [1, 1]}, {"original": [1, 0]})
    with pytest.raises(UserError, match="no model 'tow'; did you mean 'two'"):
        compare(predictions, "one", "tow")
    with pytest.raises(UserError, match="compared with itself"):
        compare(predictions, "one", "one")
    apart = predictions.with_columns(source_id=pl.col("model") + pl.col("source_id"))
    with pytest.raises(UserError, match="no photographs in common"):
        compare(apart, "one", "two")
    with pytest.raises(UserError, match="no edit 'original'"):
        compare(pair({"size-0.1": [1]}, {"size-0.1": [1]}), "one", "two")


def test_a_model_that_is_worse_everywhere_is_not_called_equal():
    """Drops are alike from unequal heights, so the verdict on drops names the accuracy, and `accuracy` tests it."""
    n = 300
    good = frame({"original": [1] * n, "size-0.05": [1] * 270 + [0] * 30}, "good")
    bad = frame({"original": [1] * 195 + [0] * 105, "size-0.05": [1] * 165 + [0] * 135}, "bad")
    both = pl.concat([good, bad])
    by_drop = row(compare(both, "good", "bad"), edit="size-0.05")
    assert by_drop["verdict"] == "no difference in drop shown, but first is more accurate"
    by_accuracy = row(compare(both, "good", "bad", measure="accuracy"), edit="size-0.05")
    assert by_accuracy["verdict"] == "first is more accurate"
    assert by_accuracy["accuracy_difference"] == pytest.approx(35)
    assert (by_drop["first_relative_drop"], by_drop["second_relative_drop"]) == pytest.approx((10, 100 * 30 / 195))


def test_net_drops_are_compared_against_the_control():
    n = 200
    answers = {"original": [1] * n, "reinsertion": [1] * n, "size-0.05": [1] * 150 + [0] * 50}
    one = frame(answers, "one")
    two = frame({**answers, "reinsertion": [1] * 150 + [0] * 50}, "two")
    both = pl.concat([one, two])
    assert row(compare(both, "one", "two"), edit="size-0.05")["verdict"] == "no difference shown"
    net = row(compare(both, "one", "two", measure="net"), edit="size-0.05")
    assert net["net_difference"] == pytest.approx(25)
    assert net["verdict"] == "second drops less net of the control"
    assert row(compare(both, "one", "two", measure="net"), edit="reinsertion")["verdict"] == "not measured: no control"


def test_all_pairs_share_one_correction():
    worlds = [frame(random_answers(0, 120, {"original": 0.9, "size-0.05": share}), name)
              for name, share in (("a", 0.8), ("b", 0.6), ("c", 0.5))]  # fmt: skip
    table = compare_all(pl.concat(worlds), None)
    pairs = table.select("first", "second").unique(maintain_order=True).rows()
    assert pairs == [("a", "b"), ("a", "c"), ("b", "c")]
    alone = compare(pl.concat(worlds), "a", "b")
    there = table.filter(first="a", second="b")
    assert there["p_value"].to_list() == alone["p_value"].to_list()
    assert (there["p_holm"] >= alone["p_holm"]).all() and (there["p_holm"] > alone["p_holm"]).any()
    with pytest.raises(UserError, match="only the model a to compare"):
        compare_all(pl.concat(worlds), ["a"])


def test_the_verdict_never_contradicts_the_comparison(tmp_path):
    """An average is a family of its own: its interval, its p-value, `compare` and the report's sentence agree."""
    from unswayed.views.report import ReportSettings
    from unswayed.views.report.findings import Findings
    from unswayed.views.report.verdict import verdict

    seen = set()
    for seed in range(8):
        names = [f"edit-{index}" for index in range(6)]
        worlds = {
            name: frame(random_answers(seed * 10 + place, 60, {"original": 0.95, **dict.fromkeys(names, share)}), name)
            for place, (name, share) in enumerate((("one", 0.75), ("two", 0.68)))
        }
        answered = {
            name: world.with_columns(predicted=pl.col("label") + ~pl.col("correct"), probability=pl.lit(0.5))
            for name, world in worlds.items()
        }
        there = folder(tmp_path / str(seed), answered)
        findings = Findings(there, ReportSettings(flips=1, resamples=200))
        one, two = findings.models[0], findings.models[-1]
        average = compare(there, one, two, resamples=200).filter(edit="average").row(0, named=True)
        shown = "drops less" in average["verdict"]
        assert ("drops less than every other model" in verdict(findings)[-1]) == shown
        assert shown == (average["p_holm"] < 0.05) == (not average["low"] <= 0 <= average["high"])
        assert average["p_holm"] == average["p_value"]
        seen.add(shown)
    assert seen == {True, False}


def test_an_edit_that_attacks_one_of_the_models_is_not_judged():
    """Before, the model that the pictures were made to fool was said to drop more, as if that were its own weakness."""
    n = 100
    same = {"original": [1] * n, "size-0.05": [1] * 90 + [0] * 10}
    fooled = frame({**same, "background-adversarial": [0] * n}, "guide")
    other = frame({**same, "background-adversarial": [1] * n}, "other")
    both = pl.concat([fooled, other]).with_columns(
        white_box=(pl.col("model") == "guide") & (pl.col("edit") == "background-adversarial")
    )
    for table in (compare(both, "guide", "other"), compare_all(both, None, measure="accuracy")):
        attack = row(table, edit="background-adversarial")
        assert attack["white_box"]
        assert attack["p_value"] is None
        assert attack["verdict"] == "not compared: white-box"


def test_the_average_is_that_of_the_table_of_drops():
    """Before, `compare` left the attacked edit out for both models and the table of drops only for the guide."""
    n = 80
    answers = {"original": 0.9, "size-0.05": 0.7, "background-adversarial": 0.4}
    worlds = [frame(random_answers(seed, n, answers), name) for seed, name in enumerate(("guide", "a", "b"))]
    rows = pl.concat(worlds).with_columns(
        white_box=(pl.col("model") == "guide") & (pl.col("edit") == "background-adversarial")
    )
    drops = dropped_accuracy(rows).filter(edit="average")
    for first, second in (("a", "b"), ("a", "guide")):
        found = row(compare(rows, first, second), edit="average")
        assert found["first_drop"] == pytest.approx(drops.filter(model=first)["drop"].item())
        assert found["second_drop"] == pytest.approx(drops.filter(model=second)["drop"].item())
    assert drops["edits"].to_list() == [1, 1, 1]
