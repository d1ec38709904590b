"""Curves: thresholds of synthetic observers recovered, flips found, interactions seen."""

import warnings

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from prediction_worlds import benchmark, folder, frame
from unswayed.analyses.drops.curves import accuracy_curves, curve_fits, smallest_flips
from unswayed.analyses.drops.psychometric import fit_logistic, tells_halfway
from unswayed.analyses.drops.sweeps import find_sweeps, interactions
from unswayed.evaluation.facts import Facts

SIZES = np.geomspace(0.02, 0.5, 9)


def observer(seed, n, halfway, steep=2.5, lapse=0.05, levels=SIZES, log=True):
    """Answers along a sweep of sizes of an observer whose half-way size is known."""
    rng = np.random.default_rng(seed)
    axis, middle = (np.log(levels), np.log(halfway)) if log else (levels, halfway)
    chance = (1 - lapse) * expit(steep * (axis - middle))
    answers = {"original": (rng.random(n) < 0.97).astype(int)}
    return answers | {
        f"size-{level:g}": (rng.random(n) < p).astype(int) for level, p in zip(levels, chance, strict=True)
    }


@pytest.mark.parametrize("halfway", [0.05, 0.1])
@pytest.mark.parametrize("lapse", [0.02, 0.15])
def test_the_half_way_size_of_an_observer_is_recovered(halfway, lapse):
    found = curve_fits(frame(observer(1, 800, halfway, lapse=lapse))).row(0, named=True)
    assert found["halfway"] == pytest.approx(halfway, rel=0.1)
    assert found["ceiling"] == pytest.approx(1 - lapse, abs=0.04)
    assert found["low"] < halfway < found["high"]
    assert found["scale"] == "log"


@pytest.mark.parametrize("top", [0.2, 0.3, 0.5, 0.9])
def test_weak_and_strong_observers_have_the_same_half_way_size(top):
    found = [curve_fits(frame(observer(seed, 1000, 0.07, lapse=1 - top)), resamples=200) for seed in range(8)]
    table = pl.concat(found)
    assert table["halfway"].to_numpy() == pytest.approx(np.full(8, 0.07), rel=0.25)
    assert table["halfway"].mean() == pytest.approx(0.07, rel=0.08)
    assert table["ceiling"].mean() == pytest.approx(top, rel=0.05)
    # 95 % of 8 is 7.6; fewer than 6 happens once in a hundred and seventy.
    assert ((table["low"] <= 0.07) & (table["high"] >= 0.07)).sum() >= 6


@pytest.mark.parametrize("accuracy", [0.0, 0.02, 0.3, 0.9, 1.0])
def test_a_flat_observer_has_no_half_way_size(accuracy):
    rng = np.random.default_rng(4)
    answers = {f"size-{level:g}": (rng.random(1000) < accuracy).astype(int) for level in SIZES}
    found = curve_fits(frame({"original": [1] * 1000} | answers), resamples=50).row(0, named=True)
    assert (found["halfway"], found["low"], found["high"]) == (None, None, None)
    told = [tells_halfway(np.log(SIZES), rng.binomial(100, accuracy, 9), np.full(9, 100)) for _ in range(60)]
    # Each of two tests at 5 % must err; three of 60 would be one test alone.
    assert sum(told) < 3


@pytest.mark.parametrize("halfway", [0.5, 1.0])
@pytest.mark.parametrize("top", [0.2, 0.9])
def test_a_top_that_was_not_seen_gives_no_half_way_size(top, halfway):
    rng = np.random.default_rng(5)
    chance = top * expit(2.5 * np.log(SIZES / halfway))
    told = [tells_halfway(np.log(SIZES), rng.binomial(400, chance), np.full(9, 400)) for _ in range(40)]
    # The test is at 5 %: 2 of 40; seven or more happen once in two hundred.
    assert sum(told) < 7


def test_half_way_intervals_hold_the_truth():
    held = 0
    for seed in range(60):
        found = curve_fits(frame(observer(seed, 120, 0.08)), resamples=200).row(0, named=True)
        held += found["low"] <= 0.08 <= found["high"]
    # 95 % of 60 is 57; fewer than 52 happens once in a hundred.
    assert held >= 52


