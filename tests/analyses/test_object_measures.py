"""Mean IoU and average precision: equal to a plain evaluation of the same boxes by pycocotools."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import unswayed
from object_world import MODELS, NAMES, write_objects
from unswayed.benchmark.folder import Benchmark
from unswayed.evaluation import EvaluateSettings, read_predictions, run_evaluation
from unswayed.sources.coco import box_of, read_objects


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Benchmark, Path, str]:
    folder = tmp_path_factory.mktemp("measures")
    file = write_objects(folder / "photographs", count=20)
    recipe = "original,size-0.05"
    unswayed.build(f"coco:{file}", folder / "bench", recipe=recipe, renderer="paste", workers=1, quality="off")
    (folder / "finders.py").write_text(MODELS)
    models = f"python:{folder / 'finders.py'}:"
    names = [models + name for name in ("rough", "exact", "instances", "namer")]
    run_evaluation(folder / "bench", names, folder / "p", EvaluateSettings(device="cpu"))
    return Benchmark(folder / "bench"), folder / "p", models


def plain_evaluation(bench: Benchmark, rows: list[dict[str, Any]], least: float) -> tuple[Any, dict[str, int]]:
    """pycocotools on the same boxes; the number of the edited object's annotation by sample."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truths = {row["sample_id"]: row for row in bench.manifest.to_pylist()}
    annotations, own, answers = [], {}, []
    for image, row in enumerate(rows, 1):
        truth = truths[row["sample_id"]]
        mask = np.asarray(Image.open(bench.root / truth["mask_path"])) > 127
        objects = [(truth["label"], box_of(mask))]
        objects += [(other.label, other.box) for other in read_objects(truth["objects"], "row")]
        own[row["sample_id"]] = len(annotations) + 1
        for label, (left, top, right, bottom) in objects:
            box, number = [left, top, right - left, bottom - top], len(annotations) + 1
            area = box[2] * box[3]
            annotations.append({"id": number, "image_id": image, "category_id": label, "bbox": box, "area": area,
                                "iscrowd": 0})  # fmt: skip
        boxes = np.array(row["boxes"], float).reshape(-1, 4)
        for (left, top, right, bottom), score, label in zip(boxes, row["box_scores"], row["box_classes"], strict=True):
            if score >= least:
                box = [left, top, right - left, bottom - top]
                answers.append({"image_id": image, "category_id": label, "bbox": box, "score": score})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        images = [{"id": image, "width": 256, "height": 256} for image in range(1, len(rows) + 1)]
        categories = [{"id": index, "name": name} for index, name in enumerate(NAMES)]
        truth.dataset = {"images": images, "annotations": annotations, "categories": categories}
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(answers), "bbox")
        evaluation.params.iouThrs, evaluation.params.maxDets = np.array([0.5]), [100]
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[-1e10, 1e10]], ["all"]  # also boxes of no size
        evaluation.evaluate()
        evaluation.accumulate()
    return evaluation, own


@pytest.mark.parametrize("edit", ["original", "size-0.05"])
def test_the_detection_rate_and_the_precision_are_those_of_a_plain_evaluation(
    world: tuple[Benchmark, Path, str], edit: str
) -> None:
    bench, predictions, models = world
    rows = read_predictions(predictions, [models + "rough"]).filter(edit=edit).to_dicts()
    sure, own = plain_evaluation(bench, rows, 0.3)
    found = set()
    for image in filter(None, sure.evalImgs):
        found |= {int(number) for number, match in zip(image["gtIds"], image["gtMatches"][0], strict=True) if match}
    assert [own[row["sample_id"]] in found for row in rows] == [row["correct"] for row in rows]
    assert 0.2 < np.mean([row["correct"] for row in rows]) < 0.95
    every, _ = plain_evaluation(bench, rows, 0.0)
    precision = every.eval["precision"][0]
    by_class = [precision[:, index].mean() for index in range(3) if precision[0, index].max() > -1]
    table = unswayed.analyze(predictions, table="objects", resamples=100).filter(model=models + "rough", edit=edit)
    assert table["ap"][0] == pytest.approx(np.mean(by_class), abs=1e-6)
    assert table["ap_low"][0] < table["ap"][0] < table["ap_high"][0]
    assert table["iou"][0] == pytest.approx(np.mean([row["iou"] for row in rows]), abs=1e-6)


def test_exact_models_have_the_best_measures_and_others_none(world: tuple[Benchmark, Path, str]) -> None:
    _, predictions, models = world
    table = unswayed.analyze(predictions, table="objects", resamples=100).filter(edit="original")
    exact, masks = (table.filter(model=models + name).to_dicts()[0] for name in ("exact", "instances"))
    # The crowd is no object of the benchmark, so the box around it is a false one.
    assert exact["accuracy"] == 1 and exact["iou"] > 0.9 and 0.5 < exact["ap"] < 1
    assert masks["iou"] > 0.9 and masks["ap"] is None
    assert models + "namer" not in table["model"].to_list()
