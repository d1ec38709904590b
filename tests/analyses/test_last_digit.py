"""Small numbers that a reader meets: averages by attribute, the reference of a drop, half of the accuracy, zero."""

import json

import numpy as np
import polars as pl
import pytest
from test_curves import SIZES, observer

from command_line import refusal, run_cli
from prediction_worlds import folder, frame, random_answers, row
from unswayed.analyses.drops.curves import curve_fits
from unswayed.analyses.drops.drop import attribute_averages, dropped_accuracy
from unswayed.analyses.drops.gate import check
from unswayed.analyses.drops.limits import check_row
from unswayed.analyses.statistics.paired import sign_flip
from unswayed.analyses.tables import analyze

SHARES = {
    "original": 0.95, "reinsertion": 0.93, "size-0.1": 0.8, "size-0.05": 0.6, "position": 0.85,
    "background-random": 0.75, "direction-small": 0.5,
}  # fmt: skip


def test_averages_by_attribute_are_means_over_its_edits():
    answers = random_answers(2, 80, SHARES)
    table, drops = attribute_averages(frame(answers)), dropped_accuracy(frame(answers))
    sizes = row(table, attribute="size")
    each = [row(drops, edit=edit) for edit in ("size-0.05", "size-0.1")]
    assert (sizes["edit"], sizes["edits"], sizes["n"]) == ("size-0.05, size-0.1", 2, 80)
    assert sizes["drop"] == pytest.approx(np.mean([edit["drop"] for edit in each]))
    assert sizes["net_drop"] == pytest.approx(np.mean([edit["net_drop"] for edit in each]))
    assert sizes["low"] < sizes["drop"] < sizes["high"]
    means = {edit: np.array(column, dtype=float) for edit, column in answers.items()}
    difference = means["original"] - (means["size-0.05"] + means["size-0.1"]) / 2
    assert sizes["p_value"] == pytest.approx(sign_flip(difference, 2))
    assert sizes["p_holm"] > sizes["p_value"], "attributes share one correction"
    # An edit of two attributes belongs to the last: `direction-small` is the direction of the average.
    assert dict(table.select("attribute", "edit").rows())["direction"] == "direction-small"


def test_the_table_of_attributes_is_printed_with_its_intervals(tmp_path):
    there = folder(tmp_path / "p", {"m": frame(random_answers(2, 80, SHARES))})
    text = run_cli("analyze", there, "--table", "attributes", code=0).stdout
    for attribute in ("size", "background", "position", "direction"):
        (line,) = (line for line in text.splitlines() if line.split()[:1] == [attribute])
        assert " to " in line


def test_drops_against_the_source_files(tmp_path):
    """The framed originals cost 10 points here, which the drops against the source files contain."""
    answers = {"source": [1] * 20, "original": [1] * 18 + [0] * 2, "size-0.05": [1] * 10 + [0] * 10}
    there = folder(tmp_path / "p", {"m": frame(answers)})
    by_original, by_source = (analyze(there, reference=name) for name in ("original", "source"))
    assert row(by_original, edit="size-0.05")["drop"] == pytest.approx(40)
    assert row(by_source, edit="size-0.05")["drop"] == pytest.approx(50)
    assert row(by_source, edit="source")["accuracy"] == 1
    assert "original" not in by_source["edit"].to_list()
    assert "50.0" in run_cli("analyze", there, "--reference", "source", code=0).stdout
    without = folder(tmp_path / "q", {"m": frame(answers).filter(pl.col("edit") != "source")})
    refusal(run_cli("analyze", without, "--reference", "source"), given="no edit 'source'", allowed="original")


def test_half_of_the_accuracy_is_not_the_middle_of_the_curve(tmp_path):
    """Before, the middle between floor and ceiling was titled as the level at which half of the accuracy is lost."""
    # accuracy(size) falls from 0.95 to a floor of 0.55: halfway it is 0.75, and half is never lost.
    high_floor = observer(1, 800, 0.07)
    rng = np.random.default_rng(0)
    lifted = {edit: np.maximum(column, rng.random(800) < 0.55) for edit, column in high_floor.items()}
    fits = curve_fits(frame(lifted), resamples=100).row(0, named=True)
    assert fits["halfway"] is not None and fits["half_lost"] is None
    fits = curve_fits(frame(observer(1, 800, 0.07)), resamples=100).row(0, named=True)
    middle = (fits["floor"] + fits["ceiling"]) / 2
    original = row(dropped_accuracy(frame(observer(1, 800, 0.07))), edit="original")["accuracy"]
    assert (fits["half_lost"] < fits["halfway"]) == (original / 2 < middle)
    assert fits["half_low"] < fits["half_lost"] < fits["half_high"]
    there = folder(tmp_path / "p", {"m": frame(observer(1, 300, 0.07))})
    text = run_cli("analyze", there, "--table", "fits", "--resamples", 50, code=0).stdout
    assert "half_lost" in text and "midway between floor and" in " ".join(text.split())
    assert "The level at which half of the accuracy is lost" not in text


@pytest.mark.parametrize("table", ["fits", "thresholds", "curves"])
def test_tables_of_a_sweep_print_their_intervals_in_80_columns(tmp_path, table):
    there = folder(tmp_path / "p", {"m": frame(observer(1, 300, 0.07))})
    text = run_cli("analyze", there, "--table", table, "--resamples", 50, code=0).stdout
    rows = [line for line in text.splitlines() if line.split()[:1] == ["size"]]
    assert rows and " to " in rows[-1], text
    assert len(SIZES) >= 5 and max(map(len, text.splitlines())) <= 80


def test_no_reason_shows_a_minus_before_zero():
    rows = frame({"original": [1] * 299 + [0] * 301, "size-0.05": [1] * 299 + [0] * 301})
    card = check_row({"model": "m", "edit": "e", "n": 600}, "drop", (-0.001, -0.004, 0.5), 40)
    assert card["reason"].startswith("0.00 points (0.00 to 0.50)")
    assert "-0.00" not in check(rows, max_drop={"size-0.05": 40}).checks["reason"][0]


def test_the_checks_go_to_standard_output_as_json(tmp_path):
    there = folder(tmp_path / "p", {"m": frame({"original": [1] * 100, "size-0.05": [1] * 100})})
    text = run_cli("check", there, "--max-drop", "size-0.05=20", "--json", "-", code=0).stdout
    run_cli("check", there, "--max-drop", "size-0.05=20", "--json", tmp_path / "c.json", code=0)
    assert json.loads(text) == json.loads((tmp_path / "c.json").read_text())
    assert not (tmp_path / "-").exists()


def test_plan_says_why_its_drops_differ_from_those_of_analyze(tmp_path):
    there = folder(tmp_path / "p", {"m": frame({"original": [1] * 79, "size-0.05": [0] * 17 + [1] * 62})})
    assert "differ a little from those of `analyze`" in " ".join(run_cli("plan", there, code=0).stdout.split())
