"""Masks of one's own photographs: uploaded, mended, undone, doubted, and found by the best segmenter that is here."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unswayed.errors import BadPicture, UserError
from unswayed.files.downloads import place_of
from unswayed.masks.sam2 import FILES
from unswayed.views.app.figures import drawn, marker
from unswayed.views.app.photographs import UNDONE, marked, open_upload, undone, uploaded_mask
from unswayed.views.app.studio import Studio

SAMPLE = Path(str(resources.files("unswayed.data").joinpath("sample")))


@pytest.fixture
def panda(tmp_path):
    shutil.copy(SAMPLE / "panda.jpg", tmp_path / "panda.jpg")
    return open_upload(str(tmp_path / "panda.jpg"), "grabcut")


def mask_file(folder: Path, size: tuple[int, int], box: tuple[int, int, int, int], name: str = "mine.png") -> str:
    mask = Image.new("L", size)
    mask.paste(255, box)
    mask.save(folder / name)
    return str(folder / name)


def size_of(photograph) -> tuple[int, int]:
    high, wide = photograph.scene.mask.shape
    return wide, high


def test_an_uploaded_mask_is_taken_and_one_of_another_size_with_the_same_proportions_is_scaled(panda, tmp_path):
    wide, high = size_of(panda)
    taken = uploaded_mask(panda, mask_file(tmp_path, (wide, high), (10, 20, 110, 140)))
    assert taken.notes == ("mask uploaded: mine.png",)
    assert taken.scene.mask[20:140, 10:110].all()
    assert taken.scene.mask.sum() == 100 * 120
    double = uploaded_mask(panda, mask_file(tmp_path, (2 * wide, 2 * high), (20, 40, 220, 280)))
    np.testing.assert_array_equal(double.scene.mask, taken.scene.mask)


def test_a_mask_that_does_not_belong_to_the_photograph_is_refused(panda, tmp_path):
    wide, high = size_of(panda)
    with pytest.raises(UserError, match=rf"mine\.png: the mask has {high + 40}×{wide} pixels and the photograph"):
        uploaded_mask(panda, mask_file(tmp_path, (high + 40, wide), (0, 0, 50, 50)))
    with pytest.raises(UserError, match="the mask is empty"):
        uploaded_mask(panda, mask_file(tmp_path, (wide, high), (0, 0, 0, 0)))
    with pytest.raises(BadPicture, match=r"^panda\.jpg: this is a color photograph, not a mask"):
        uploaded_mask(panda, str(tmp_path / "panda.jpg"))


def test_every_change_of_the_mask_can_be_undone_and_the_label_stays(panda, tmp_path):
    wide, high = size_of(panda)
    assert not panda.earlier
    with pytest.raises(UserError, match="no earlier mask"):
        undone(panda)
    boxed = marked(panda, {"box": [0.1, 0.1, 0.6, 0.8]}, "grabcut")
    taken = uploaded_mask(boxed, mask_file(tmp_path, (wide, high), (10, 20, 110, 140)))
    assert marked(taken, {"undo": True}, "grabcut") == boxed
    assert undone(undone(taken)) == panda
    for _ in range(UNDONE + 5):
        taken = uploaded_mask(taken, mask_file(tmp_path, (wide, high), (10, 20, 110, 140)))
    assert len(taken.earlier) == UNDONE


@pytest.mark.parametrize(
    ("share", "warning"),
    [(0.02, "covers only 2.0 % of the picture"), (0.2, None), (0.95, "covers 95 % of the picture"), (1.0, "all white")],
)
def test_an_object_that_is_very_small_or_very_large_is_doubted(panda, tmp_path, share, warning):
    wide, high = size_of(panda)
    # Enlarged about the middle, so that nothing looks inverted.
    side = share**0.5
    left, top = round(wide * (1 - side) / 2), round(high * (1 - side) / 2)
    mask = mask_file(tmp_path, (wide, high), (left, top, wide - left, high - top))
    shown = marker(uploaded_mask(panda, mask))
    assert ("message warning" in shown) == (warning is not None)
    if warning is not None:
        assert warning in shown
        assert "mend the mask with the brush, or upload a mask" in shown


def test_the_good_segmenter_is_taken_where_its_weights_are_and_else_its_command_is_said(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path))
    without = Studio(["lite:0"])
    assert without.segmenter == "grabcut"
    assert "<code>unswayed weights fetch masks</code>" in drawn("better_masks", command=without.better)
    value = onnx.helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, 320, 320])
    answer = onnx.helper.make_tensor_value_info("map", onnx.TensorProto.FLOAT, None)
    node = onnx.helper.make_node("Identity", ["image"], ["map"])
    graph = onnx.helper.make_graph([node], "small", [value], [answer])
    network = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    for name in FILES:
        onnx.save(network, place_of(name))
    assert (Studio(["lite:0"]).segmenter, Studio(["lite:0"]).better) == ("sam2", None)
    assert Studio(["lite:0"], "grabcut").better is None
    with pytest.raises(UserError, match="missing.onnx"):
        Studio(["lite:0"], "onnx:missing.onnx")
