"""What edits are called, and the line that says what was found."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from command_line import run_cli
from report_world import make_benchmark, make_predictions
from unswayed.analyses.drops.drop import verdict_line
from unswayed.edits import all_edits
from unswayed.edits.recipes import RECIPES, open_recipe
from unswayed.evaluation.facts import Facts


def drops(**effects: tuple[float, bool]) -> pl.DataFrame:
    """A table of drops of one model: edit -> effect in points, and whether it is certain; `_` stands for `-`."""
    rows = [
        {"model": "m", "edit": edit.replace("_", "-"), "kind": "edit", "n": 200, "effect": effect, "certain": certain,
         "white_box": False}
        for edit, (effect, certain) in effects.items()
    ]  # fmt: skip
    return pl.DataFrame(rows)


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_every_edit_of_a_recipe_has_words_of_its_own(recipe: str) -> None:
    edits = [item.name for item in open_recipe(recipe).items]
    words = Facts().words(edits)
    assert len(set(words.values())) == len(edits)
    assert not any("0." in text or "_" in text for text in words.values())


def test_every_installed_edit_says_what_it_is() -> None:
    assert all(edit().words() for edit in all_edits().values())


def test_an_attribute_without_a_certain_effect_is_said_to_show_none() -> None:
    line = verdict_line(drops(background_random=(4.0, False), direction=(12.0, True)))
    assert line == "direction costs 12 points; no effect shown: background"


def test_a_sweep_fails_below_the_level_that_costs_ten_points() -> None:
    line = verdict_line(drops(**{"size_0.1": (2.0, True), "size_0.06": (10.0, True), "size_0.03": (40.0, True)}))
    assert line == "size costs more than 10 points below 6 % of the picture"
    line = verdict_line(drops(**{"size_0.1": (12.0, True), "size_0.06": (14.0, True), "size_0.03": (40.0, True)}))
    assert line == "size costs more than 10 points at 10 % of the picture or less"
    line = verdict_line(drops(**{"size_0.1": (2.0, True), "size_0.06": (3.0, True), "size_0.03": (9.0, True)}))
    assert line == "size costs up to 9 points"


def test_what_is_not_certain_never_fails() -> None:
    line = verdict_line(drops(**{"size_0.1": (2.0, False), "size_0.06": (30.0, False), "size_0.03": (40.0, False)}))
    assert line == "no effect shown: size"


def test_several_changes_at_once_are_not_blamed_on_one_attribute() -> None:
    line = verdict_line(drops(direction=(1.0, False), direction_small=(30.0, True)))
    assert line == "small and turned costs 30 points; no effect shown: direction alone"


def test_only_some_models_and_few_photographs_are_said() -> None:
    one = drops(direction=(12.0, True))
    both = pl.concat([one, one.with_columns(model=pl.lit("other"), certain=pl.lit(False))])
    assert verdict_line(both) == "on average, direction costs 12 points (1 of 2 models)"
    few = verdict_line(one.with_columns(n=pl.lit(6), certain=pl.lit(False)))
    assert few == "no effect shown: direction (6 photographs can show large effects only)"
    attacked = verdict_line(one.with_columns(white_box=pl.lit(True)))
    assert attacked == "no edited pictures, so there is no drop"


def test_analyze_and_the_report_begin_with_the_same_line(tmp_path: Path) -> None:
    bench = make_benchmark(tmp_path / "bench", 30, ["a", "b"], pictures=0)
    folder = make_predictions(tmp_path / "predictions", bench, ["m"], ["a", "b"])
    analyzed = run_cli("analyze", str(folder), "--resamples", "50").stdout
    said = " ".join(analyzed.partition("\n\n")[0].split())
    assert said.startswith("Verdict: ") and "size" in said and "background" in said
    reported = run_cli("report", str(folder), "-o", str(tmp_path / "r.html"), "--heat-maps", "0", "--resamples", "50")
    assert said.removeprefix("Verdict: ") in " ".join(reported.stderr.split())
    assert said.removeprefix("Verdict: ").rstrip(".") in (tmp_path / "r.html").read_text(encoding="utf-8")
