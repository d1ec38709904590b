"""Detectors and segmenters of transformers, from folders with tiny random weights through a whole evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import unswayed
from object_world import NAMES, write_objects
from tiny_finders import DETECTORS, SEGMENTERS, write_finder
from unswayed.errors import UserError
from unswayed.labels import own
from unswayed.models import open_any
from unswayed.models.objects import LEAST_SCORE

PICTURE = np.random.default_rng(0).integers(0, 255, (96, 128, 3), np.uint8)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("objects")
    file = write_objects(folder / "photographs", count=2)
    unswayed.build(f"coco:{file}", folder / "bench", recipe="original,size-0.1", renderer="paste", workers=1)
    return folder / "bench"


@pytest.mark.parametrize("family", [*DETECTORS, *SEGMENTERS])
def test_a_folder_is_evaluated(family: str, bench: Path, tmp_path: Path) -> None:
    folder, kind = write_finder(family, tmp_path / family), "detector" if family in DETECTORS else "segmenter"
    unswayed.evaluate(bench, f"{kind}:transformers:{folder}", tmp_path / "predictions", device="cpu", workers=0)
    [path] = (tmp_path / "predictions").glob("*.parquet")
    rows = pl.read_parquet(path)
    assert len(rows) == 6 and set(rows["task"]) == {"detect" if kind == "detector" else "segment"}
    model: Any = open_any(f"{kind}:transformers:{folder}", device="cpu", labels=own(NAMES))
    assert model.labels.classes == NAMES
    [answer] = model.answer([model.prepare(PICTURE)])
    if kind == "segmenter":
        assert answer.masks.shape[1:] == (96, 128) and answer.masks.sum(0).max() == 1
        return
    assert rows["boxes"].list.len().max() > 0
    boxes, classes, scores = by_hand(family, folder, len(NAMES))
    kept = np.flatnonzero(scores >= LEAST_SCORE)
    kept = kept[np.argsort(-scores[kept], kind="stable")]
    assert len(kept) and answer.classes.tolist() == classes[kept].tolist()
    assert np.allclose(answer.scores, scores[kept], atol=1e-5)
    assert np.allclose(answer.boxes, boxes[kept], atol=0.01)


def test_a_folder_without_a_detector_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "auto_map": {"AutoConfig": "evil.Evil"}}')
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UserError, match="could not be loaded.*\n.*give the folder of a detector"):
        open_any(f"detector:transformers:{tmp_path}", device="cpu")
    assert not (tmp_path / "ran").exists()


def by_hand(family: str, folder: Path, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes in pixels, classes and scores from a network's raw outputs."""
    import transformers as t

    zero_shot = family in ("grounding-dino", "owlvit")
    network = (t.AutoModelForZeroShotObjectDetection if zero_shot else t.AutoModelForObjectDetection).from_pretrained(
        folder
    )
    processor = (t.AutoProcessor if zero_shot else t.AutoImageProcessor).from_pretrained(folder)
    text = {"grounding-dino": {"text": "apple. leaf. ball."}, "owlvit": {"text": [list(NAMES)]}}.get(family, {})
    with torch.inference_mode():
        outputs = network.eval()(**processor(images=PICTURE, return_tensors="pt", **text))
    logits, shares = outputs.logits[0], outputs.pred_boxes[0].numpy()
    if family == "grounding-dino":  # [CLS] apple . leaf . ball . [SEP]
        by_class = logits.sigmoid()[:, [1, 3, 5]]
    elif family in ("detr", "yolos"):
        by_class = logits.softmax(-1)[:, :count]  # the last one is nothing
    else:
        by_class = logits.sigmoid()
    if family in ("conditional-detr", "rt-detr"):  # the best pairs of a box and a class, as their authors do it
        best = by_class.flatten().topk(min(100 if family == "conditional-detr" else len(shares), by_class.numel()))
        scores, place = best.values.numpy(), best.indices.numpy()
        shares, classes = shares[place // by_class.shape[1]], place % by_class.shape[1]
    else:
        found = by_class.max(1)
        scores, classes = found.values.numpy(), found.indices.numpy()
    corners = np.concatenate([shares[:, :2] - shares[:, 2:] / 2, shares[:, :2] + shares[:, 2:] / 2], 1)
    return corners * [128, 96, 128, 96], classes, scores


def test_words_that_do_not_fit_into_one_text_are_asked_about_in_several(tmp_path: Path) -> None:
    names = own([f"{name} {other}" for name in NAMES for other in NAMES])
    folder = write_finder("grounding-dino", tmp_path / "folder")
    for most, texts in ((32, 1), (14, 3)):  # nine names of three tokens are 27, and a text has two more
        config = folder / "config.json"
        config.write_text(config.read_text().replace('"max_text_len": 32', f'"max_text_len": {most}'))
        model: Any = open_any(f"detector:transformers:{folder}", device="cpu", labels=names)
        [(boxes, classes, _)] = model.find([PICTURE])
        assert boxes.shape == (6 * texts, 4) and classes.max() < 9
