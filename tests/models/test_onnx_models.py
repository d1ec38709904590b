"""ONNX files: with a small JSON or options for transform and label offset, and refused without."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from unswayed.errors import UserError
from unswayed.models import open_model

TRANSFORM = {"resize": 8, "crop": 8, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
WEIGHT = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)


def write(path: Path, batch: int | str = "n", layout: str = "NCHW") -> None:
    """Mean over the places, then a matrix: (N, 3, 8, 8) -> (N, 5)."""
    shape, axes = ([batch, 3, 8, 8], [2, 3]) if layout == "NCHW" else ([batch, 8, 8, 3], [1, 2])
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=0),
        helper.make_node("MatMul", ["m", "w"], ["y"]),
    ]
    weights = [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.array(axes, np.int64), "axes")]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


def expected(image: np.ndarray) -> np.ndarray:
    return ((image.reshape(-1, 3).mean(0) / 255 - 0.5) / 0.25) @ WEIGHT


IMAGE = np.random.default_rng(1).integers(0, 256, (8, 8, 3), dtype=np.uint8)


@pytest.mark.parametrize(("batch", "layout"), [("n", "NCHW"), ("n", "NHWC"), (1, "NCHW"), (4, "NCHW")])
def test_the_json_beside_the_file_says_what_it_wants(tmp_path: Path, batch: int | str, layout: str) -> None:
    write(tmp_path / "m.onnx", batch, layout)
    settings = {"transform": TRANSFORM, "labels": ["a", "b", "c", "d", "e"], "layout": layout}
    (tmp_path / "m.onnx.json").write_text(json.dumps(settings))
    model = open_model(f"onnx:{tmp_path}/m.onnx")
    answers = model.logits(torch.stack([model.prepare(IMAGE)] * 6))
    assert np.allclose(answers.numpy(), expected(IMAGE)[None], atol=1e-5)


def test_options_and_a_background_class_in_front(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx")
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\n")
    options = f"resize=8&crop=8&mean=0.5&std=0.25&labels={tmp_path}/names.txt&label_offset=1"
    model = open_model(f"onnx:{tmp_path}/m.onnx?{options}")
    assert np.allclose(model.logits(model.prepare(IMAGE)[None])[0].numpy(), expected(IMAGE)[1:], atol=1e-5)


def test_without_a_transform_it_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx")
    with pytest.raises(UserError, match="it is not known how to prepare pictures"):
        open_model(f"onnx:{tmp_path}/m.onnx")


def test_a_wrong_number_of_classes_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx")
    model = open_model(f"onnx:{tmp_path}/m.onnx?resize=8&crop=8&mean=0.5&std=0.25")
    with pytest.raises(UserError, match="too few for 1000 classes"):
        model.logits(model.prepare(IMAGE)[None])


def test_a_wrong_crop_names_the_shape(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx")
    model = open_model(f"onnx:{tmp_path}/m.onnx?resize=16&crop=16&mean=0.5&std=0.25")
    with pytest.raises(UserError, match="does not take"):
        model.logits(model.prepare(IMAGE)[None])


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"not a model")
    with pytest.raises(UserError, match="not a readable ONNX model"):
        open_model(f"onnx:{tmp_path}/m.onnx?resize=8&crop=8&mean=0.5&std=0.25")
