"""Readers of networks as files, which are opened and asked about two pictures; their runtimes are native code."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from fuzzing import Reader, placed

TFLITE = Path(__file__).parents[1] / "data" / "tiny_float32.tflite"
OPTIONS = "resize={0}&crop={0}&mean=0.5&std=0.5&interpolation=bilinear"


def means() -> tuple[Any, Any]:
    """A network and two pictures for it."""
    import torch

    class Means(torch.nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return 9.0 * pixels.mean((2, 3))

    return Means(), torch.zeros(2, 3, 8, 8)


def network(kind: str, files: list[bytes], suffix: str, side: int = 8, labels: bytes = b"a\nb\nc\n") -> Reader:
    import torch

    from unswayed.models import open_model

    def read(data: bytes) -> None:
        path, names = placed(f"{kind}{suffix}", data), placed("labels.txt", labels)
        model = open_model(f"{kind}:{path}?{OPTIONS.format(side)}&labels={names}", device="cpu")
        model.logits(torch.zeros(2, 3, side, side))

    return Reader(files, read)


def onnx() -> Reader:
    from onnx import TensorProto, helper, numpy_helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *rest]) for name, rest in _ENDS.items()]
    nodes = [
        helper.make_node("GlobalAveragePool", ["pixels"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["means"]),
        helper.make_node("MatMul", ["means", "weights"], ["logits"]),
    ]
    weights = [numpy_helper.from_array(np.eye(3, dtype=np.float32), "weights")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return network("onnx", [model.SerializeToString()], ".onnx")


_ENDS = {"pixels": [3, 8, 8], "logits": [3]}


def torchscript() -> Reader:
    import torch

    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(*means()), file)
    return network("torchscript", [file.getvalue()], ".pt")


def openvino() -> Reader:
    """The description in XML; a network without weights has an empty file beside it."""
    import openvino

    place, (module, pictures) = placed("made.xml", b""), means()
    openvino.save_model(openvino.convert_model(module, example_input=pictures), place)
    placed("openvino.bin", place.with_suffix(".bin").read_bytes())
    return network("openvino", [place.read_bytes()], ".xml")


def exported() -> Reader:
    import torch

    file, (module, pictures) = io.BytesIO(), means()
    torch.export.save(torch.export.export(module, (pictures,)), file)
    return network("pt2", [file.getvalue()], ".pt2")


def tflite() -> Reader:
    return network("tflite", [TFLITE.read_bytes()], ".tflite", 16, b"a\nb\nc\nd\ne\n")
