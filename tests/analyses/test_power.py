"""Power: what `plan` says is what a separate simulation of experiments finds, and pilots give back their own design."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from command_line import run_cli
from prediction_worlds import folder, frame
from unswayed.analyses.drops.gate import run_checks
from unswayed.analyses.drops.limits import Rules
from unswayed.analyses.drops.planning import pilot_designs, plan_photographs
from unswayed.analyses.statistics.paired import mcnemar, sign_flip, sign_flips, tango_interval
from unswayed.analyses.statistics.power import (
    Design,
    detection_power,
    pass_power,
    photographs_to_detect,
    photographs_to_pass,
    photographs_to_tell,
    simulated_detection_power,
    simulated_differences,
    simulated_pass_power,
    smallest_drop,
)
from unswayed.errors import UserError


@pytest.mark.parametrize(("n", "drop"), itertools.product((40, 150, 600), (0.02, 0.06, 0.15)))
@pytest.mark.parametrize("discordance", [0.16, 0.3])
def test_the_power_of_one_run_is_the_share_of_experiments_that_find_the_drop(n, drop, discordance):
    design = Design(drop, gains=(discordance - drop) / 2, accuracy=0.7)
    assert design.discordance == pytest.approx(discordance)
    rng = np.random.default_rng([n, round(1000 * drop), round(100 * discordance)])
    # Answer by answer, with none of the module's own simulation: right before, right after.
    before = rng.random((4000, n)) < design.accuracy
    turn = np.where(before, design.losses / 0.7, design.gains / 0.3)
    after = before ^ (rng.random((4000, n)) < turn)
    found = mcnemar((before & ~after).sum(1), (~before & after).sum(1)) < 0.05
    assert detection_power(design, n) == pytest.approx(found.mean(), abs=0.03)


@pytest.mark.parametrize("n", [30, 100, 300, 1000])
@pytest.mark.parametrize("drop", [0.03, 0.08, 0.15])
@pytest.mark.parametrize("discordance", [0.16, 0.3])
def test_the_power_of_three_runs_is_the_share_of_experiments_that_find_the_drop(n, drop, discordance):
    design = Design(drop, gains=(discordance - drop) / 2, accuracy=0.7, runs=3, correlation=0.5)
    rng = np.random.default_rng([n, round(1000 * drop), round(100 * discordance)])
    draws = 4000 if n < 1000 else 2000
    # Answer by answer, with none of the module's own simulation: each photograph has its own chance of a change.
    right = rng.random((draws, n)) < design.accuracy
    means = np.where(right, design.losses / 0.7, design.gains / 0.3)
    changes = rng.binomial(3, rng.beta(means, 1 - means))  # the parameters of a beta with a correlation of 1/2
    sizes = np.stack([(changes == number).sum(axis=1) for number in (1, 2, 3)], axis=1)
    found = sign_flips(sizes, np.where(right, changes, -changes).sum(axis=1)) < 0.05
    assert detection_power(design, n) == pytest.approx(found.mean(), abs=0.03)


def test_correlated_runs_are_worth_less():
    design = Design(0.06, 0.02, accuracy=0.75, runs=3)
    assert detection_power(replace(design, correlation=1.0), 150) < detection_power(
        replace(design, correlation=0.0), 150
    )


def test_p_values_of_many_experiments_are_those_of_one():
    differences = np.random.default_rng(3).integers(-2, 4, (20, 15)) / 3
    steps = np.rint(3 * differences).astype(int)
    sizes = np.stack([(abs(steps) == number).sum(axis=1) for number in (1, 2, 3)], axis=1)
    expected = [sign_flip(one, lattice=3) for one in differences]
    assert sign_flips(sizes, steps.sum(axis=1)) == pytest.approx(expected, rel=1e-9)


def test_runs_that_always_agree_gain_nothing():
    one, five = Design(0.08, 0.04, 0.8), Design(0.08, 0.04, 0.8, runs=5, correlation=1.0)
    assert simulated_detection_power(five, 200) == pytest.approx(simulated_detection_power(one, 200), abs=0.045)
    assert five.deviation == pytest.approx(one.deviation)


def test_simulated_differences_have_the_designs_moments():
    design = Design(0.12, 0.05, 0.8, runs=4, correlation=0.3)
    found = simulated_differences(design, 400_000, np.random.default_rng(0))
    assert found.mean() == pytest.approx(design.drop, abs=0.002)
    assert found.var() == pytest.approx(design.deviation**2, abs=0.002)


def test_the_number_of_photographs_reaches_the_power_and_not_earlier_than_it_must():
    design = Design(0.05, 0.04)
    n = photographs_to_detect(design)
    assert detection_power(design, n) >= 0.8 > detection_power(design, n - 20)
    assert smallest_drop(design, n) == pytest.approx(0.05, abs=0.002)
    assert photographs_to_detect(replace(design, drop=0.0)) is None
    assert smallest_drop(design, 3) is None


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize(
    ("n", "drop", "gains", "room"),
    [(60, 0.0, 0.04, 0.1), (150, 0.0, 0.01, 0.02), (150, 0.03, 0.1, 0.08), (1500, 0.05, 0.05, 0.03)],
)
def test_the_gate_passes_as_often_as_planned(runs, n, drop, gains, room):
    design = Design(drop, gains, runs=runs)
    simulated = simulated_pass_power(design, n, drop + room, seed=1)
    assert pass_power(design, n, drop + room) == pytest.approx(simulated, abs=0.03)


def test_the_number_of_photographs_for_the_gate_reaches_the_power():
    design = Design(0.05, 0.03)
    assert simulated_pass_power(design, photographs_to_pass(design, 0.1), 0.1, seed=1) == pytest.approx(0.8, abs=0.03)
    assert photographs_to_pass(replace(design, drop=0.1), 0.1) is None


def test_impossible_designs_are_refused_with_what_is_possible():
    with pytest.raises(UserError, match="a drop of 80 points .* is impossible at an accuracy of 70 %"):
        Design(0.8, 0.01, 0.7)
    with pytest.raises(UserError, match="gains of at most 20 %"):
        Design(0.1, 0.3, 0.8)
    with pytest.raises(UserError, match="power is 80"):
        plan_photographs({("m", "e"): Design(0.1)}, photographs=[100], power=80)


def made_pilot(design, n, seed=0):
    rng = np.random.default_rng(seed)
    found = simulated_differences(design, n, rng)
    base = np.where(found > 0, 1, np.where(found < 0, 0, rng.random(n) < design.accuracy)).astype(int)
    right = np.rint((base - found) * design.runs).astype(int)
    runs = [(right > run).astype(int) for run in range(design.runs)]
    return frame({"original": base, "size-0.05": runs if design.runs > 1 else runs[0]})


def test_a_large_pilot_gives_its_own_design_back():
    design = Design(0.15, 0.03, 0.8, runs=3, correlation=0.4)
    designs, counts = pilot_designs(made_pilot(design, 4000))
    found = designs["m", "size-0.05"]
    assert counts["m", "size-0.05"] == 4000 and found.runs == 3
    assert found.drop == pytest.approx(0.15, abs=0.02)
    assert found.gains == pytest.approx(0.03, abs=0.01)
    assert found.correlation == pytest.approx(0.4, abs=0.08)


def test_a_pilot_of_one_run_expects_nothing_from_more_runs():
    designs, _ = pilot_designs(made_pilot(Design(0.15, 0.03, 0.8), 300), runs=5)
    found = designs["m", "size-0.05"]
    assert (found.runs, found.correlation) == (5, 1.0)


def test_the_photographs_that_check_asks_for_do_tell():
    checks = run_checks(frame({"original": [1] * 60, "e": [0] * 6 + [1] * 54}), Rules(max_drop={"e": 14})).checks
    row = checks.row(0, named=True)
    assert row["verdict"] == "cannot tell" and f"about {row['more']:,} more photographs" in row["reason"]
    n = 60 + row["more"]
    passing = simulated_pass_power(Design(0.1, 0.0, 1.0), n, 0.14, draws=1000)
    assert 0.7 < passing < 0.95
    larger = frame({"original": [1] * n, "e": [0] * (n // 10) + [1] * (n - n // 10)})
    assert run_checks(larger, Rules(max_drop={"e": 14})).checks["verdict"].to_list() == ["pass"]


def test_no_number_tells_what_lies_at_the_limit():
    assert photographs_to_tell(value=5, low=3, high=7, n=100, at_most=5) is None
    checks = run_checks(frame({"original": [1] * 60, "e": [0] * 6 + [1] * 54}), Rules(max_drop={"e": 10})).checks
    assert checks["more"].to_list() == [None] and "no feasible number" in checks["reason"][0]


def numbers_of(page):
    """The rows of the first table of a page that count photographs: their number, and the numbers beside it."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    table = re.search(r"^\| photographs \|.*\n\|[-:| ]+\n((?:\|.*\n)+)", text, re.MULTILINE)[1]
    rows = [re.findall(r"[\d,.]*\d", row) for row in table.splitlines()]
    return {int(first.replace(",", "")): [float(cell) for cell in cells] for first, *cells in rows}


