"""Thresholds: the hardest level that still meets a target, by curve and by isotonic regression, and as a gate."""

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, logit
from test_curves import SIZES, observer

from command_line import run_cli
from prediction_worlds import folder, frame
from unswayed.analyses.drops.curves import EVERY, NO, thresholds
from unswayed.analyses.drops.gate import run_checks
from unswayed.analyses.drops.limits import Rules, read_rules
from unswayed.analyses.drops.psychometric import fit_logistic, isotonic_crossing
from unswayed.analyses.settings import parse_threshold
from unswayed.errors import UserError

LEVELS = np.geomspace(0.01, 0.5, 12)


@pytest.mark.parametrize(("floor", "ceiling"), [(0.001, 0.91), (0.3, 0.6), (0.5, 1.0)])
def test_floor_and_ceiling_are_found(floor, ceiling):
    rng = np.random.default_rng(0)
    p = floor + (ceiling - floor) * expit(3 * (np.log(LEVELS) - np.log(0.0486)))
    fit = fit_logistic(np.log(LEVELS), rng.binomial(2000, p), np.full(12, 2000))
    assert fit.floor[0] == pytest.approx(floor, abs=0.02)
    assert fit.ceiling[0] == pytest.approx(ceiling, abs=0.02)
    assert np.exp(fit.halfway[0]) == pytest.approx(0.0486, rel=0.06)


@pytest.mark.slow
def test_thresholds_of_simulated_observers_are_unbiased_and_their_intervals_hold():
    """Two thousand observers with floors from 0.001 to 0.5 and ceilings from 0.6 to 1."""
    rng = np.random.default_rng(1)
    x, n, runs, draws = np.log(LEVELS), 150, 2000, 100
    true, target, counts = np.empty((runs, 2)), np.empty(runs), []
    for run in range(runs):
        floor = np.exp(rng.uniform(np.log(0.001), np.log(0.5)))
        ceiling = rng.uniform(max(0.6, floor + 0.25), 1.0)
        slope, halfway = rng.uniform(1.5, 4), np.log(rng.uniform(0.03, 0.12))
        answers = rng.random((n, len(x))) < floor + (ceiling - floor) * expit(slope * (x - halfway))
        weights = rng.multinomial(n, np.full(n, 1 / n), size=draws).astype(np.float32)
        counts.append(np.vstack([answers.sum(axis=0), weights @ answers.astype(np.float32)]))
        target[run], true[run] = floor + 0.7 * (ceiling - floor), (halfway, halfway + logit(0.7) / slope)
    errors, held = np.empty((runs, 2)), np.empty((runs, 2), bool)
    for first in range(0, runs, 100):
        part = slice(first, first + 100)
        right = np.concatenate(counts[part])
        answered = np.full(right.shape, float(n))
        crossing = isotonic_crossing(x, right / n, answered, np.repeat(target[part], draws + 1), True)
        for place, values in enumerate((fit_logistic(x, right, answered).halfway, crossing)):
            each = values.reshape(100, draws + 1)
            low, high = np.quantile(each[:, 1:], [0.025, 0.975], axis=1, method="inverted_cdf")
            errors[part, place] = np.exp(each[:, 0] - true[part, place]) - 1
            held[part, place] = (low <= true[part, place]) & (true[part, place] <= high)
    bias = np.abs(np.median(errors, axis=0))
    assert bias[0] < 0.05
    assert bias[1] < 0.10
    assert 0.93 <= held[:, 0].mean() <= 0.97
    assert 0.90 <= held[:, 1].mean() <= 0.98


def test_the_smallest_size_that_keeps_an_accuracy():
    found = thresholds(frame(observer(1, 1500, 0.05, lapse=0.09)), accuracy=[80, 95], drop=[10], resamples=200)
    rows = {row["target"]: row for row in found.iter_rows(named=True)}
    true = 0.05 * np.exp(logit(0.8 / 0.91) / 2.5)
    kept = rows["accuracy ≥ 80 %"]
    assert kept["threshold"] == pytest.approx(true, rel=0.1)
    assert kept["fitted"] == pytest.approx(true, rel=0.1)
    assert kept["low"] < true < kept["high"]
    assert kept["harder"] == "below"
    assert rows["accuracy ≥ 95 %"]["met"] == NO
    assert rows["accuracy ≥ 95 %"]["threshold"] is None
    # The originals are answered right to 97 %: ten points less is 87 %.
    assert rows["drop ≤ 10 points"]["threshold"] == pytest.approx(0.05 * np.exp(logit(0.87 / 0.91) / 2.5), rel=0.2)


