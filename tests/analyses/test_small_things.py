"""Small things that gave wrong or puzzling results: formats by suffix, patterns, frames, units, one photograph."""

import json

import polars as pl
import pytest

from command_line import refusal, run_cli
from factor_worlds import write_annotations
from prediction_worlds import folder, frame, row
from unswayed.analyses.drops.compare import compare
from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.analyses.drops.groups import dropped_accuracy_of_groups
from unswayed.analyses.factors import Study, make_table
from unswayed.analyses.tables import analyze
from unswayed.errors import UserError, unknown
from unswayed.views.report.drop_tables import analysis_text, moved_lines

ANSWERS = {"original": [1] * 40, "size-0.05": [0] * 20 + [1] * 20, "size-0.1": [1] * 40, "position": [1] * 40}


@pytest.fixture
def there(tmp_path):
    return folder(tmp_path / "p", {"m": frame(ANSWERS)})


@pytest.mark.parametrize(
    ("name", "begins"), [("t.tex", "\\begin"), ("t.csv", "model,edit"), ("t.md", "**Dropped"), ("t.json", "[")]
)
def test_the_suffix_of_the_output_decides_the_format(there, tmp_path, name, begins):
    assert run_cli("analyze", there, "-o", tmp_path / name).exit_code == 0
    assert begins in (tmp_path / name).read_text()[:400]


def test_a_suffix_without_a_format_is_refused(there, tmp_path):
    refusal(run_cli("analyze", there, "-o", tmp_path / "t.xlsx"), given="t.xlsx")
    assert not (tmp_path / "t.xlsx").exists()


def test_patterns_choose_edits_in_every_table(there):
    assert set(analyze(there, edits=["size-*"])["edit"]) == {"size-0.05", "size-0.1"}
    assert set(analyze(there, by="class", edits=["size-*"])["edit"]) == {"size-0.05", "size-0.1"}
    with pytest.raises(UserError, match="there is no edit 'sise-\\*'"):
        analyze(there, edits=["sise-*"])


def test_pandas_frames_are_taken_like_polars_ones():
    pytest.importorskip("pandas")
    ours = pl.concat([frame(ANSWERS, "a"), frame({**ANSWERS, "position": [0] * 40}, "b")])
    theirs = ours.to_pandas()
    assert dropped_accuracy(theirs, resamples=50).equals(dropped_accuracy(ours, resamples=50))
    assert compare(theirs, "a", "b", resamples=50).equals(compare(ours, "a", "b", resamples=50))


@pytest.mark.parametrize("interval", ["auto", "bootstrap"])
def test_one_photograph_has_a_wide_interval(interval):
    found = row(dropped_accuracy(frame({"original": [1], "size-0.05": [1]}), interval=interval), edit="size-0.05")
    assert found["low"] < 0 < found["high"]


def test_the_mean_over_one_edit_is_named_so():
    table = dropped_accuracy(frame({"original": [1], "size-0.05": [1]}), resamples=20)
    assert "mean over 1 edit, controls" in analysis_text(table, "drops", "markdown")


def test_a_table_of_groups_counts_groups_and_models(tmp_path):
    both = pl.concat([frame(ANSWERS, name) for name in ("a", "b", "c")])
    (tmp_path / "groups.csv").write_text("model,kind\na,conv\nb,conv\nc,vit\n")
    table = dropped_accuracy_of_groups(both, tmp_path / "groups.csv", resamples=50)
    assert "Dropped accuracy of 3 groups of models, 3 models in all" in analysis_text(table, "drops", "markdown")


def test_accuracies_are_percent_for_people_in_every_table(tmp_path):
    answers = {f"size-{level}": [1] * 30 + [0] * 10 for level in (0.05, 0.1, 0.2)}
    curves = analyze(folder(tmp_path / "p", {"m": frame({"original": [1] * 40, **answers})}), table="curves")
    assert curves["accuracy"].to_list()[0] == 0.75
    assert "75.00" in analysis_text(curves, "curves", "markdown")


def test_a_moved_benchmark_names_the_option(tmp_path):
    cards = {"m": {"benchmark": {"path": str(tmp_path / "gone")}}}
    there = folder(tmp_path / "p", {"m": frame(ANSWERS)}, cards)
    (line,) = moved_lines(there)
    assert "gone" in line and "--benchmark" in line
    with pytest.raises(UserError, match="--benchmark BENCH"):
        analyze(there, by="border_contact")


def test_suggestions_are_near_and_ignore_case():
    assert "did you mean 'ResNet50'" in str(unknown("model", "resnet5O", ["ResNet50", "ViT"]))
    assert "did you mean" not in str(unknown("table", "ratios", ["errors", "adjusted", "coverage"]))


def world(tmp_path, shift=0):
    folder = write_annotations(tmp_path / "annotations", images=60)
    lines = (folder / "imagenet_x_val_multi_factor.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return folder, [row["file_name"] for row in rows], [(row["class"] + shift) % 1000 for row in rows]


def test_the_editing_table_reads_what_evaluate_writes(tmp_path):
    """Parquet files of `evaluate` hold models and edits as categories."""
    annotations, names, classes = world(tmp_path)
    rows = [
        {"model": "m", "file_name": name, "edit": edit, "run": 0, "predicted": label, "probability": 0.5, "correct": ok}
        for edit, ok in (("original", True), ("size-0.05", False))
        for name, label in zip(names, classes, strict=True)
    ]
    (tmp_path / "p").mkdir()
    kinds = {"model": pl.Categorical, "edit": pl.Categorical}
    pl.DataFrame(rows).cast(kinds).write_parquet(tmp_path / "p/m.parquet")
    table = make_table(Study(tmp_path / "p", which="multi", folder=annotations), "editing")
    assert table.filter(attribute="size")["drop"].to_list() == [100.0]


@pytest.mark.parametrize(("shift", "said"), [(1, "class j means class j - 1"), (-1, r"class j means class j \+ 1")])
def test_classes_shifted_by_one_are_noticed_in_factors(tmp_path, shift, said):
    annotations, names, classes = world(tmp_path, shift)
    (tmp_path / "p").mkdir()
    table = pl.DataFrame({"file_name": names, "predicted_class": classes, "predicted_probability": [0.5] * len(names)})
    table.write_csv(tmp_path / "p/m.csv")
    with pytest.raises(UserError, match=said):
        make_table(Study(tmp_path / "p", which="multi", folder=annotations, resamples=0), "errors")
