"""Dropped accuracy: right numbers, whatever the order of the rows."""

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests

import unswayed
from prediction_worlds import benchmark, folder, frame, random_answers, row
from unswayed.analyses.drops.compare import compare
from unswayed.analyses.drops.drop import dropped_accuracy, fill_spread
from unswayed.analyses.drops.groups import dropped_accuracy_of_groups
from unswayed.evaluation import read_predictions, scan_predictions

PAPER = [
    *("background-simple", "background-complex", "background-adversarial", "background-random"),
    *("size-full", "size-0.1", "size-0.08", "size-0.05", "position", "direction"),
]


def test_a_small_table_by_hand():
    answers = {
        "original": [1, 1, 1, 1, 1, 1, 1, 1, 0, 0],
        "inversion": [1, 1, 1, 1, 1, 1, 1, 0, 0, 0],
        "background-simple": [0, 0, 0, 1, 1, 1, 1, 0, 1, 0],
    }
    found = row(unswayed.dropped_accuracy(frame(answers)), edit="background-simple")
    assert found["n"] == 10
    assert found["accuracy"] == pytest.approx(0.5)
    assert found["original_accuracy"] == pytest.approx(0.8)
    assert found["drop"] == pytest.approx(30)
    assert found["net_drop"] == pytest.approx(20)
    assert found["control"] == "inversion"
    # Against the control, three photographs lost, one gained.
    assert found["net_p_value"] == found["net_p_holm"] == pytest.approx(stats.binomtest(3, 4).pvalue)
    # Four photographs lost, one gained.
    assert found["p_value"] == pytest.approx(stats.binomtest(4, 5).pvalue)
    assert found["low"] < 30 < found["high"]
    assert found["interval"] == "score"
    original = row(unswayed.dropped_accuracy(frame(answers)), edit="original")
    assert original["accuracy"] == pytest.approx(0.8)
    assert original["drop"] is None


def test_p_values_equal_statsmodels_over_the_table():
    shares = {"original": 0.9, "size-0.05": 0.7, "size-0.1": 0.85, "position": 0.6}
    predictions = pl.concat([frame(random_answers(seed, 150, shares), model=f"m{seed}") for seed in range(3)])
    table = dropped_accuracy(predictions).filter(kind="edit")
    wide = predictions.pivot("edit", index=["model", "source_id"], values="correct")
    expected = []
    for found in table.iter_rows(named=True):
        one = wide.filter(model=found["model"])
        before, after = one["original"].to_numpy(), one[found["edit"]].to_numpy()
        cells = [[(before & after).sum(), (before & ~after).sum()], [(~before & after).sum(), (~before & ~after).sum()]]
        expected.append(statsmodels_mcnemar(cells, exact=True).pvalue)
    np.testing.assert_allclose(table["p_value"], expected, rtol=1e-9)
    np.testing.assert_allclose(table["p_holm"], multipletests(expected, method="holm")[1], rtol=1e-9)


def test_several_runs_count_once_a_photograph():
    answers = random_answers(0, 120, {"original": 0.9, "background-random": (0.84, 5)})
    found = row(dropped_accuracy(frame(answers)), edit="background-random")
    means = np.mean(answers["background-random"], axis=0)
    difference = np.array(answers["original"]) - means
    assert found["n"] == 120
    assert found["runs"] == 5
    assert found["drop"] == pytest.approx(100 * difference.mean())
    # Five runs are no five hundred photographs: the interval is that of 120 differences.
    student = stats.t.ppf(0.975, 119) * difference.std(ddof=1) / np.sqrt(120)
    assert (found["high"] - found["low"]) / 200 == pytest.approx(student, rel=0.12)
    normal = 2 * stats.norm.sf(abs(difference.sum()) / np.sqrt((difference**2).sum()))
    assert 1e-4 < normal < 0.5
    assert found["p_value"] == pytest.approx(normal, rel=0.2, abs=0.005)


