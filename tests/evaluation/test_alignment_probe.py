import json
from types import SimpleNamespace

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from PIL import Image
from torch import nn

from unswayed.analyses.alignment import by_correctness, by_edit
from unswayed.evaluation.probes import read_probe, run_probe
from unswayed.evaluation.saliency import SaliencyProbe
from unswayed.labels import own
from unswayed.models import Classifier, Transform
from unswayed.scene import Scene
from unswayed.sources.source import Entry, Source

LABELS = own(["other", "bright patch"])
PATCH = np.s_[8:24, 40:56]


class LooksAtOnePatch(nn.Module):
    """Class 1 wins where rows 8-24, columns 40-56 are brighter than one half; nothing else is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 1, 8, stride=8)
        nn.init.constant_(self.features.weight, 1 / (3 * 64))
        nn.init.zeros_(self.features.bias)
        self.register_buffer("patch", torch.zeros(8, 8))
        self.patch[1:3, 5:7] = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = (self.features(x) * self.patch).sum((1, 2, 3))
        return torch.stack([4 - seen, seen], 1)


@pytest.fixture
def model():
    transform = Transform(resize=64, crop=64, mean=(0.0,) * 3, std=(1.0,) * 3)
    return Classifier(LooksAtOnePatch(), transform, LABELS, "patch", device="cpu", layer="features")


def picture(bright, where=PATCH):
    """A dim picture whose object lies at `where`; bright or dark."""
    image, mask = np.full((64, 64, 3), 90, np.uint8), np.zeros((64, 64), np.float32)
    image[where] = 250 if bright else 30
    mask[where] = 1
    return image, mask


def load(entry):
    image, mask = picture(True, PATCH if entry.detail == "there" else np.s_[40:60, 4:24])
    return Scene(entry.id, image, mask, 1)


def test_heat_on_the_object_scores_high_and_beside_it_low(model, tmp_path):
    entries = (Entry("there", "a.png", None, 1, detail="there"), Entry("elsewhere", "b.png", None, 1))
    outcome = run_probe(SaliencyProbe(model, Source("made", LABELS, entries, load), tmp_path))
    rows = read_probe(tmp_path, "saliency")
    there, elsewhere = (
        rows.row(by_predicate=pl.col("source_id") == name, named=True) for name in ("there", "elsewhere")
    )
    assert there["correct"]
    assert not elsewhere["correct"]
    assert there["precision"] > 0.5 > 0.1 > (elsewhere["precision"] or 0)
    assert there["average_precision"] > 0.9
    assert outcome.failures == {}
    assert set(rows["notes"]) == {None}
    card = json.loads((tmp_path / "saliency/patch.json").read_text())
    assert card["settings"]["frame"] == "object"
    assert card["settings"]["heat_layer"]["name"] == "features"
    row = by_correctness(rows, draws=20).filter(measure="iou").row(0, named=True)
    assert (row["n_right"], row["n_wrong"]) == (1, 1)
    assert row["difference"] > 0.3


def test_heat_maps_follow_the_framing_and_rows_carry_the_notes_of_their_scene(model, tmp_path):
    """The object is right of the center: squeezed to a square it lies in the model's patch, cropped it does not."""

    def wide(entry):
        image, mask = np.full((64, 128, 3), 90, np.uint8), np.zeros((64, 128), np.float32)
        image[8:24, 80:112], mask[8:24, 80:112] = 250, 1
        return Scene(entry.id, image, mask, 1, ("a note",))

    source = Source("made", LABELS, (Entry("wide", "a.png", None, 1),), wide)
    run_probe(SaliencyProbe(model, source, tmp_path / "squash", frame="squash"))
    run_probe(SaliencyProbe(model, source, tmp_path / "center", frame="center"))
    squash, cropped = (read_probe(tmp_path / how, "saliency").row(0, named=True) for how in ("squash", "center"))
    assert squash["precision"] > 0.5
    assert squash["true_probability"] > cropped["true_probability"]
    assert squash["notes"] == "a note"


@pytest.fixture
def benchmark(tmp_path):
    """Two photographs, each with an edit that moves the object out of the model's sight, one of them unreadable."""
    rows = []
    for name in ("one", "two"):
        for edit, bright, where in (("original", True, PATCH), ("position", True, np.s_[40:60, 4:24])):
            image, mask = picture(bright, where)
            path = f"{edit}-{name}.png"
            Image.fromarray(image).save(tmp_path / path)
            Image.fromarray((mask * 255).astype(np.uint8)).save(tmp_path / f"mask-{path}")
            rows.append(
                {"sample_id": f"{name}/{edit}/0", "source_id": name, "edit": edit, "label": 1, "path": path}
                | {"mask_path": f"mask-{path}", "status": "ok"}
            )
    rows.append({**rows[0], "sample_id": "one/size/0", "edit": "size", "path": "missing.png"})
    rows.append({**rows[0], "sample_id": "one/simple/0", "edit": "simple", "status": "skipped"})
    return SimpleNamespace(root=tmp_path, labels=LABELS, manifest=pa.Table.from_pylist(rows))


def test_a_benchmark_gives_the_change_from_original_to_edit(model, benchmark, tmp_path):
    outcome = run_probe(SaliencyProbe(model, benchmark, tmp_path / "out"))
    assert list(outcome.failures) == ["one/size/0"]
    rows = read_probe(tmp_path / "out", "saliency")
    assert sorted(rows["sample_id"]) == ["one/original/0", "one/position/0", "two/original/0", "two/position/0"]
    change = by_edit(rows, draws=50).filter(measure="iou").row(0, named=True)
    assert (change["edit"], change["n"]) == ("position", 2)
    assert change["change"] < -0.3