def test_a_target_that_every_level_meets():
    answers = {"original": [1] * 50} | {f"size-{level:g}": [1] * 50 for level in SIZES}
    assert thresholds(frame(answers), accuracy=[80], resamples=20)["met"].to_list() == [EVERY]


def test_harder_means_larger_where_accuracy_falls():
    rng = np.random.default_rng(0)
    answers = {"original": [1] * 600}
    answers |= {
        f"direction+{level}": (rng.random(600) < 0.95 * expit(0.2 * (40 - level))).astype(int)
        for level in (5, 15, 25, 35, 45, 60, 80)
    }
    row = thresholds(frame(answers), accuracy=[80], resamples=100).row(0, named=True)
    assert row["harder"] == "above"
    assert row["threshold"] == pytest.approx(40 - logit(0.8 / 0.95) / 0.2, abs=4)


@pytest.mark.parametrize(("wanted", "verdict"), [(0.2, "pass"), (0.03, "fail")])
def test_the_gate_on_a_threshold(wanted, verdict):
    predictions = frame(observer(1, 800, 0.05))
    checks = run_checks(predictions, Rules(min_threshold={"size": (wanted, 80.0)}), resamples=100).checks
    assert checks["verdict"].to_list() == [verdict]
    assert "n = 800" in checks["reason"][0]


def test_the_gate_where_no_level_meets_the_target():
    answers = {"original": [1] * 50} | {f"size-{level:g}": [0] * 50 for level in SIZES}
    checks = run_checks(frame(answers), Rules(min_threshold={"size": (0.1, 80.0)}), resamples=50).checks
    assert checks["verdict"].to_list() == ["fail"]


def test_bad_thresholds_are_refused():
    for text in ("size", "size=0.04", "size=x@80", "=0.04@80", "size=0.04@0.8"):
        with pytest.raises(UserError, match="min-threshold"):
            parse_threshold(text)
    predictions = frame(observer(1, 50, 0.05))
    with pytest.raises(UserError, match="sise"):
        run_checks(predictions, Rules(min_threshold={"sise": (0.04, 80.0)}))
    with pytest.raises(UserError, match="levels swept"):
        run_checks(predictions, Rules(min_threshold={"size": (0.001, 80.0)}))
    for accuracy in (120, 0.8):
        with pytest.raises(UserError, match="80 means 80 %"):
            thresholds(predictions, accuracy=[accuracy])


def test_the_commands_print_and_gate_thresholds(tmp_path):

    predictions = folder(tmp_path / "p", {"a": frame(observer(1, 400, 0.05), model="a")}, {"a": {}})
    shown = run_cli("analyze", predictions, "--table", "thresholds", "--at-accuracy", "80", "--format", "csv")
    assert shown.exit_code == 0, shown.output
    assert pl.read_csv(shown.output.encode())["target"].to_list() == ["accuracy ≥ 80 %"]
    passed = run_cli("check", predictions, "--min-threshold", "size=0.2@80")
    assert passed.exit_code == 0, passed.output
    config = tmp_path / "gate.toml"
    config.write_text('[min-threshold]\nsize = "0.03@80"\n')
    assert read_rules(config).min_threshold == {"size": (0.03, 80.0)}
    failed = run_cli("check", predictions, "--config", config)
    assert failed.exit_code == 1, failed.output


@pytest.mark.parametrize("rising", [True, False])
def test_crossings_are_those_of_scipys_isotonic_regression(rising):
    from scipy.optimize import isotonic_regression

    rng = np.random.default_rng(3)
    x, n = np.sort(rng.uniform(0, 1, 6)), rng.integers(0, 4, (300, 6)).astype(float)
    share, target = rng.uniform(0, 1, (300, 6)), rng.uniform(0.2, 0.8, 300)
    order = np.argsort(x if rising else -x)
    easy, hard = (np.inf, -np.inf) if rising else (-np.inf, np.inf)
    expected = []
    for row, weight, value in zip(share[:, order], n[:, order], target, strict=True):
        there = weight > 0
        fitted = isotonic_regression(row[there], weights=weight[there]).x if there.any() else np.empty(0)
        if not (fitted >= value).any():
            expected.append(easy)
        elif fitted[0] >= value:
            expected.append(hard)
        else:
            expected.append(np.interp(value, *_last_step(fitted, x[order][there], value)))
    assert isotonic_crossing(x, share, n, target, rising) == pytest.approx(np.array(expected))


def _last_step(fitted, at, value):
    """The last level below the value and the first one that reaches it."""
    after = int(np.argmax(fitted >= value))
    return fitted[after - 1 : after + 1], at[after - 1 : after + 1]
