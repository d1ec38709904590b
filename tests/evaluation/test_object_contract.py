"""The check of detectors before an evaluation: each common mistake is named, and a good detector is not suspected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import unswayed
from object_world import MODELS, write_objects
from unswayed.evaluation import EvaluateSettings, cards, run_evaluation
from unswayed.evaluation.contract import suspect_order
from unswayed.labels import object_space, own
from unswayed.models.label_mapping import map_objects

SETTINGS = EvaluateSettings(device="cpu")


@pytest.fixture(scope="module")
def sixty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A benchmark of 60 photographs, and the start of the names of detectors."""
    folder = tmp_path_factory.mktemp("sixty")
    file = write_objects(folder / "photographs", count=60)
    unswayed.build(f"coco:{file}", folder / "bench", recipe="original", renderer="paste", workers=1, quality="off")
    (folder / "finders.py").write_text(MODELS)
    return folder / "bench", f"python:{folder / 'finders.py'}:"


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("swapped", "the boxes. With x and y exchanged"),
        ("xywh", "the boxes. With boxes as left, top, width and height"),
        ("confused", "the boxes and the label order. With x and y exchanged: Its outputs seem to be shifted by 1"),
        ("shifted", "the label order. Its outputs seem to be shifted by 1"),
        ("doubled", "the boxes. With boxes of half their numbers"),
        ("shares", "the boxes. With boxes as shares of the sides"),
        ("clipped", "the boxes. The class of the object is found in 48 of 48, but its box does not fit"),
        ("blind", "no other box format, class order or common preprocessing explains it"),
    ],
)
def test_each_mistake_is_named(sixty: tuple[Path, str], tmp_path: Path, name: str, cause: str) -> None:
    bench, models = sixty
    done = run_evaluation(bench, [models + name], tmp_path, SETTINGS)
    (card,) = cards(tmp_path).values()
    assert cause in card["suspicion"], card["suspicion"]
    assert "detection rate on 48 originals is" in card["suspicion"]
    assert card["suspicion"] in done.warnings[models + name]


def test_a_shift_is_noticed_where_breeds_are_one_class_of_the_detector() -> None:
    coco, breeds = object_space("coco-80"), own(["beagle", "pug", "Siamese cat"])
    mapping, labels = map_objects(coco, breeds, [0, 1, 2]), np.arange(30) % 3
    shifted = np.array([mapping.members[label][0] + 1 for label in labels])
    cause = suspect_order(coco, mapping, shifted, labels)
    assert cause is not None and cause.accuracy == 1 and "shifted by 1" in cause.explanation


@pytest.mark.parametrize("name", ["exact", "instances", "semantic"])
def test_a_good_model_is_not_suspected(sixty: tuple[Path, str], tmp_path: Path, name: str) -> None:
    bench, models = sixty
    done = run_evaluation(bench, [models + name], tmp_path, SETTINGS)
    (card,) = cards(tmp_path).values()
    assert card["suspicion"] is None and not done.warnings[models + name]


@pytest.mark.parametrize(
    ("wrong", "shift", "cause"),
    [
        ({"scale": 255.0}, 0, "the preprocessing. With pixels in [0, 1]"),
        ({"channels": "BGR"}, 0, "the preprocessing. With channels as RGB"),
        ({"scale": 255.0}, 1, "the preprocessing and the label order. With pixels in [0, 1]: Its outputs seem to be"),
    ],
)
def test_a_wrong_preprocessing_is_named(
    sixty: tuple[Path, str], tmp_path: Path, wrong: dict[str, object], shift: int, cause: str
) -> None:
    """A detector that takes RGB in [0, 1] and finds nothing in anything else."""
    from unswayed.models import Inputs, ObjectModel, open_any

    exact = open_any(sixty[1] + "exact")
    assert isinstance(exact, ObjectModel)

    def find(inputs: list[np.ndarray]) -> list[object]:
        pictures = [np.clip(np.rint(values * 255), 0, 255).astype(np.uint8) for values in inputs]
        return [(boxes, (classes + shift) % 3, scores) for boxes, classes, scores in exact.find(pictures)]

    model = ObjectModel(find, exact.labels, name="network", inputs=Inputs(256, 256, **wrong))  # type: ignore[arg-type]
    run_evaluation(sixty[0], [model], tmp_path, SETTINGS)
    (card,) = cards(tmp_path).values()
    assert f"suspected: {cause}" in card["suspicion"], card["suspicion"]
