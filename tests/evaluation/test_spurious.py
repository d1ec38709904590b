import json

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from unswayed.errors import UserError
from unswayed.evaluation.channels import activation_maps, channel_examples, study_channels
from unswayed.evaluation.heat import cluster, shared_regions
from unswayed.evaluation.measures import best_channels
from unswayed.evaluation.study import Channels, Regions
from unswayed.labels import own
from unswayed.models import Classifier, Transform
from unswayed.scene import Scene
from unswayed.sources.source import Entry, Source
from unswayed.views.report.section import figure_bytes
from unswayed.views.studies import channel_sheet, spurious_page, spurious_sheet, write_study_pictures

LABELS = own(["by something red", "by something green"])
TRANSFORM = Transform(resize=64, crop=64, mean=(0.0,) * 3, std=(1.0,) * 3)
RED, GREEN = (250, 0, 0), (0, 250, 0)


class SeesColors(nn.Module):
    """A channel a color (red, green, blue) on an 8×8 grid; the first class is their sum, the second half of it."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 3, 8, stride=8)
        with torch.no_grad():
            self.features.weight.zero_()
            self.features.bias.zero_()
            for channel in range(3):
                self.features.weight[channel, channel] = 1 / 64

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = self.features(x).mean((2, 3)).sum(1)
        return torch.stack([total, total / 2], 1)


@pytest.fixture
def model():
    return Classifier(SeesColors(), TRANSFORM, LABELS, "colors", device="cpu", layer="features")


def load(entry):
    """A gray-blue object at the left; something red or green at the right, which the masks call by its name."""
    image, mask = np.zeros((64, 64, 3), np.uint8), np.zeros((64, 64), np.float32)
    image[24:40, 0:16] = (20, 20, 90)
    mask[24:40, 0:16] = 1
    spot = np.zeros((64, 64), np.float32)
    row = int(entry.detail) * 8
    spot[row : row + 16, 40:56] = 1
    color = RED if entry.id.startswith("red") else GREEN
    image[spot > 0] = color
    return Scene(entry.id, image, mask, entry.label, parts={entry.id.split("-")[0]: spot})


@pytest.fixture
def source():
    names = [f"{color}-{i}" for color in ("red", "green") for i in range(4)]
    entries = tuple(Entry(name, f"{name}.png", None, i // 4, detail=str(i % 4 + 1)) for i, name in enumerate(names))
    return Source("made", LABELS, entries, load)


def test_regions_beside_the_object_are_clustered_by_what_they_show(model, source):
    regions = shared_regions(model, source, source.ids)
    assert len(regions) == 8
    by_color = {
        color: {one.cluster for one in regions if one.source_id.startswith(color)} for color in ("red", "green")
    }
    assert len(by_color["red"]) == len(by_color["green"]) == 1
    assert by_color["red"] != by_color["green"]
    for one in regions:
        top, left, bottom, right = one.box
        row = (int(one.source_id[-1]) % 4 + 1) * 8
        assert top - 8 <= row < row + 16 <= bottom + 8
        assert 32 <= left < right <= 64
        assert one.heat[24:40, 0:16].max() == 0
        assert one.share > 0.5


def test_the_gallery_has_a_slot_for_every_name_and_shows_the_names_given(model, source):
    regions = shared_regions(model, source, source.ids)
    shown = Regions("<colors>", LABELS.classes, regions)
    page = spurious_page(shown, {"0": 'a "red" thing'})
    assert page.count("<figure>") == 8
    assert page.count("data-cluster=") == 2
    assert 'value="a &#34;red&#34; thing"' in page
    assert "&lt;colors&gt;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert figure_bytes(spurious_sheet(shown, {"0": "red"}), "png").startswith(b"\x89PNG")


def test_few_regions_and_wrong_names():
    assert cluster(np.eye(3)).tolist() == [-1, -1, -1]


def test_a_model_that_looks_at_the_object_alone_has_no_regions(model, source):
    def object_alone(entry):
        scene = load(entry)
        return Scene(scene.id, np.where(scene.mask[..., None] > 0, scene.image, 0).astype(np.uint8), scene.mask, 0)

    with pytest.raises(UserError, match="beside the object"):
        shared_regions(model, Source("made", LABELS, source.entries, object_alone), source.ids)


def test_the_channel_of_a_color_is_found_for_the_attribute_of_that_color(model, source):
    study = study_channels(model, source)
    best = best_channels(study.table)
    found = {row["attribute"]: row for row in best.iter_rows(named=True)}
    assert found["red"]["channel"] == 0
    assert found["green"]["channel"] == 1
    assert found["object"]["channel"] == 2
    assert found["red"]["auroc"] == 1.0
    assert found["red"]["average_precision"] > 0.9
    assert found["red"]["iou"] > 0.4
    assert found["object"]["auroc"] is None
    assert (found["red"]["n_present"], found["red"]["n_absent"]) == (4, 4)
    assert set(study.examples("green", 1)) == {f"green-{i}" for i in range(4)}
    attributes = best.filter(pl.col("attribute") != "object")
    sheet = channel_sheet(Channels(attributes, channel_examples(model, source, study, attributes)))
    assert figure_bytes(sheet, "png").startswith(b"\x89PNG")


def test_hooks_are_gone_and_unknown_layers_are_named(model, source):
    with activation_maps(model) as maps_of:
        assert maps_of(torch.zeros(2, 3, 64, 64)).shape == (2, 3, 8, 8)
    assert not model.module.features._forward_hooks
    with pytest.raises(UserError, match="features"):
        study_channels(model, source, "blocks.3")


def test_pages_are_written_with_the_names_that_lie_beside_them(model, source, tmp_path, monkeypatch):
    from unswayed.evaluation import study as sensitivity_study

    monkeypatch.setattr("unswayed.jobs._packed", lambda worker, optional: None)  # this source is only in this process
    monkeypatch.setattr(sensitivity_study, "open_source", lambda spec: source)
    monkeypatch.setattr(sensitivity_study, "open_model", lambda *_, **__: model)
    (tmp_path / "spurious/colors").mkdir(parents=True)
    (tmp_path / "spurious/colors/names.json").write_text(json.dumps({"0": "traffic light"}))
    made = {"levels": "60", "ablation": False, "spurious": True, "channels": "heat"}
    study = sensitivity_study.run_study("made", ["colors"], tmp_path, **made)
    assert study.noise == study.saliency == ["colors"]
    assert [line.partition(":")[0] for line in write_study_pictures(study)] == [
        str(tmp_path / "spurious/colors/gallery.html")
    ]
    assert "traffic light" in (tmp_path / "spurious/colors/gallery.html").read_text()
    best = pl.read_csv(tmp_path / "channels/colors.best.csv")
    assert set(best["attribute"]) == {"object", "red", "green"}
