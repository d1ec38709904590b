"""Models have names: aliases, one model by two paths, and names that failed once and are gone."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from color_world import CLASSES
from command_line import run_cli
from unswayed.analyses.drops.compare import compare
from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.analyses.drops.gate import check
from unswayed.errors import UserError
from unswayed.evaluation import cards, read_predictions, run_evaluation
from unswayed.evaluation.evaluation import record_failure
from unswayed.evaluation.model_cards import FAILED, read_failures
from unswayed.models import Classifier, Transform, open_model
from unswayed.specs import slug_of


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
    assert (done.scored, done.skipped, done.stored_as) == ((), (spec,), {again: spec})
    assert done.remarks == (f"{again} is the same model as {spec}, whose predictions are already in {tmp_path}",)
    assert set(cards(tmp_path)) == {spec}
    # A name that was asked for is kept, and another model of the same file is another model.
    assert run_evaluation(benchmark, [f"prod={spec}"], tmp_path).scored == ("prod",)
    other = again.removesuffix("good") + "reordered"
    assert run_evaluation(benchmark, [other], tmp_path).scored == (other,)


def test_the_same_weights_in_another_program_are_another_model(
    benchmark: Path, own_models: str, tmp_path: Path
) -> None:
    """`constant` has the weights, transform and classes of `good`, but its forward pass multiplies by zero."""
    good, constant = own_models + "good", own_models + "constant"
    run_evaluation(benchmark, [good], tmp_path)
    done = run_evaluation(benchmark, [constant], tmp_path)
    assert (done.scored, done.skipped, done.stored_as) == ((constant,), (), {})
    found = cards(tmp_path)
    assert found[good]["weights_sha256"] == found[constant]["weights_sha256"]
    assert (found[good]["originals"]["accuracy"], found[constant]["originals"]["accuracy"]) == (1.0, 0.25)
    # A wrapper has the weights of what it wraps.
    wrapped = run_evaluation(benchmark, [good + "+flip"], tmp_path)
    assert (wrapped.scored, wrapped.remarks) == ((good + "+flip",), ())


def test_an_object_of_another_class_is_evaluated_again(benchmark: Path, tmp_path: Path) -> None:
    """Both objects have the name `own`, no weights and the same transform."""

    class Red(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 20 * torch.cat([x.mean((2, 3)), x.mean((1, 2, 3))[:, None]], 1)

    class Swapped(Red):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.flip(1))

    transform = Transform(32, 28, mean=(0.0,) * 3, std=(1.0,) * 3)
    accuracy = []
    for kind in (Red, Swapped, Swapped):
        done = run_evaluation(benchmark, [Classifier(kind(), transform, list(CLASSES))], tmp_path)
        accuracy.append((cards(tmp_path)["own"]["originals"]["accuracy"], done.skipped))
    assert accuracy == [(0.75, ()), (0.25, ()), (0.25, ("own",))]


def test_an_alias_that_is_given_to_another_program_is_evaluated_again(
    benchmark: Path, own_models: str, tmp_path: Path
) -> None:
    run_evaluation(benchmark, [f"prod={own_models}good"], tmp_path)
    assert run_evaluation(benchmark, [f"prod={own_models}constant"], tmp_path).scored == ("prod",)
    assert cards(tmp_path)["prod"]["originals"]["accuracy"] == 0.25


def test_an_alias_is_kept_beside_the_same_model_without_it(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    spec = own_models + "good"
    done = run_evaluation(benchmark, [spec, f"prod={spec}"], tmp_path)
    assert set(done.scored) == {spec, "prod"}


def test_the_name_that_was_asked_for_is_said_beside_the_one_that_is_stored(
    benchmark: Path, own_models: str, tmp_path: Path
) -> None:
    spec = own_models + "good"
    path = Path(spec.partition(":")[2].rpartition(":")[0])
    again = f"python:{path.parent}/../{path.parent.name}/{path.name}:good"
    run_evaluation(benchmark, [spec], tmp_path)
    said = run_cli("evaluate", benchmark, "-m", again, "-o", tmp_path, "--device", "cpu")
    assert f"{again} (stored as {spec}): 100.0% of 24 originals (already evaluated)" in said.stdout
    for ask in (
        lambda: check(tmp_path, models=[again], max_drop={"*": 50}),
        lambda: dropped_accuracy(tmp_path, models=[again]),
        lambda: compare(tmp_path, spec, again),
        lambda: read_predictions(tmp_path, [again]),
    ):
        with pytest.raises(UserError, match=f"are stored under the name '{re.escape(spec)}'"):
            ask()
    with pytest.raises(UserError, match="there is no model 'lite:0'"):
        check(tmp_path, models=["lite:0"], max_drop={"*": 50})


def test_a_misspelled_name_is_forgotten_once_a_run_succeeds(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    assert run_evaluation(benchmark, [own_models + "goood", own_models + "good"], tmp_path).failed
    assert len(read_failures(tmp_path)) == 1
    assert not run_evaluation(benchmark, [own_models + "good"], tmp_path).failed
    assert read_failures(tmp_path) == []


@pytest.mark.parametrize("jump", [-86400, 86400])
def test_no_failure_is_lost_or_kept_because_the_clock_jumped(
    jump: int, benchmark: Path, own_models: str, tmp_path: Path
) -> None:
    def fail(name: str) -> None:
        record_failure(tmp_path, name, UserError("no such model"))
        file = tmp_path / f"{slug_of(name)}{FAILED}"
        os.utime(file, (file.stat().st_mtime + jump,) * 2)

    fail("before")
    done = run_evaluation(benchmark, [own_models + "good"], tmp_path, progress=lambda *_: fail("another run"))
    assert not done.failed
    assert [name for name, *_ in read_failures(tmp_path)] == ["another run"]


def test_a_classifier_is_shown_in_one_line() -> None:
    shown = repr(open_model("small=lite:0", device="cpu"))
    assert shown == "Classifier('small': 1000 classes, crop 224, cpu)"
