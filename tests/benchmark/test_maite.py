"""The benchmark, the edits and models by MAITE's protocols, run by MAITE's own programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from command_line import refused, run_cli
from unswayed.benchmark.maite import Augmentation, Boxes, Dataset, classifier, detector
from unswayed.evaluation import run_evaluation
from unswayed.models import open_model
from unswayed.sources.pictures import read_mask

tasks = pytest.importorskip("maite.tasks", reason="pip install 'unswayed[maite]'")
generic = pytest.importorskip("maite.protocols.generic")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("maite") / "bench"
    run_cli("build", "sample", "-o", folder, "--renderer", "paste", "--recipe", "lighting=-3", "--limit", 6, code=0)
    return folder


class Lite:
    """EfficientNet-Lite as a MAITE model: it takes pictures of any size, uint8 or in [0, 1]."""

    def __init__(self) -> None:
        self.model = open_model("lite:0", device="cpu")
        self.metadata = {"id": "lite", "index2label": dict(enumerate(self.model.labels.classes))}

    def __call__(self, pictures: Sequence[Any], /) -> list[np.ndarray]:
        images = [np.asarray(picture).transpose(1, 2, 0) for picture in pictures]
        levels = [image if image.dtype == np.uint8 else np.rint(image * 255).astype(np.uint8) for image in images]
        with torch.inference_mode():
            logits = self.model.logits(torch.stack([self.model.prepare(image) for image in levels]))
        return list(logits.softmax(1).numpy())


class Accuracy:
    metadata = {"id": "accuracy"}

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.right: list[bool] = []

    def update(self, predictions: Sequence[Any], targets: Sequence[Any], metadata: Sequence[Any], /) -> None:
        pairs = zip(predictions, targets, strict=True)
        self.right += [int(np.argmax(predicted)) == int(np.argmax(target)) for predicted, target in pairs]

    def compute(self) -> Mapping[str, Any]:
        return {"accuracy": float(np.mean(self.right)), "n": len(self.right)}


class Centered:
    """A detector that finds one object in the middle of every picture."""

    metadata = {"id": "centered", "index2label": {0: "hen", 1: "goose"}}

    def __call__(self, pictures: Sequence[Any], /) -> list[Boxes]:
        found = []
        for picture in pictures:
            _, high, wide = np.asarray(picture).shape
            box = np.array([[wide / 4, high / 4, 3 * wide / 4, 3 * high / 4]])
            found.append(Boxes(box, np.array([1]), np.array([[0.2, 0.8]])))
        return found


def test_maite_evaluates_a_model_on_a_benchmark_and_finds_our_numbers(bench: Path, tmp_path: Path) -> None:
    dataset, model, metric = Dataset(bench, "lighting-3"), Lite(), Accuracy()
    assert isinstance(dataset, generic.Dataset) and isinstance(model, generic.Model)
    assert dataset.metadata["id"] == "bench/lighting-3" and dataset.metadata["index2label"][8] == "hen"
    result, _, _ = tasks.evaluate(model=model, dataset=dataset, metric=metric, batch_size=3)
    run_evaluation(bench, ["lite:0"], tmp_path)
    ours = pl.read_parquet(tmp_path / "lite-0.parquet").filter(pl.col("edit").cast(pl.String) == "lighting-3")
    assert result == {"accuracy": ours["correct"].mean(), "n": 6}
    picture, target, metadata = dataset[0]
    assert picture.dtype == np.uint8 and picture.shape == (3, 256, 256) and target.sum() == 1
    assert metadata["edit"] == "lighting-3" and metadata["mask"].dtype == bool


def test_a_detection_data_set_has_the_exact_boxes(bench: Path) -> None:
    dataset = Dataset(bench, "original", task="detect")
    assert len(dataset) == 6
    for index in range(len(dataset)):
        _, target, _ = dataset[index]
        assert target.boxes.shape == (1, 4) and target.scores.tolist() == [1.0]
        mask = read_mask(bench / dataset.rows[index]["mask_path"]) > 0.5
        left, top, right, bottom = target.boxes[0].astype(int)
        assert mask[top:bottom, left:right].sum() == mask.sum()
        assert mask[:, left].any() and mask[:, right - 1].any() and mask[top].any() and mask[bottom - 1].any()
    with refused("task of a MAITE data set", allowed="classify, detect"):
        Dataset(bench, task="segment")  # type: ignore[arg-type]


def test_an_edit_is_an_augmentation(bench: Path) -> None:
    augmentation = Augmentation(size=0.05, settings={"removal": "patches"})
    assert isinstance(augmentation, generic.Augmentation) and augmentation.metadata["id"] == "unswayed size=0.05"
    dataset = Dataset(bench, "original", task="detect")
    batch = tuple(map(list, zip(*(dataset[index] for index in range(2)), strict=True)))
    pictures, targets, metadata = augmentation(batch)  # type: ignore[arg-type]
    for picture, target, datum in zip(pictures, targets, metadata, strict=True):
        assert picture.shape == (3, 256, 256) and picture.dtype == np.uint8 and "not_edited" not in datum
        assert abs(datum["mask"].mean() - 0.05) < 0.005
        left, top, right, bottom = target.boxes[0].astype(int)
        assert datum["mask"][top:bottom, left:right].sum() == datum["mask"].sum()
    again, _, _ = augmentation(batch)  # type: ignore[arg-type]
    assert all(np.array_equal(one, two) for one, two in zip(pictures, again, strict=True))
    result, _, _ = tasks.evaluate(
        model=Lite(), dataset=Dataset(bench, "original"), metric=Accuracy(), augmentation=Augmentation(lighting=-3)
    )
    assert result["n"] == 6


def test_other_boxes_are_framed_with_their_picture() -> None:
    picture = np.random.default_rng(0).random((3, 60, 100)).astype(np.float32)
    mask = np.zeros((60, 100), bool)
    mask[20:40, 20:40] = True
    target = Boxes(np.array([[20, 20, 40, 40], [50, 10, 60, 20], [90, 0, 100, 10]], float), np.arange(3), np.ones(3))
    [made], [boxes], [datum] = Augmentation(lighting=-1)(([picture], [target], [{"id": 7, "mask": mask}]))
    assert made.shape == (3, 60, 60) and made.dtype == np.float32 and made.max() <= 1
    assert boxes.labels.tolist() == [0, 1]  # the third is outside the square
    assert (boxes.boxes[1] - boxes.boxes[0]).tolist() == [30, -10, 20, -20]
    assert datum["mask"].sum() == 400
    with refused("does not say where its object is", allowed="mask"):
        Augmentation(lighting=-1)(([picture], [np.ones(3)], [{"id": 7}]))


def test_a_maite_classifier_is_one_of_ours(bench: Path, tmp_path: Path) -> None:
    run_evaluation(bench, [classifier(Lite()), "lite:0"], tmp_path)
    # The copies of the photographs have other sizes, and the adapter states one.
    framed = pl.col("edit").cast(pl.String) != "source"
    theirs, ours = (pl.read_parquet(tmp_path / f"{name}.parquet").filter(framed) for name in ("lite", "lite-0"))
    assert theirs["predicted"].to_list() == ours["predicted"].to_list()
    np.testing.assert_allclose(theirs["probability"], ours["probability"], atol=1e-3)
    with refused("does not name its classes", allowed="labels="):
        classifier(lambda pictures: pictures)


def test_a_maite_detector_is_one_of_ours(bench: Path) -> None:
    model = detector(Centered())
    [answer] = model.answer([model.prepare(np.zeros((80, 40, 3), np.uint8))])
    assert answer.boxes is not None and answer.boxes.tolist() == [[10, 20, 30, 60]]
    assert answer.classes.tolist() == [1] and answer.scores.tolist() == [0.8] and model.name == "centered"
