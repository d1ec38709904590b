"""Models of every task on the same pictures: rows with `correct`, the task in the card, no comparison across tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

import unswayed
from object_world import MODELS, write_objects
from unswayed.errors import UserError
from unswayed.evaluation import EvaluateSettings, cards, read_predictions, run_evaluation
from unswayed.sources.coco import box_of

RECIPE = "original,size-0.05,position,background-random"
SETTINGS = EvaluateSettings(device="cpu")


@pytest.fixture(scope="session")
def object_bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("objects")
    file = write_objects(folder / "photographs")
    bench = folder / "bench"
    unswayed.build(f"coco:{file}", bench, recipe=RECIPE, renderer="paste", workers=1, quality="off")
    return bench


@pytest.fixture(scope="session")
def finders(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("finders") / "finders.py"
    path.write_text(MODELS)
    return f"python:{path}:"


def test_a_detector_is_right_where_its_box_is_that_of_the_object(
    object_bench: Path, finders: str, tmp_path: Path
) -> None:
    frame = unswayed.evaluate(object_bench, finders + "exact", tmp_path, SETTINGS)
    assert frame["task"].unique().to_list() == ["detect"]
    originals = frame.filter(edit="original")
    assert originals["correct"].all() and (originals["predicted"] == originals["label"]).all()
    assert originals["iou"].min() > 0.9
    for row in originals.head(3).iter_rows(named=True):
        mask = np.asarray(Image.open(object_bench / "masks" / "original" / row["file_name"])) > 127
        assert np.abs(np.array(row["box"]) - box_of(mask)).max() <= 1
        assert len(row["boxes"]) == 4 * len(row["box_scores"]) == 4 * len(row["box_classes"])
    (card,) = cards(tmp_path).values()
    assert (card["task"], card["originals"]["accuracy"], card["originals"]["chance"]) == ("detect", 1.0, 0.0)


def test_edits_do_not_hide_the_object_from_an_exact_detector(object_bench: Path, finders: str, tmp_path: Path) -> None:
    frame = unswayed.evaluate(object_bench, finders + "exact", tmp_path, SETTINGS)
    rates = dict(frame.group_by("edit").agg(pl.col("correct").mean()).iter_rows())
    assert rates["position"] == 1 and rates["size-0.05"] == 1


def test_a_missed_object_and_a_wrong_class_have_their_own_columns(
    object_bench: Path, finders: str, tmp_path: Path
) -> None:
    names = [finders + name for name in ("blind", "unsure", "shifted")]
    run_evaluation(object_bench, names, tmp_path, SETTINGS)
    frame = read_predictions(tmp_path).filter(edit="original")
    blind, unsure, shifted = (frame.filter(model=name) for name in names)
    for rows in (blind, unsure):
        assert not rows["correct"].any() and set(rows["predicted"]) == {-1}
        assert set(rows["iou"]) == {0.0} == set(rows["probability"])
        assert rows["box"].is_null().all() and rows["found_class"].is_null().all()
    assert unsure["boxes"].list.len().min() >= 4, "boxes below the threshold are stored for average precision"
    assert not shifted["correct"].any()
    assert ((shifted["label"] + 1) % 3 == shifted["predicted"]).all()
    assert shifted["found_class"][0] == ["leaf", "ball", "apple"][shifted["label"][0]]


def test_segmenters_of_instances_and_of_classes_are_judged_by_the_object_alone(
    object_bench: Path, finders: str, tmp_path: Path
) -> None:
    names = [finders + name for name in ("instances", "semantic")]
    run_evaluation(object_bench, names, tmp_path, SETTINGS)
    frame = read_predictions(tmp_path).filter(edit="original")
    assert frame["task"].unique().to_list() == ["segment"]
    assert frame["correct"].all() and frame["iou"].min() > 0.9
    assert frame["mask"].null_count() == 0


def test_a_model_that_answers_in_words_has_its_words_in_the_row(
    object_bench: Path, finders: str, tmp_path: Path
) -> None:
    frame = unswayed.evaluate(object_bench, finders + "namer", tmp_path, SETTINGS)
    originals = frame.filter(edit="original")
    assert originals["correct"].all() and originals["probability"].is_null().all()
    assert set(originals["outcome"]) == {"answered"} and originals["answer_text"][0].startswith("It is an ")
    assert originals["iou"].is_null().all()


def test_models_of_different_tasks_are_shown_together_and_not_compared(
    object_bench: Path, finders: str, tmp_path: Path
) -> None:
    names = [finders + name for name in ("exact", "instances")]
    run_evaluation(object_bench, names, tmp_path, SETTINGS)
    drops = unswayed.dropped_accuracy(tmp_path, resamples=50)
    assert set(drops["model"]) == set(names)
    with pytest.raises(UserError, match="different tasks") as refused:
        unswayed.compare(tmp_path, *names)
    assert "exact (detect)" in str(refused.value) and "instances (segment)" in str(refused.value)
    with pytest.raises(UserError, match="different tasks"):
        unswayed.compare(read_predictions(tmp_path), *names)


@pytest.mark.parametrize(("name", "part"), [("broken", "no answer to `detect`"), ("outside", "returns the class")])
def test_answers_that_make_no_sense_fail_the_model(
    object_bench: Path, finders: str, tmp_path: Path, name: str, part: str
) -> None:
    done = run_evaluation(object_bench, [finders + name], tmp_path, SETTINGS)
    assert part in done.failed[finders + name]


def test_a_detector_is_no_classifier(finders: str) -> None:
    with pytest.raises(UserError, match="its task is `detect`"):
        unswayed.open_model(finders + "exact")