def test_shuffled_rows_and_other_models_change_nothing():
    shares = {"original": 0.92, "inversion": (0.9, 3), "background-simple": (0.8, 3), "size-0.05": 0.6}
    predictions = frame(random_answers(1, 200, shares))
    other = frame(random_answers(2, 260, shares), model="other")
    table = dropped_accuracy(predictions)
    shuffled = dropped_accuracy(pl.concat([other, predictions]).sample(fraction=1, shuffle=True, seed=3))
    mine = shuffled.filter(model="m")
    assert_frame_equal(table.drop("p_holm"), mine.drop("p_holm"))


def test_all_models_and_edits_share_their_resamples():
    """Two models with the same answers have the same interval, and a model and its copy differ by exactly nothing."""
    answers = random_answers(4, 400, {"original": 0.9, "size-0.05": 0.6, "size-0.1": 0.6})
    answers["size-0.1"] = answers["size-0.05"]
    table = dropped_accuracy(pl.concat([frame(answers), frame(answers, model="copy")])).filter(kind="edit")
    assert table["interval"].unique().to_list() == ["bootstrap"]
    assert table["low"].n_unique() == table["high"].n_unique() == 1


def test_bootstrap_interval_equals_a_plain_one():
    answers = random_answers(5, 500, {"original": 0.9, "size-0.05": 0.6})
    found = row(dropped_accuracy(frame(answers)), edit="size-0.05")
    difference = np.array(answers["original"]) - np.array(answers["size-0.05"])
    rng = np.random.default_rng(0)
    plain = [difference[rng.integers(0, 500, 500)].mean() for _ in range(4000)]
    low, high = np.quantile(plain, [0.025, 0.975])
    assert found["interval"] == "bootstrap"
    assert found["low"] == pytest.approx(100 * low, abs=0.6)
    assert found["high"] == pytest.approx(100 * high, abs=0.6)


def test_nothing_flipped_is_not_shown_as_certain():
    table = dropped_accuracy(frame({"original": [1] * 30, "size-0.1": [1] * 30}))
    found = row(table, edit="size-0.1")
    assert found["drop"] == 0
    assert found["low"] < -5
    assert found["high"] > 5
    assert found["p_value"] == 1


def test_the_papers_average_is_over_its_ten_edits():
    shares = dict.fromkeys(["original", "inversion", "reinsertion", "occlusion-0.2", *PAPER], 0.8)
    shares |= {"original": 0.95, "size-0.05": 0.4, "occlusion-0.2": 0.1, "inversion": 0.2}
    table = dropped_accuracy(frame(random_answers(6, 150, shares)))
    found = row(table, edit="average")
    drops = [row(table, edit=edit)["drop"] for edit in PAPER]
    assert found["edits"] == 10
    assert found["drop"] == pytest.approx(np.mean(drops))
    assert found["low"] < found["drop"] < found["high"]
    nets = [row(table, edit=edit)["net_drop"] for edit in PAPER]
    assert found["net_drop"] == pytest.approx(np.mean(nets))


def test_the_average_takes_the_direction_after_size_where_both_are_there():
    shares = dict.fromkeys(["original", *PAPER, "direction-small"], 0.8) | {"direction": 0.2}
    table = dropped_accuracy(frame(random_answers(6, 60, shares)))
    drops = [row(table, edit=edit)["drop"] for edit in [*PAPER[:-1], "direction-small"]]
    assert row(table, edit="average")["drop"] == pytest.approx(np.mean(drops))


def test_white_box_models_are_marked_and_left_out_of_averages(tmp_path):
    shares = {"original": 0.9, "background-adversarial": 0.5, "background-simple": 0.8}
    models = {name: frame(random_answers(seed, 80, shares)) for seed, name in enumerate(["a", "b", "guide"])}
    predictions = folder(tmp_path / "p", models, {"guide": {"white_box": True}})
    table = dropped_accuracy(predictions)
    assert table.filter("white_box").select("model", "edit").rows() == [("guide", "background-adversarial")]
    for name in models:  # averages over different edits could not be compared
        average = row(table, model=name, edit="average")
        assert average["edits"] == 1
        assert average["drop"] == pytest.approx(row(table, model=name, edit="background-simple")["drop"])
    means = dropped_accuracy_of_groups(predictions)
    assert means["models"].unique().to_list() == [2]
    for edit in ("background-adversarial", "background-simple"):
        own = [row(table, model=name, edit=edit)["drop"] for name in "ab"]
        assert row(means, edit=edit)["drop"] == pytest.approx(np.mean(own))


