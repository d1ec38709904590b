"""Tables and reports of detectors: their own words, boxes on the flips, and models of several tasks side by side."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import unswayed
from object_world import MODELS, write_objects
from unswayed.evaluation import EvaluateSettings, run_evaluation
from unswayed.evaluation.model_cards import read_cards
from unswayed.labels import worded
from unswayed.views.report.drop_tables import analysis_text


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("words")
    file = write_objects(folder / "photographs", count=8)
    recipe = "original,size-0.05,background-random"
    unswayed.build(f"coco:{file}", folder / "bench", recipe=recipe, renderer="paste", workers=1, quality="off")
    (folder / "finders.py").write_text(MODELS)
    models = f"python:{folder / 'finders.py'}:"
    names = [f"large={models}large", f"exact={models}exact"]
    run_evaluation(folder / "bench", names, folder / "detectors", EvaluateSettings(device="cpu"))
    return folder, models


def test_one_function_has_the_words() -> None:
    assert worded("Dropped accuracy; accuracies in %", "detect") == "Dropped detection rate; detection rates in %"
    assert worded("Accuracy", "segment") == "Segmentation rate" and worded("accuracy", "answer") == "answer accuracy"
    assert worded("How much accuracy do they cost?", "detect") == "How much of the detection rate do they cost?"
    assert worded("accuracies", ["detect", "classify"]) == "shares of right answers"
    assert worded("Accuracy", []) == worded("Accuracy", "classify") == "Accuracy"


def test_a_table_of_detectors_speaks_of_the_detection_rate(evaluated: tuple[Path, str]) -> None:
    predictions = evaluated[0] / "detectors"
    drops = unswayed.dropped_accuracy(predictions, resamples=50)
    text = analysis_text(drops, "drops", "markdown", cards=read_cards(predictions))
    assert "Dropped detection rate of 2 models" in text and "detection rate %" in text and "ccurac" not in text


def test_flips_of_a_report_have_boxes_and_their_own_words(evaluated: tuple[Path, str], tmp_path: Path) -> None:
    written = unswayed.report(evaluated[0] / "detectors", tmp_path / "r.html", heat_maps=0, resamples=50)
    page = (tmp_path / "r.html").read_text()
    assert written.flips > 0 and "found to missed" in page and "→ nothing" in page
    texts = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", "", page, flags=re.S)
    assert "etection rate" in texts and not re.search(r"\b[Aa]ccurac(y|ies)\b", texts)


def test_three_tasks_stand_side_by_side(evaluated: tuple[Path, str], tmp_path: Path) -> None:
    folder, models = evaluated
    names = [f"box={models}large", f"mask={models}instances", f"word={models}namer"]
    run_evaluation(folder / "bench", names, tmp_path / "p", EvaluateSettings(device="cpu"))
    written = unswayed.report(tmp_path / "p", tmp_path / "r.html", heat_maps=0, resamples=50)
    assert set(written.drops["model"]) == {"box", "mask", "word"}
    assert "hare of right answers" in (tmp_path / "r.html").read_text()