def test_the_fit_is_the_maximum_of_the_likelihood():
    x = np.linspace(-2, 2, 7)
    right, n = np.array([3, 5, 12, 30, 41, 44, 46]), np.full(7, 50)
    fit = fit_logistic(x, right, n)

    def loss(theta):
        ceiling, of_ceiling = expit(-theta[2]), expit(theta[3])
        floor = ceiling * of_ceiling
        p = np.clip(floor + (ceiling - floor) * expit(np.exp(theta[1]) * (x - theta[0])), 1e-9, 1 - 1e-9)
        # The weak prior of half an answer at either end, half of it right.
        prior = sum(0.25 * np.log(share * (1 - share)) for share in (ceiling, of_ceiling))
        return -(right * np.log(p) + (n - right) * np.log1p(-p)).sum() - prior

    options = {"maxiter": 8000, "xatol": 1e-7, "fatol": 1e-9}
    starts = [[halfway, slope, -2.0, -3.0] for halfway in (-0.5, 0.5) for slope in (0, 1)]
    best = min(
        (minimize(loss, start, method="Nelder-Mead", options=options) for start in starts), key=lambda one: one.fun
    )
    assert fit.halfway[0] == pytest.approx(best.x[0], abs=1e-3)
    assert fit.slope[0] == pytest.approx(np.exp(best.x[1]), rel=1e-2)
    assert fit.ceiling[0] == pytest.approx(expit(-best.x[2]), abs=1e-3)
    assert fit.floor[0] == pytest.approx(expit(-best.x[2]) * expit(best.x[3]), abs=1e-3)


def test_many_fits_at_once_are_the_fits_one_by_one():
    rng = np.random.default_rng(0)
    x, n = np.arange(6.0), np.full((20, 6), 40)
    right = rng.binomial(n, 0.9 * expit(-1.5 * (x - rng.uniform(1, 4, (20, 1)))))
    together = fit_logistic(x, right, n)
    alone = [fit_logistic(x, one, n[0]).halfway[0] for one in right]
    np.testing.assert_allclose(together.halfway, alone, atol=1e-3)
    assert (together.slope < 0).all()


def test_what_lies_outside_the_sweep_is_not_claimed():
    found = curve_fits(frame(observer(2, 300, 0.001))).row(0, named=True)
    assert found["halfway"] is None
    assert found["low"] is None


def test_a_sweep_through_zero_is_two_curves():
    rng = np.random.default_rng(0)
    levels = [-40, -30, -20, -10, 0, 10, 20, 30, 40]
    answers = {"original": [1] * 400}
    for level in levels:
        middle = 25 if level > 0 else 15
        name = f"direction{level:+d}" if level else "direction-0"
        answers[name] = (rng.random(400) < expit(0.3 * (middle - abs(level)))).astype(int)
    fits = curve_fits(frame(answers))
    assert fits["side"].to_list() == ["below 0", "above 0"]
    assert fits["halfway"].to_list() == pytest.approx([15, 25], abs=2)
    assert fits["scale"].unique().to_list() == ["linear"]


def test_unlike_edits_do_not_share_a_curve():
    names = ["original", *(f"lighting-{where}{stops}" for where in ("object", "both") for stops in ("-3", "-2", "-1"))]
    names += [f"blur-{pixels}" for pixels in (1, 2)]
    found = find_sweeps(names, Facts())
    assert [one.attribute for one in found] == ["lighting-both", "lighting-object"]


def test_curves_hold_accuracy_and_true_probability():
    predictions = frame(observer(3, 100, 0.08)).with_columns(true_probability=pl.col("correct").cast(pl.Float64) * 0.5)
    table = accuracy_curves(predictions)
    assert table["level"].to_list() == pytest.approx([float(f"{one:g}") for one in SIZES])
    assert (table["n"] == 100).all()
    assert (table["low"] < table["accuracy"]).all()
    np.testing.assert_allclose(table["true_probability"], table["accuracy"] / 2)
    assert accuracy_curves(predictions.drop("true_probability"))["true_probability"].null_count() == len(SIZES)


