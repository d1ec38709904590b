"""Models have names: aliases, one model by two paths, and names that failed once and are gone."""

from __future__ import annotations

from pathlib import Path

from unfazed.models import open_model
from unfazed.predictions import cards, read_predictions, run_evaluation
from unfazed.predictions.frames import read_failures


def test_an_alias_is_the_name_in_tables_and_the_spec_stays(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    spec = own_models + "good"
    done = run_evaluation(benchmark, [f"prod={spec}"], tmp_path)
    assert done.scored == ("prod",)
    (card,) = cards(tmp_path).values()
    assert (card["model"], card["spec"], card["file"]) == ("prod", spec, "prod")
    assert read_predictions(tmp_path)["model"].unique().to_list() == ["prod"]
    assert run_evaluation(benchmark, [f"prod={spec}"], tmp_path).skipped == ("prod",)


def test_one_model_by_two_paths_is_evaluated_once(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    spec = own_models + "good"
    kind, _, rest = spec.partition(":")
    path = Path(rest.rpartition(":")[0])
    again = f"{kind}:{path.parent}/../{path.parent.name}/{path.name}:good"
    done = run_evaluation(benchmark, [spec, again], tmp_path)
    assert done.scored == (spec,)
    assert done.remarks == (f"{again} is the same model as {spec} and is evaluated once",)


def test_a_model_that_is_in_the_folder_under_another_path_is_one_model(
    benchmark: Path, own_models: str, tmp_path: Path
) -> None:
    spec = own_models + "good"
    run_evaluation(benchmark, [spec], tmp_path)
    path = Path(spec.partition(":")[2].rpartition(":")[0])
    again = f"python:{path.parent}/../{path.parent.name}/{path.name}:good"
    done = run_evaluation(benchmark, [again], tmp_path)
    assert (done.scored, done.skipped) == ((), (spec,))
    assert done.remarks == (f"{again} is the same model as {spec}, whose predictions are already in {tmp_path}",)
    assert set(cards(tmp_path)) == {spec}
    # A name that was asked for is kept, and another model of the same file is another model.
    assert run_evaluation(benchmark, [f"prod={spec}"], tmp_path).scored == ("prod",)
    other = again.removesuffix("good") + "reordered"
    assert run_evaluation(benchmark, [other], tmp_path).scored == (other,)


def test_a_misspelled_name_is_forgotten_once_a_run_succeeds(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    assert run_evaluation(benchmark, [own_models + "goood", own_models + "good"], tmp_path).failed
    assert len(read_failures(tmp_path)) == 1
    assert not run_evaluation(benchmark, [own_models + "good"], tmp_path).failed
    assert read_failures(tmp_path) == []


def test_a_classifier_is_shown_in_one_line() -> None:
    shown = repr(open_model("small=lite:0", device="cpu"))
    assert shown == "Classifier('small': 1000 classes, crop 224, cpu)"