def test_a_frame_of_a_folder_gives_the_folders_table(tmp_path):
    """White-box marks live in the cards; frames of `read_predictions` carry them along."""
    shares = {"original": 0.9, "inversion": 0.85, "background-adversarial": 0.3, "background-simple": 0.8}
    models = {name: frame(random_answers(seed, 80, shares)) for seed, name in enumerate(["a", "b", "guide"])}
    predictions = folder(tmp_path / "p", models, {"guide": {"white_box": True}})
    expected = dropped_accuracy(predictions)
    assert row(expected, model="guide", edit="average")["edits"] == 1
    compared = compare(predictions, "a", "guide")
    for given in (read_predictions(predictions), scan_predictions(predictions)):
        assert_frame_equal(dropped_accuracy(given), expected)
        assert_frame_equal(dropped_accuracy_of_groups(given), dropped_accuracy_of_groups(predictions))
        assert_frame_equal(compare(given, "a", "guide"), compared)
        only = dropped_accuracy(given, models=["guide"]).drop("p_holm", "net_p_holm")
        assert_frame_equal(only, expected.filter(model="guide").drop("p_holm", "net_p_holm"))
    unmarked = dropped_accuracy(read_predictions(predictions).drop("white_box"))
    assert row(unmarked, model="guide", edit="average")["edits"] == 2


def test_a_frame_marks_the_edits_that_the_manifest_says(tmp_path):
    edits = {"original": {}, "adversarial-looking": {}, "attack": {"guide": "lite:0"}}
    bench = benchmark(tmp_path / "bench", edits, 40)
    shares = dict(zip(edits, (0.9, 0.8, 0.5), strict=True))
    models = {name: frame(random_answers(seed, 40, shares)) for seed, name in enumerate(["lite:0", "lite:1"])}
    card = {"benchmark": {"path": str(bench)}}
    predictions = folder(tmp_path / "p", models, {"lite:0": card | {"white_box": True}, "lite:1": card})
    rows = read_predictions(predictions)
    marked = rows.filter("white_box").select("model", "edit").unique().rows()
    assert marked == [("lite:0", "attack")]
    assert rows["white_box"].sum() == 40
    assert_frame_equal(dropped_accuracy(rows), dropped_accuracy(predictions))
    assert "white_box" not in pl.read_parquet_schema(predictions / "lite-0.parquet")


def test_the_manifest_says_controls_order_and_guide(tmp_path):
    edits = {
        "original": {},
        "warp": {},
        "zoom": {"control": "warp"},
        "attack": {"control": "warp", "guide": "lite:0"},
    }
    bench = benchmark(tmp_path / "bench", edits, 40)
    shares = dict(zip(edits, (0.9, 0.85, 0.6, 0.5), strict=True))
    card = {"white_box": True, "benchmark": {"path": str(bench)}}
    predictions = folder(tmp_path / "p", {"lite:0": frame(random_answers(0, 40, shares))}, {"lite:0": card})
    table = dropped_accuracy(predictions)
    assert table["edit"].to_list() == ["original", "warp", "zoom", "attack", "average"]
    assert table["kind"].to_list() == ["original", "control", "edit", "edit", "average"]
    zoom, warp = row(table, edit="zoom"), row(table, edit="warp")
    assert zoom["net_drop"] == pytest.approx(zoom["drop"] - warp["drop"])
    assert row(table, edit="attack")["white_box"]
    assert row(table, edit="average")["drop"] == pytest.approx(zoom["drop"])


def test_the_photograph_as_found_is_outside_the_drops():
    answers = {"source": [1] * 10, "original": [1] * 8 + [0] * 2, "size-0.1": [1] * 5 + [0] * 5}
    table = dropped_accuracy(frame(answers))
    found = row(table, edit="source")
    assert found["accuracy"] == 1
    assert found["drop"] is None
    assert found["p_value"] is None
    assert row(table, edit="size-0.1")["drop"] == pytest.approx(30)
    assert row(table, edit="average")["edits"] == 1