def test_the_gates_page_opens_with_the_margins_of_the_intervals():
    """A check passes if the upper end is below the limit, so the margin is that end beyond the drop itself."""
    changed = np.array([(drop / 100 + 0.03, 0.03) for drop in (0, 5, 10, 20)] + [(0.02, 0.02)])
    losses, gains = changed.T
    for n, shown in numbers_of("gate.md").items():
        _, high = tango_interval(losses * n, gains * n, np.array(n))
        assert (100 * (high - losses + gains)).round(1).tolist() == shown, n


@pytest.mark.parametrize(("page", "digits"), [("ready.md", 1), ("plan.md", 2)])
def test_the_smallest_drops_of_the_pages_are_those_of_plan(page, digits):
    for n, shown in numbers_of(page).items():
        assert round(100 * smallest_drop(Design(0.0), n), digits) == shown[0], n


def run_plan(*arguments):
    result = run_cli("plan", *arguments)
    return result.exit_code, result.stdout, result.stderr


def test_the_command_answers_from_a_guess_and_from_a_pilot(tmp_path, capsys, monkeypatch):
    code, out, _ = run_plan("--drop", 5, "--gains", 3, "--format", "json")
    table = pl.read_json(out.encode())
    assert code == 0 and table["photographs"].to_list() == [photographs_to_detect(Design(0.05, 0.03))]
    assert abs(table["power"][0] - table["simulated"][0]) < 0.03

    pilot = folder(tmp_path / "p", {"m": made_pilot(Design(0.15, 0.03, 0.8), 200)})
    code, out, _ = run_plan(pilot)
    assert code == 0 and "smallest drop" in out and "photographs that" in out
    code, _, err = run_plan(pilot, "--edit", "sise-0.05")
    assert code == 2 and "size-0.05" in err
