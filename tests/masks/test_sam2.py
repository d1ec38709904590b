"""A salient network whose box prompts a promptable one: small ONNX networks made here, and the real weights."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from command_line import refused, run_cli
from unswayed.errors import BadPicture
from unswayed.masks import sam2
from unswayed.masks.confidence import edge_contrast, mask_confidence, plausible_size
from unswayed.masks.make_masks import make_masks
from unswayed.masks.sam2 import PromptedSegmenter, box_of, inner_points, overlap
from unswayed.masks.segment import default_segmenter, open_segmenter, with_agreement
from unswayed.sources import open_source

real = pytest.mark.skipif(bool(sam2.missing_files()), reason="run `unswayed weights fetch masks` first")
FLOAT = TensorProto.FLOAT


def save(path, nodes, inputs, outputs, constants=()):
    values = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs]
    answers = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "small", values, answers, initializer=list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return str(path)


@pytest.fixture
def prompted(tmp_path):
    """Networks that take each color channel for a candidate: an encoder that only shrinks, a decoder that scales."""
    pools = [
        helper.make_node("AveragePool", ["image"], [name], kernel_shape=[side, side], strides=[side, side])
        for name, side in (("high_res_feats_0", 4), ("high_res_feats_1", 8), ("image_embed", 16))
    ]
    names = [node.output[0] for node in pools]
    encoder = save(tmp_path / "encoder.onnx", pools, [("image", [1, 3, 1024, 1024])], names)
    scores = helper.make_tensor("iou_predictions_value", FLOAT, [1, 3], [0.9, 0.8, 0.7])
    ten = helper.make_tensor("ten", FLOAT, [], [10.0])
    nodes = [
        helper.make_node("Mul", ["high_res_feats_0", "ten"], ["masks"]),
        helper.make_node("Identity", ["iou_predictions_value"], ["iou_predictions"]),
    ]
    inputs = [(name, None) for name in (*names, "point_coords", "point_labels", "mask_input", "has_mask_input")]
    decoder = save(tmp_path / "decoder.onnx", nodes, inputs, ["masks", "iou_predictions"], [scores, ten])

    def blue(image, box=None):
        return (image[..., 2] > 128).astype(np.float32)

    return PromptedSegmenter(blue, encoder, decoder)


def picture():
    """A red square and, elsewhere, a blue one."""
    image = np.zeros((120, 160, 3), np.uint8)
    image[20:60, 20:60, 0] = 255
    image[60:110, 80:150, 2] = 255
    return image


def test_the_candidate_that_agrees_with_the_salient_map_wins_over_a_better_score(prompted):
    found = prompted.candidates(picture())
    assert overlap(found.masks[0], picture()[..., 2] > 128) > 0.9
    assert found.scores[0] == pytest.approx(0.7)
    assert prompted(picture()).shape == (120, 160)


def test_agreement_and_a_choice_of_ones_own(prompted):
    mask, agreement = with_agreement(prompted, picture(), None)
    assert 0.63 < agreement <= 0.7  # the network's own score is 0.7
    red, agreement = with_agreement(
        prompted,
        picture(),
        None,
        lambda image, masks: int(np.argmax([overlap(one, image[..., 0] > 128) for one in masks])),
    )
    assert overlap(red, picture()[..., 0] > 128) > 0.9 and agreement == 0
    assert overlap(mask, red) == 0


def test_a_picture_in_which_nothing_stands_out(prompted):
    with pytest.raises(BadPicture, match="no object stands out"):
        prompted(np.zeros((50, 50, 3), np.uint8))


def test_points_lie_deep_inside_and_apart():
    mask = np.zeros((100, 200))
    mask[10:90, 10:90] = mask[30:70, 90:180] = 1
    first, second = inner_points(mask, most=2)
    assert 40 <= first[0] <= 60 and 40 <= first[1] <= 60
    assert second[0] > 100 and 45 <= second[1] <= 55
    assert inner_points(np.zeros((5, 5))) == []


def test_a_given_box_is_part_of_every_prompt(prompted, monkeypatch):
    asked = []
    decode = PromptedSegmenter._decode
    monkeypatch.setattr(
        PromptedSegmenter, "_decode", lambda self, *given: asked.append(given[2:]) or decode(self, *given)
    )
    prompted.candidates(picture(), (70, 50, 85, 65))
    assert [len(corners) for corners, _ in asked] == [2, 2]
    asked.clear()
    found = prompted.candidates(picture())
    assert [(len(corners), len(inner) > 0) for corners, inner in asked] == [(2, False), (2, True), (0, True)]
    assert found.masks.shape == (9, 120, 160)


def test_the_box_holds_large_parts_and_no_specks():
    mask = np.zeros((100, 100))
    mask[10:40, 10:40] = mask[50:80, 60:90] = 1
    mask[95, 2] = 1
    assert box_of(mask) == (10, 10, 80, 70)
    assert box_of(np.zeros((10, 10))) is None


def test_confidence_falls_with_each_of_its_parts():
    scene = open_source("sample")["panda"]
    good = mask_confidence(scene.image, scene.mask, 0.95)
    moved = np.roll(scene.mask, 90, axis=1)
    assert good.edge > 0.6 > edge_contrast(scene.image, moved)
    assert mask_confidence(scene.image, scene.mask, 0.3).value < good.value
    assert plausible_size(np.ones((9, 9))) == 0
    assert edge_contrast(scene.image, np.zeros_like(scene.mask)) == 0


def test_missing_weights_name_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path))
    assert default_segmenter() == ("grabcut", "unswayed weights fetch masks")
    with refused(run=r"unswayed weights fetch masks"):
        open_segmenter("sam2")


def test_masks_come_with_their_confidence_and_the_worst_on_a_sheet(tmp_path, monkeypatch):
    import csv
    import shutil

    from PIL import Image

    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path / "cache"))
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in ("panda", "cat"):
        shutil.copy(open_source("sample").entry(name).image, photos / f"{name}.jpg")
    result = run_cli("masks", photos, "-o", tmp_path / "masks", code=0)
    assert "2 made" in result.stdout and "unswayed weights fetch masks" in result.stderr
    rows = list(csv.DictReader((tmp_path / "masks" / "confidence.csv").open()))
    assert [float(row["confidence"]) for row in rows] == sorted(float(row["confidence"]) for row in rows)
    assert Image.open(tmp_path / "masks" / "worst.jpg").size == (400, 216)


def test_the_candidate_without_which_the_class_is_lost():
    from unswayed.masks.sam2 import most_needed
    from unswayed.models import open_model

    scene = open_source("sample")["panda"]
    corner = np.zeros_like(scene.mask)
    corner[:40, :40] = 1
    choose = most_needed(open_model("lite:0", device="cpu"), scene.label)
    assert choose(scene.image, np.stack([corner, scene.mask])) == 1
    assert choose(scene.image, np.stack([scene.mask, corner])) == 0


def test_grabcut_from_the_center_reaches_its_figure(tmp_path):
    scenes = open_source("sample")[:4]
    results = []
    for scene in scenes:
        mask, agreement = with_agreement(open_segmenter("grabcut"), scene.image, None)
        results.append(overlap(mask, scene.mask))
        assert 0 <= agreement <= 1
    assert np.mean(results) > 0.55


@real
def test_the_real_networks_on_a_sample_scene(tmp_path):
    scene = open_source("sample")["panda"]
    mask, agreement = with_agreement(open_segmenter("sam2"), scene.image, None)
    assert overlap(mask, scene.mask) > 0.9 and agreement > 0.8
    (made,) = make_masks(_path("panda"), tmp_path, segmenter="silueta")
    assert made.status == "made" and made.confidence > 0.3


def _path(name):
    from pathlib import Path

    return Path(open_source("sample").entry(name).image)
