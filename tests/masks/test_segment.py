"""Masks for photographs without one: GrabCut on the sample, a salient-object network through ONNX."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from command_line import refused
from outside_package import install
from unswayed.errors import BadPicture, UserError
from unswayed.masks import SEGMENTERS, parse_box
from unswayed.masks.confidence import mask_confidence
from unswayed.masks.segment import checked_box, grabcut, segment, segmented
from unswayed.sources import open_source


def overlap(mask, truth):
    found, wanted = mask > 0.5, truth > 0.5
    return (found & wanted).sum() / (found | wanted).sum()


def box_around(mask, margin=4):
    rows, columns = np.nonzero(mask > 0.5)
    left, top = columns.min() - margin, rows.min() - margin
    return int(left), int(top), int(np.ptp(columns)) + 2 * margin, int(np.ptp(rows)) + 2 * margin


@pytest.mark.parametrize("scene_id", ["panda", "sheep", "kangaroo"])
def test_grabcut_finds_the_object_in_its_box(scene_id):
    scene = open_source("sample")[scene_id]
    mask = segment(scene.image, box_around(scene.mask))
    assert mask.shape == scene.mask.shape
    assert mask.dtype == np.float32
    assert 0 <= mask.min() <= mask.max() <= 1
    assert overlap(mask, scene.mask) > 0.75


def test_grabcut_finds_an_object_in_the_middle_without_a_box():
    scene = open_source("sample")["duck"]
    assert overlap(segment(scene.image), scene.mask) > 0.8


def test_grabcut_gives_the_same_mask_again_whatever_was_drawn_in_between():
    import cv2

    scene = open_source("sample")["koala"]
    first = segment(scene.image)
    cv2.setRNGSeed(99)
    assert (segment(scene.image) == first).all()


def test_nothing_outside_the_box_is_object():
    scene = open_source("sample")["panda"]
    x, y, wide, high = box = (200, 100, 150, 120)
    mask = segment(scene.image, box)
    mask[y - 2 : y + high + 2, x - 2 : x + wide + 2] = 0
    assert mask.max() == 0


def test_a_made_mask_is_noted():
    scene = open_source("sample")["panda"]
    made = segmented("panda", scene.image, 388, "grabcut", (100, 50, 400, 350))
    assert made.label == 388
    (note,) = made.notes
    assert note.startswith("mask made by grabcut from the box 100,50,400,350 with confidence ")
    second = grabcut(scene.image, (100, 50, 400, 350), wider=True)
    sure = mask_confidence(scene.image, made.mask, overlap(made.mask, second))
    assert note.endswith(f"{sure.value:.4f}")


def test_a_box_that_leaves_no_background_or_lies_outside_is_refused():
    image = open_source("sample")["panda"].image
    high, wide = image.shape[:2]
    with pytest.raises(BadPicture, match="leaves no background"):
        segment(image, (0, 0, wide, high))
    assert checked_box((0, 0, 640, high), image.shape) == (0, 0, 640, high)


@pytest.mark.parametrize("box", [(700, 0, 10, 10), (-5, 0, 20, 20), (600, 0, 41, 20), (0, 0, 20, 427), (3, 3, 0, 5)])
def test_a_box_beyond_the_picture_is_refused_with_its_range(box):
    image = np.zeros((426, 640, 3), np.uint8)
    with pytest.raises(BadPicture, match="beyond the picture of 640×426 pixels") as refused:
        segment(image, box)
    assert "x + width ≤ 640 and 0 ≤ y < y + height ≤ 426" in str(refused.value)
    with pytest.raises(BadPicture, match="whole pixels"):
        segment(image, (1.5, 2, 50, 50))


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (2, 9)])
def test_a_picture_too_small_to_cut_is_refused(size):
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    with pytest.raises(BadPicture, match="leaves no background|found no object"):
        segment(image)


@pytest.mark.parametrize("text", ["1,2,3", "a,b,c,d", "1,2,0,4", "1.5,2,3,4", ""])
def test_a_box_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="X,Y,W,H"):
        parse_box(text)


@pytest.fixture
def redness(tmp_path):
    """A network whose answer is how red a pixel is, with U²-Net's input and output."""
    weight = numpy_helper.from_array(np.array([1.0, -0.5, -0.5], np.float32).reshape(1, 3, 1, 1), "weight")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["picture", "weight"], ["answer"])],
        "redness",
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, [1, 3, 320, 320])],
        [helper.make_tensor_value_info("answer", TensorProto.FLOAT, [1, 1, 320, 320])],
        [weight],
    )
    path = tmp_path / "redness.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_salient_object_network_makes_the_mask(redness):
    image = np.full((90, 160, 3), 90, np.uint8)
    image[30:60, 40:100] = (250, 20, 20)
    image[5:20, 130:150] = (250, 20, 20)
    mask = segment(image, segmenter=f"onnx:{redness}")
    truth = np.zeros((90, 160))
    truth[30:60, 40:100] = truth[5:20, 130:150] = 1
    assert overlap(mask, truth) > 0.9
    assert (mask.min(), mask.max()) == (0, 1)
    boxed = segment(image, (30, 20, 80, 50), f"onnx:{redness}")
    truth[5:20, 130:150] = 0
    assert overlap(boxed, truth) > 0.9


def test_a_picture_of_one_color_has_no_salient_object(redness):
    with pytest.raises(BadPicture, match="found no object"):
        segment(np.full((20, 30, 3), 7, np.uint8), segmenter=f"onnx:{redness}")


def test_a_segmenter_that_cannot_be_is_refused(tmp_path):
    image = np.zeros((8, 8, 3), np.uint8)
    with refused("did you mean 'sam2'", given="'sam'"):
        segment(image, segmenter="sam")
    with pytest.raises(UserError, match="needs a file"):
        segment(image, segmenter="onnx")
    with pytest.raises(UserError, match="takes no 'fast'"):
        segment(image, segmenter="grabcut:fast")
    with pytest.raises(UserError, match=r"gone\.onnx does not exist"):
        segment(image, segmenter=f"onnx:{tmp_path}/gone.onnx")
    (tmp_path / "words.onnx").write_text("words")
    with pytest.raises(UserError, match="is not a readable ONNX network"):
        segment(image, segmenter=f"onnx:{tmp_path}/words.onnx")


def test_an_installed_package_can_add_a_segmenter(tmp_path, monkeypatch):
    code = (
        "import numpy as np\n"
        "def open_middle(argument):\n"
        "    def middle(image, box=None):\n"
        "        mask = np.zeros(image.shape[:2], np.float32)\n"
        "        high, wide = mask.shape\n"
        "        mask[high // 4 : -high // 4, wide // 4 : -wide // 4] = float(argument or 1)\n"
        "        return mask\n"
        "    return middle\n"
    )
    install(tmp_path, {"unswayed.segmenters": {"middle": "outside_segmenter:open_middle"}}, outside_segmenter=code)
    monkeypatch.syspath_prepend(tmp_path)
    image = open_source("sample")["panda"].image
    assert segment(image, segmenter="middle:0.75").max() == 0.75
    assert "middle" in SEGMENTERS.usages()
    Image.fromarray(image).save(tmp_path / "panda.png")
    (scene,) = open_source(f"folder:{tmp_path}?segment=middle")
    assert scene.mask_origin.segmenter == "middle" and 0.2 < scene.pixel_rate < 0.3
    with pytest.raises(UserError) as caught:
        segment(image, segmenter="midle")
    assert "did you mean 'middle'" in caught.value.given
