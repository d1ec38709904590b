"""Detectors and segmenters from files and libraries: inputs, decodings, label spaces, and answers known beforehand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from object_world import COLORS
from onnx_detectors import ColorNetwork, OfBytes, write_detector
from unswayed.errors import UserError
from unswayed.labels import imagenet, object_space, own
from unswayed.models import Answer, Inputs, ObjectModel, open_any
from unswayed.models.box_decoding import DECODINGS, corners, suppressed
from unswayed.models.label_mapping import map_objects, read_labels

BOXES = np.array([[40.0, 60, 200, 180], [300, 10, 380, 90]], np.float32)


def read(name: str, *outputs: np.ndarray, size: tuple[int, int] = (416, 416)) -> tuple[np.ndarray, ...]:
    return DECODINGS[name].boxes(outputs, size)


def centered(boxes: np.ndarray) -> np.ndarray:
    return np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1)


def test_yolox_offsets_are_read_from_their_cells() -> None:
    values = np.zeros((52 * 52 + 26 * 26 + 13 * 13, 85), np.float32)
    middle = centered(BOXES)
    for (x, y, wide, high), cell, stride in zip(middle, (52 * 52 + 5 * 26 + 7, 6 * 52 + 42), (16, 8), strict=True):
        column, row = (7, 5) if stride == 16 else (42, 6)
        values[cell, :4] = x / stride - column, y / stride - row, np.log(wide / stride), np.log(high / stride)
        values[cell, 4], values[cell, 5 + 16] = 0.9, 0.8
    boxes, classes, scores = read("yolox", values[None])
    order = np.argsort(boxes[:, 0])
    assert np.allclose(boxes[order], BOXES, atol=1e-3)
    assert classes.tolist() == [16, 16] and np.allclose(scores, 0.72)


def test_yolox_refuses_an_output_of_another_input() -> None:
    with pytest.raises(UserError, match="no grid of YOLOX"):
        read("yolox", np.zeros((100, 85), np.float32))


@pytest.mark.parametrize("name", ["yolov5", "yolov7", "yolov8", "yolov11", "yolov10", "ssd", "lists"])
def test_every_common_output_gives_the_same_boxes(name: str) -> None:
    classes, scores = np.array([2, 0]), np.array([0.9, 0.4], np.float32)
    one_hot = np.eye(4, dtype=np.float32)[classes]
    if name in ("yolov5", "yolov7"):
        outputs = [np.concatenate([centered(BOXES), np.full((2, 1), 0.5), one_hot * 2 * scores[:, None]], 1)[None]]
        outputs = [np.concatenate([outputs[0], np.zeros((1, 9, 9))], 1)]
    elif name in ("yolov8", "yolov11"):
        rows = np.concatenate([centered(BOXES), one_hot * scores[:, None]], 1)
        outputs = [np.concatenate([rows, np.zeros((9, 8))]).T[None]]
    elif name == "yolov10":
        outputs = [np.concatenate([BOXES, scores[:, None], classes[:, None]], 1)[None]]
    elif name == "ssd":
        shares = BOXES[:, [1, 0, 3, 2]] / 416
        outputs = [np.pad(shares, ((0, 3), (0, 0)))[None], np.pad(classes, (0, 3))[None].astype(np.float32)]
        outputs += [np.pad(scores, (0, 3))[None], np.array([2.0])]
    else:
        outputs = [BOXES, classes, scores]
    boxes, found, sure = read(name, *outputs)
    assert np.allclose(boxes, BOXES, atol=1e-3)
    assert found.tolist() == classes.tolist() and np.allclose(sure, scores)


@pytest.mark.parametrize("format", ["xyxy", "xywh", "cxcywh", "yxyx"])
def test_box_formats(format: str) -> None:
    stated = {
        "xyxy": BOXES,
        "xywh": np.concatenate([BOXES[:, :2], BOXES[:, 2:] - BOXES[:, :2]], 1),
        "cxcywh": centered(BOXES),
        "yxyx": BOXES[:, [1, 0, 3, 2]],
    }
    assert np.allclose(corners(stated[format], format), BOXES)  # type: ignore[arg-type]


def test_suppression_keeps_overlapping_boxes_of_different_classes() -> None:
    boxes = np.array([[0, 0, 10, 10], [1, 0, 11, 10], [1, 0, 11, 10]], np.float32)
    kept, classes, scores = suppressed((boxes, np.array([0, 0, 1]), np.array([0.9, 0.8, 0.7], np.float32)), 0.45)
    assert classes.tolist() == [0, 1] and np.allclose(scores, [0.9, 0.7]) and kept.shape == (2, 4)
    alone = suppressed((boxes[:2], np.array([0, 0]), np.array([0.9, 0.8], np.float32)), 0.45)
    assert [part.shape for part in alone] == [(1, 4), (1,), (1,)]


@given(
    high=st.integers(40, 500), wide=st.integers(40, 500), fit=st.sampled_from(["letterbox", "center", "squash"]),
    side=st.sampled_from([(416, 416), (640, 480)]),
)  # fmt: skip
def test_boxes_come_back_to_where_they_were(high: int, wide: int, fit: str, side: tuple[int, int]) -> None:
    inputs = Inputs(*side, fit=fit)  # type: ignore[arg-type]
    box = np.array([[wide * 0.2, high * 0.3, wide * 0.7, high * 0.9]])
    left, top, inner_wide, inner_high = inputs.place(high, wide)
    assert left + inner_wide <= side[0] and top + inner_high <= side[1]
    moved = box * ([inner_wide / wide, inner_high / high] * 2) + [left, top, left, top]
    assert np.allclose(inputs.boxes_back(moved, high, wide), box, atol=1e-3)
    # A map of the input's size, whose left half of the picture is class 1, comes back as the left half.
    values = np.zeros((side[1], side[0]))
    values[:, : left + inner_wide // 2] = 1
    assert abs(inputs.map_back(values, high, wide).mean() - 0.5) < 2 / min(inner_wide, wide)


def test_values_and_channels_are_as_stated() -> None:
    image = np.full((50, 100, 3), (255, 0, 51), np.uint8)
    values = Inputs(20, 20, fill=102, channels="BGR", scale=255).apply(image)
    assert values.shape == (20, 20, 3)
    assert values[0, 0].tolist() == [51, 0, 255] and np.allclose(values[19, 0], 102, atol=1e-4)
    scaled = Inputs(20, 20, fit="squash", mean=(0.5,) * 3, std=(0.5,) * 3).apply(image)
    assert np.allclose(scaled[19, 0], [1, -1, -0.6])


def test_label_spaces_of_objects() -> None:
    coco, numbered = object_space("coco-80"), object_space("coco-91")
    assert (len(coco), coco.classes[0], coco.classes[79]) == (80, "person", "toothbrush")
    assert (len(numbered), numbered.classes[1], numbered.classes[90]) == (91, "person", "toothbrush")
    assert object_space("voc-20").classes[:2] == ("aeroplane", "bicycle")


def test_lists_of_labels_with_gaps_and_other_spellings() -> None:
    """Lists that come with detectors name gaps `???` and write classes without their spaces."""
    space = read_labels(["???", "person", "tv-monitor", "N/A", "dining_table", "trafficlight"])
    assert space.classes[0] == "class 0" and space.classes[3] == "class 3"
    coco = object_space("coco-80")
    members = map_objects(space, coco, [0]).members
    named = {coco.classes[index]: group for index, group in enumerate(members) if group}
    assert named == {"person": (1,), "tv": (2,), "dining table": (4,), "traffic light": (5,)}


def test_classes_are_matched_by_what_they_mean() -> None:
    coco, voc = object_space("coco-80"), object_space("voc-20")
    labrador, kite = imagenet().index("Labrador retriever"), 21
    of_imagenet = map_objects(coco, imagenet(), [labrador])
    assert of_imagenet.members[labrador] == (coco.index("dog"),)
    assert of_imagenet.members[kite] == (coco.index("bird"),), "ImageNet's kite is a bird, COCO's is a toy"
    assert coco.index("dog") not in of_imagenet.targets, "a dog is none of the breeds in particular"
    firsts = of_imagenet.firsts
    assert firsts[coco.index("dog")] < labrador and firsts[coco.index("pizza")] == imagenet().index("pizza")
    of_coco = map_objects(voc, coco, [4])
    assert of_coco.members[coco.index("airplane")] == (voc.index("aeroplane"),)
    assert of_coco.members[coco.index("pizza")] == ()
    with pytest.raises(UserError, match="no counterpart"):
        map_objects(voc, coco, [coco.index("pizza")])


def test_a_detector_that_knows_kinds_is_asked_about_them() -> None:
    coco, kinds = object_space("coco-80"), own(["beagle", "pug", "dog", "kite"])
    beagle, labrador = imagenet().index("beagle"), imagenet().index("Labrador retriever")
    of_imagenet = map_objects(kinds, imagenet(), [beagle])
    assert of_imagenet.members[beagle] == (0,) and of_imagenet.members[labrador] == (2,)
    assert of_imagenet.members[21] == (), "a kite is no bird"
    assert map_objects(kinds, coco, [16]).members[coco.index("dog")] == (0, 1, 2)
    # Photographs in folders that are named like ImageNet's classes, and a folder of no dogs.
    folders = own(["beagle", "n02110958", "crane"])
    assert map_objects(coco, folders, [0]).members == ((16,), (16,), ())
    assert map_objects(own(["pug"]), folders, [1]).members == ((), (0,), ())


@pytest.fixture(scope="session")
def color_detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_detector(ColorNetwork(), tmp_path_factory.mktemp("detector") / "colors.onnx", list(COLORS))


def test_an_onnx_detector_finds_planted_objects(color_detector: Path) -> None:
    model = open_any(f"detector:{color_detector}")
    assert isinstance(model, ObjectModel) and model.inputs == Inputs(128, 128)
    image = np.full((96, 192, 3), 128, np.uint8)
    image[30:60, 48:150] = COLORS["leaf"]
    answers = model.answer([model.prepare(image), model.prepare(image[:, ::-1])])
    assert [answer.classes.tolist() for answer in answers] == [[1], [1]]
    assert np.abs(answers[0].boxes - [[48, 30, 150, 60]]).max() <= 1.6  # type: ignore[operator]
    assert np.abs(answers[1].boxes - [[42, 30, 144, 60]]).max() <= 1.6  # type: ignore[operator]
    card = model.card()
    assert card["transform"] | {"fit": "letterbox", "score": 0.5} == card["transform"]
    assert card["origin"]["settings"]["decoding"] == "yolov10"


@pytest.mark.parametrize(("network", "kind", "scale"), [(OfBytes, torch.uint8, 255), (ColorNetwork, torch.float16, 1)])
def test_inputs_of_bytes_and_in_half_precision(
    network: type[torch.nn.Module], kind: torch.dtype, scale: int, tmp_path: Path
) -> None:
    file = write_detector(network(), tmp_path / "colors.onnx", list(COLORS), kind)
    image = np.full((128, 128, 3), 128, np.uint8)
    image[30:60, 48:100] = COLORS["ball"]
    model = open_any(f"detector:{file}?scale={scale}")
    [answer] = model.answer([model.prepare(image)])  # type: ignore[union-attr]
    assert answer.classes.tolist() == [2] and np.abs(answer.boxes - [[48, 30, 100, 60]]).max() <= 1.6


def test_settings_that_change_the_boxes_are_in_the_card(color_detector: Path) -> None:
    cards = [open_any(f"detector:{color_detector}{more}").card()["origin"] for more in ("", "?nms=0", "?shares=no")]
    assert len({json.dumps(card) for card in cards}) == 3


def test_what_a_file_must_state(color_detector: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.onnx"
    bare.write_bytes(color_detector.read_bytes())
    with pytest.raises(UserError, match="how the outputs of bare.onnx are read") as refused:
        open_any(f"detector:{bare}")
    assert "yolov8" in str(refused.value)
    model = open_any(f"detector:{bare}?decoding=yolov10&score=0.7&channels=BGR&labels={_names(tmp_path)}")
    assert (model.card()["transform"]["channels"], model.card()["transform"]["score"]) == ("BGR", 0.7)
    with pytest.raises(UserError, match="there is no decoding 'yolov99'"):
        open_any(f"detector:{bare}?decoding=yolov99")
    (tmp_path / "bare.onnx.json").write_text('{"decodign": "yolov8"}')
    with pytest.raises(UserError, match="decodign"):
        open_any(f"detector:{bare}")


@pytest.mark.parametrize(
    ("stated", "given", "allowed"),
    [
        ({"fill": 300}, "fill of a detector's input is 300", "0 to 255"),
        ({"mean": [0.5, 0.5]}, "mean (0.5, 0.5)", "three for mean and std"),
        ({"std": 0}, "std (0.0, 0.0, 0.0)", "std are not 0"),
        ({"nms": 45}, "nms, is 45", "0 to 1"),
        ({"decoding": "ssd"}, "[(1, 3, 6)], are none of ssd", "another decoding"),
        ({"labels": "coco80"}, "no file of labels coco80", "coco-80"),
        ({"box_format": "ltrb"}, "'box_format' is 'ltrb'", "xyxy, xywh"),
    ],
)
def test_wrong_settings_are_refused_and_say_what_is_allowed(
    color_detector: Path, tmp_path: Path, stated: dict[str, object], given: str, allowed: str
) -> None:
    file = tmp_path / "wrong.onnx"
    file.write_bytes(color_detector.read_bytes())
    right = {"decoding": "yolov10", "labels": list(COLORS)}
    (tmp_path / "wrong.onnx.json").write_text(json.dumps(right | stated))
    with pytest.raises(UserError) as refused:
        _answered(f"detector:{file}")
    assert given in refused.value.given and allowed in str(refused.value.allowed)


@pytest.mark.parametrize("option", ["score=nan", "nms=inf", "shares=maybe"])
def test_options_that_are_no_numbers_are_refused(color_detector: Path, option: str) -> None:
    with pytest.raises(UserError, match=option.replace("=", ".*")):
        open_any(f"detector:{color_detector}?{option}")


def test_a_segmenter_with_another_number_of_classes_is_refused() -> None:
    model = ObjectModel(lambda pictures: [np.zeros((4, 4, 3))], ["cat", "dog"], "segment")
    with pytest.raises(UserError, match="scores 3 classes, and 2 labels"):
        model.answer([model.prepare(np.zeros((4, 4, 3), np.uint8))])


def _answered(name: str) -> list[Answer]:
    model = open_any(name)
    assert isinstance(model, ObjectModel)
    return model.answer([model.prepare(np.zeros((64, 64, 3), np.uint8))])


def _names(folder: Path) -> Path:
    path = folder / "names.txt"
    path.write_text("\n".join(COLORS))
    return path


def test_torchvision_networks_with_a_checkpoint_answer_in_their_classes(tmp_path: Path) -> None:
    from torchvision import models

    torch.manual_seed(0)
    image = np.random.default_rng(0).integers(0, 255, (96, 128, 3), np.uint8)
    for kind, name, classes in (
        ("detector", "ssdlite320_mobilenet_v3_large", "coco-91"),
        ("segmenter", "lraspp_mobilenet_v3_large", "voc-20"),
    ):
        count = len(object_space(classes))
        network = models.get_model(name, weights=None, weights_backbone=None, num_classes=count)
        file = tmp_path / f"{name}.pt"
        torch.save(network.state_dict(), file)
        model = open_any(f"{kind}:torchvision:{name}?checkpoint={file}&labels={classes}&score=0", device="cpu")
        assert len(model.labels) == count
        [answer] = model.answer([model.prepare(image)])  # type: ignore[union-attr]
        if kind == "detector":
            with torch.inference_mode():
                [direct] = network.eval()([torch.from_numpy(image).permute(2, 0, 1) / 255])
            kept = direct["scores"] >= 0.01
            assert np.allclose(answer.boxes, direct["boxes"][kept], atol=0.01)
            assert answer.classes.tolist() == direct["labels"][kept].tolist()
        else:
            assert answer.masks.shape[1:] == (96, 128) and answer.masks.sum(0).max() == 1 and answer.merged