def test_levels_come_from_the_manifest_where_there_is_one(tmp_path):
    edits = {"original": {}} | {f"size-{i}": {"attribute": "size", "level": str(10 * i)} for i in (1, 2, 3)}
    bench = benchmark(tmp_path / "bench", edits, 4)
    predictions = folder(
        tmp_path / "p", {"a": frame(dict.fromkeys(edits, [1, 0, 1, 1]))}, {"a": {"benchmark": {"path": str(bench)}}}
    )
    assert accuracy_curves(predictions)["level"].to_list() == [10, 20, 30]


def test_no_sweep_gives_empty_tables_with_their_columns():
    predictions = frame({"original": [1, 1], "position": [1, 0]})
    for table in (
        accuracy_curves(predictions),
        curve_fits(predictions),
        smallest_flips(predictions),
        interactions(predictions),
    ):
        assert table.height == 0
        assert "model" in table.columns


def test_the_smallest_change_that_flips_each_picture():
    answers = {
        "original": [1, 1, 1, 0],
        "size-0.4": [1, 1, 1, 1],
        "size-0.2": [1, 0, 1, 0],
        "size-0.1": [0, 1, 1, 0],
        "size-0.05": [0, 0, 1, 0],
    }
    table = smallest_flips(frame(answers))
    found = {row["source_id"]: (row["level"], row["returns"]) for row in table.iter_rows(named=True)}
    assert found == {"image-0000": (0.1, False), "image-0001": (0.2, True), "image-0002": (None, False)}


def test_flips_of_a_model_that_is_never_right_and_of_levels_without_rows():
    sizes = ("size-0.4", "size-0.2", "size-0.1")
    never = frame({"original": [0, 0]} | dict.fromkeys(sizes, [0, 0]), model="never")
    answers = {"original": [1, 0], "size-0.4": [1, 1], "size-0.2": [None, 0], "size-0.1": [0, 0]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = smallest_flips(pl.concat([never, frame(answers)]))
    assert table.select("model", "source_id", "level", "returns").rows() == [("m", "image-0000", 0.1, False)]


def grid(path, singles, pair_share):
    """A grid of size and direction where each alone loses a fifth, and the pair as given."""
    rng = np.random.default_rng(0)
    n = 400
    edits = {"original": {}}
    shares = {"original": 1.0}
    for size in ("0.5", "0.05"):
        for turn in ("0", "40"):
            name = f"size-{size}-direction-{turn}"
            edits[name] = {"attribute": "size x direction", "level": f"{size} x {turn}"}
            hard = (size == "0.05") + (turn == "40")
            shares[name] = {0: 1.0, 1: 0.8, 2: pair_share}[hard]
    if singles:
        edits |= {
            "size-0.05": {"attribute": "size", "level": "0.05"},
            "direction-40": {"attribute": "direction", "level": "40"},
        }
        shares |= {"size-0.05": 0.8, "direction-40": 0.8}
    bench = benchmark(path / "bench", edits, n)
    answers = {edit: (rng.random(n) < share).astype(int) for edit, share in shares.items()}
    return folder(path / "p", {"a": frame(answers)}, {"a": {"benchmark": {"path": str(bench)}}})


@pytest.mark.parametrize("singles", [False, True])
def test_a_pair_worse_than_the_sum_is_seen(tmp_path, singles):
    table = interactions(grid(tmp_path, singles, pair_share=0.2)).filter(edit="size-0.05-direction-40")
    found = table.row(0, named=True)
    assert found["interaction"] == pytest.approx(40, abs=8)
    assert found["interaction"] == pytest.approx(found["drop"] - found["first_drop"] - found["second_drop"])
    assert found["low"] > 20
    assert found["p_holm"] < 0.001
    assert found["reference"] == ("original" if singles else "size-0.5-direction-0")


def test_a_pair_that_is_the_sum_shows_no_interaction(tmp_path):
    found = interactions(grid(tmp_path, True, pair_share=0.6)).filter(edit="size-0.05-direction-40").row(0, named=True)
    assert found["low"] < 0 < found["high"]