def test_missing_pictures_leave_their_photographs_out_of_that_edit_only():
    answers = {"original": [1, 1, 1, 1, 0, 0], "size-0.1": [1, None, 0, 0, None, 1], "position": [0, 1, 1, 1, 0, 0]}
    table = dropped_accuracy(frame(answers))
    found = row(table, edit="size-0.1")
    assert found["n"] == 4
    assert found["original_accuracy"] == pytest.approx(0.75)
    assert found["drop"] == pytest.approx(25)
    assert row(table, edit="position")["n"] == 6
    drops = [row(table, edit=edit)["drop"] for edit in ("size-0.1", "position")]
    assert row(table, edit="average")["drop"] == pytest.approx(np.mean(drops))


def test_a_missing_original_leaves_the_photograph_out():
    table = dropped_accuracy(frame({"original": [1, 1, None, 0], "size-0.1": [0, 1, 1, 1]}))
    assert row(table, edit="size-0.1")["n"] == 3


def test_models_with_different_edits_have_different_rows():
    one = frame({"original": [1, 1], "size-0.1": [0, 1]}, model="one")
    two = frame({"original": [1, 1], "position": [0, 1]}, model="two")
    table = dropped_accuracy(pl.concat([one, two]))
    assert set(table.filter(kind="edit").select("model", "edit").rows()) == {("one", "size-0.1"), ("two", "position")}


def test_a_model_that_is_never_right_has_no_relative_drop():
    answers = {"original": [0] * 8, "size-0.05": [0] * 8, "position": [1] + [0] * 7}
    table = dropped_accuracy(frame(answers))
    assert table.filter(pl.col("edit") != "original")["relative_drop"].null_count() == 3


def test_an_edit_that_renders_nothing_else_is_net_of_the_originals():
    """Lighting and color declare no control: nothing is rendered besides the change, so the drop itself is net."""
    answers = {"original": 0.9, "reinsertion": 0.8, "size-0.05": 0.6, "lighting-both-3": 0.5, "made-up": 0.5}
    table = dropped_accuracy(frame(random_answers(3, 60, answers)))
    light, size = row(table, edit="lighting-both-3"), row(table, edit="size-0.05")
    assert (light["control"], light["net_drop"]) == ("original", light["drop"])
    assert row(table, edit="made-up")["net_drop"] is None
    assert row(table, edit="average")["net_drop"] is None, "nothing is known about made-up's control"
    known = dropped_accuracy(frame(random_answers(3, 60, {k: v for k, v in answers.items() if k != "made-up"})))
    mean = (light["net_drop"] + size["net_drop"]) / 2
    assert row(known, edit="average")["net_drop"] == pytest.approx(mean)


def test_the_spread_over_fills_is_that_of_the_drops_of_each_run():
    answers = {"original": [[1, 1, 1, 1]], "size-0.05": [[1, 1, 0, 0], [1, 0, 0, 1]], "inversion": [[1, 1, 1, 0]]}
    rows = [
        {"model": "m", "source_id": f"s{photograph}", "edit": edit, "run": run, "correct": bool(right), "label": 0,
         "predicted": 0 if right else 1, "sample_id": f"{edit}/{photograph}.{run}"}
        for edit, runs in answers.items()
        for run, results in enumerate(runs)
        for photograph, right in enumerate(results)
    ]  # fmt: skip
    table = fill_spread(pl.DataFrame(rows))
    assert table.to_dicts() == [
        {"model": "m", "edit": "size-0.05", "n": 4, "runs": 2, "drop": 50.0, "lowest": 50.0, "highest": 50.0,
         "differing": 0.5}
    ]  # fmt: skip


def test_the_spread_over_fills_has_the_edits_in_the_order_of_the_predictions():
    edits = [f"size-0.{level}" for level in (5, 1, 9, 3, 7, 2, 8, 4, 6)]
    answers = {"original": [1] * 6} | {edit: [[1, 0, 1, 0, 1, 1], [0, 0, 1, 1, 1, 0]] for edit in edits}
    table = fill_spread(frame(answers))
    assert table["edit"].to_list() == edits
    assert table.select("n", "runs", "differing").unique().rows() == [(6, 2, 0.5)]
