"""What decides about the answers is asked each time: code, settings, weights, pictures; finished work is the same."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from color_world import CLASSES, coloured, write_benchmark
from unswayed.errors import UserError
from unswayed.evaluation import EvaluateSettings, cards, read_predictions, run_evaluation
from unswayed.files.whole import sha256
from unswayed.models import Classifier, Transform, open_model
from unswayed.models.wrappers import FlipAverage

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        return {sign} * nn.functional.pad(x.mean((2, 3)), (0, 1))
"""
MINE = """
from net import Net
from unswayed.models import Classifier, Transform

def build():
    return Classifier(Net(), Transform(32, 28, mean=(0.0,) * 3, std=(1.0,) * 3), ["red", "green", "blue", "grey"])

def late():
    from other import Net as Other
    return Classifier(Other(), Transform(32, 28, mean=(0.0,) * 3, std=(1.0,) * 3), ["red", "green", "blue", "grey"])
"""


def write_own(folder: Path, sign: int) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "net.py").write_text(NET.format(sign=f"{sign:+}"))
    (folder / "other.py").write_text(NET.format(sign=f"{sign:+}"))
    (folder / "mine.py").write_text(MINE)
    return f"python:{folder}/mine.py:build"


def accuracy(folder: Path, model: str) -> float:
    return cards(folder)[model]["originals"]["accuracy"]


def test_two_files_that_import_helpers_of_one_name_have_each_their_own(benchmark: Path, tmp_path: Path) -> None:
    good, bad = write_own(tmp_path / "one", 1), write_own(tmp_path / "two", -1)
    run_evaluation(
        benchmark, [good, bad, good.replace(":build", ":late")], tmp_path / "out", EvaluateSettings(device="cpu")
    )
    assert accuracy(tmp_path / "out", good) > 0.7
    assert accuracy(tmp_path / "out", bad) < 0.3
    assert accuracy(tmp_path / "out", good.replace(":build", ":late")) > 0.7


def test_a_changed_helper_is_never_skipped(benchmark: Path, tmp_path: Path) -> None:
    spec = write_own(tmp_path / "one", 1)
    assert run_evaluation(benchmark, [spec], tmp_path / "out", EvaluateSettings(device="cpu")).scored == (spec,)
    assert run_evaluation(benchmark, [spec], tmp_path / "out", EvaluateSettings(device="cpu")).skipped == (spec,)
    (tmp_path / "one" / "net.py").write_text(NET.format(sign=-20))
    assert run_evaluation(benchmark, [spec], tmp_path / "out", EvaluateSettings(device="cpu")).scored == (spec,)
    assert accuracy(tmp_path / "out", spec) < 0.3


def test_a_network_that_is_trained_on_between_two_evaluations_is_evaluated_again(
    benchmark: Path, tmp_path: Path
) -> None:
    world = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 4))
    with torch.no_grad():
        world[2].weight.copy_(torch.eye(4, 3))
    model = Classifier(world, Transform(32, 28, mean=(0.0,) * 3, std=(1.0,) * 3), ["red", "green", "blue", "grey"])
    settings = EvaluateSettings(device="cpu")
    assert run_evaluation(benchmark, [model], tmp_path / "out", settings).scored == (model.name,)
    assert run_evaluation(benchmark, [model], tmp_path / "out", settings).skipped == (model.name,)
    before = accuracy(tmp_path / "out", model.name)
    with torch.no_grad():
        world[2].weight.neg_()
    assert run_evaluation(benchmark, [model], tmp_path / "out", settings).scored == (model.name,)
    assert accuracy(tmp_path / "out", model.name) < before


def test_the_code_is_known_whatever_was_opened_before(tmp_path: Path) -> None:
    spec = write_own(tmp_path / "one", 1)
    (tmp_path / "one" / "more.py").write_text("import json\n\ndef nothing():\n    return json\n")
    (tmp_path / "one" / "second.py").write_text(MINE.replace("from net", "import more\nfrom net"))
    alone = open_model(spec).origin["code_sha256"]
    other = open_model(spec.replace("mine.py", "second.py"))
    assert other.origin["code_sha256"] != alone
    again = open_model(spec)
    assert again.origin["code_sha256"] == alone
    assert pickle.loads(pickle.dumps(other.module)) is not None
    write_own(tmp_path / "two", 1)
    open_model(f"python:{tmp_path}/two/mine.py:build")
    assert sys.modules["json"] is json
    assert sys.modules["net"].__file__ == str(tmp_path / "two" / "net.py")


def write_onnx(path: Path, sign: float, outputs: int = 5) -> None:
    """Mean over the places times a matrix; the matrix in a file of its own beside it."""
    weight = np.zeros((3, 4096 // 4), np.float32)
    weight[:, 1:4] = 20 * sign * np.eye(3)
    constants = [
        numpy_helper.from_array(weight, "w"),
        numpy_helper.from_array(np.array([2, 3], np.int64), "axes"),
        *(numpy_helper.from_array(np.array([value], np.int64), name) for name, value in (("a", 0), ("b", outputs))),
        numpy_helper.from_array(np.array([1], np.int64), "axis"),
    ]
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=0),
        helper.make_node("MatMul", ["m", "w"], ["p"]),
        helper.make_node("Slice", ["p", "a", "b", "axis"], ["y"]),
    ]
    shapes = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["n", 3, 28, 28]), ("y", None))]
    graph = helper.make_graph(nodes, "tiny", shapes[:1], shapes[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (path.parent / "weights.bin").unlink(missing_ok=True)  # onnx would add to it
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=1024)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    write_onnx(path, 1)
    settings = {"transform": {"resize": 32, "crop": 28, "mean": [0, 0, 0], "std": [1, 1, 1]}}
    settings |= {"labels": list(CLASSES), "label_offset": 1}
    Path(f"{path}.json").write_text(json.dumps(settings))
    return path


def test_weights_beside_an_onnx_file_are_part_of_it(benchmark: Path, exported: Path, tmp_path: Path) -> None:
    spec, before = f"onnx:{exported}", sha256(exported)
    assert run_evaluation(benchmark, [spec], tmp_path / "out").scored == (spec,)
    good = accuracy(tmp_path / "out", spec)
    write_onnx(exported, -1)
    assert sha256(exported) == before
    assert run_evaluation(benchmark, [spec], tmp_path / "out").scored == (spec,)
    assert accuracy(tmp_path / "out", spec) < good
    assert run_evaluation(benchmark, [spec], tmp_path / "out").skipped == (spec,)


def test_a_changed_label_offset_is_never_skipped(benchmark: Path, exported: Path, tmp_path: Path) -> None:
    spec, beside = f"onnx:{exported}", Path(f"{exported}.json")
    assert run_evaluation(benchmark, [spec], tmp_path / "out").scored == (spec,)
    beside.write_text(json.dumps({**json.loads(beside.read_text()), "label_offset": 0}))
    done = run_evaluation(benchmark, [spec], tmp_path / "out")
    assert (done.skipped, list(done.failed)) == ((), [spec])
    assert "has 4 classes" in done.failed[spec]


def test_adapted_statistics_are_known_by_the_batch_they_come_from(
    benchmark: Path, own_models: str, tmp_path: Path
) -> None:
    spec = f"{own_models}adapting+bn-adapt"
    for size in (8, None):
        assert run_evaluation(benchmark, [spec], tmp_path, EvaluateSettings(device="cpu", batch_size=size)).scored == (
            spec,
        )
        assert run_evaluation(benchmark, [spec], tmp_path, EvaluateSettings(device="cpu", batch_size=size)).skipped == (
            spec,
        )


def test_predictions_beside_the_card_of_other_settings_are_not_taken_for_finished(
    benchmark: Path, own_models: str, tmp_path: Path
) -> None:
    spec = f"{own_models}good"
    own, paper = EvaluateSettings(device="cpu"), EvaluateSettings(device="cpu", transform="paper")
    run_evaluation(benchmark, [spec], tmp_path, own)
    [card] = tmp_path.glob("*.json")
    earlier = card.read_bytes()
    run_evaluation(benchmark, [spec], tmp_path, paper)
    later = card.read_bytes()
    card.write_bytes(earlier)  # what a kill between the two files leaves
    with pytest.raises(UserError, match=r"is not the card of .*\n.*evaluate"):
        read_predictions(tmp_path)
    assert run_evaluation(benchmark, [spec], tmp_path, own).scored == (spec,)
    assert card.read_bytes() == earlier
    card.write_bytes(later)
    assert run_evaluation(benchmark, [spec], tmp_path, paper).scored == (spec,)


def test_parts_of_a_finished_model_are_removed(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    spec = f"{own_models}good"
    settings = EvaluateSettings(device="cpu")
    run_evaluation(benchmark, [spec], tmp_path, settings)
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    [card] = tmp_path.glob("*.json")
    left = tmp_path / ".parts" / f"{card.stem}-{'0' * 12}-32"
    left.mkdir(parents=True)
    (left / "000000-000001.parquet").write_bytes(b"")
    assert run_evaluation(benchmark, [spec], tmp_path, settings).skipped == (spec,)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


def with_hashes(root: Path) -> Path:
    """The benchmark with every file's hash in its manifest, as `build` writes it."""
    rows = parquet.read_table(root / "manifest.parquet").to_pylist()
    for row in rows:
        for path, digest in (("path", "sha256"), ("mask_path", "mask_sha256")):
            row[digest] = sha256(root / row[path]) if row[path] else None
    parquet.write_table(pa.Table.from_pylist(rows), root / "manifest.parquet")
    return root


def test_a_benchmark_whose_files_have_changed_is_refused(own_models: str, tmp_path: Path) -> None:
    root, spec = with_hashes(write_benchmark(tmp_path / "bench")), own_models + "good"
    picture = root / "images" / "dark" / "photo-003.png"
    good = picture.read_bytes()
    run_evaluation(root, [spec], tmp_path / "out", EvaluateSettings(device="cpu"))
    for other in (good[:-40], None):
        if other is None:
            Image.fromarray(coloured(0, 99)).save(picture)
        else:
            picture.write_bytes(other)
        for folder in ("out", "new"):
            with pytest.raises(UserError, match=r"fails verification:\n  images/dark/photo-003.png: is not the file"):
                run_evaluation(root, [spec], tmp_path / folder, EvaluateSettings(device="cpu"))
    picture.write_bytes(good)
    assert run_evaluation(root, [spec], tmp_path / "out", EvaluateSettings(device="cpu")).skipped == (spec,)


def test_wrapped_models_see_the_papers_crop(own_models: str) -> None:
    both = [open_model(f"{own_models}adapting+{one}").with_transform("paper") for one in ("tencrop", "bn-adapt")]
    assert [(one.transform.resize, one.transform.crop) for one in both] == [(256, 256), (256, 224)]
    assert both[0].module.crop == 224
    assert both[0].name.endswith("+tencrop")
    assert both[0].weights_hash == open_model(f"{own_models}adapting").weights_hash


def test_a_wrapped_model_of_ones_own_stays_what_it_is_under_the_papers_crop(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    write_own(tmp_path, 1)
    file.write_text(
        MINE + "\ndef wrapped():\n    from unswayed.models.wrappers import tencrop\n    return tencrop(build())\n"
    )
    model = open_model(f"python:{file}:wrapped", precision="bf16")
    paper = model.with_transform("paper")
    assert (paper.precision, paper.origin, paper.name) == ("bf16", model.origin, model.name)
    assert (paper.transform.crop, paper.module.crop) == (256, 224)


def test_adapted_weights_are_kept_once(own_models: str) -> None:
    adapted = open_model(f"{own_models}adapting+bn-adapt")
    assert adapted.wraps is None
    both = open_model(f"{own_models}adapting+tencrop+bn-adapt").with_transform("paper")
    assert (both.transform.crop, both.module.crop) == (256, 224)
    assert both.adapt is not None


def test_every_wrapper_of_several_stays_under_the_papers_crop(own_models: str) -> None:
    model = open_model(f"{own_models}adapting+tencrop+flip").with_transform("paper")
    assert isinstance(model.module, FlipAverage) and model.module.inner.crop == 224


HIDDEN = """
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import nn
from unswayed.models import Classifier, Transform

HERE = Path(__file__).parent
WEIGHTS = np.load(HERE / "weights.npy")

class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.held = kind, None
        if kind == "tensor":
            self.held = torch.from_numpy(WEIGHTS)
        if kind == "array":
            self.held = {{"weights": [WEIGHTS]}}
        if kind == "beside":
            self.other = nn.Parameter(torch.zeros(3))
        if kind == "session":
            self.held = onnxruntime.InferenceSession(str(HERE / "net.onnx"))

    def forward(self, x):
        if self.kind == "session":
            return torch.from_numpy(self.held.run(None, {{"x": x.numpy()}})[0])[:, 1:]
        return x.mean((2, 3)) @ torch.from_numpy(WEIGHTS)

def build():
    transform = Transform(32, 28, mean=(0.0,) * 3, std=(1.0,) * 3)
    return Classifier(Net({kind!r}), transform, ["red", "green", "blue", "grey"])
"""


def write_hidden(folder: Path, sign: float) -> None:
    np.save(folder / "weights.npy", sign * 20 * np.eye(3, 4, dtype=np.float32))
    write_onnx(folder / "net.onnx", sign)


@pytest.mark.parametrize("kind", ["tensor", "array", "global", "beside", "session"])
def test_weights_outside_the_state_are_never_stale(kind: str, benchmark: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HIDDEN.format(kind=kind))
    spec, settings = f"python:{tmp_path}/mine.py:build", EvaluateSettings(device="cpu")
    write_hidden(tmp_path, 1)
    assert run_evaluation(benchmark, [spec], tmp_path / "out", settings).scored == (spec,)
    assert run_evaluation(benchmark, [spec], tmp_path / "out", settings).skipped == (spec,)
    before = open_model(spec).weights_hash
    write_hidden(tmp_path, -1)
    assert run_evaluation(benchmark, [spec], tmp_path / "out", settings).scored == (spec,)
    assert accuracy(tmp_path / "out", spec) < 0.3
    if kind != "beside":  # which has a state
        assert open_model(spec).weights_hash != before


QUANTIZED = '''
import warnings

import torch
from torch import nn
from unswayed.models import Classifier, Transform

class Alone(nn.Module):
    """Each picture by itself, since dynamic quantization finds its ranges in the batch."""

    def __init__(self, packed):
        super().__init__()
        self.packed = packed

    def forward(self, x):
        return torch.cat([self.packed(picture[None]) for picture in x])

def build():
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    with torch.no_grad():
        net[2].weight.copy_({sign} * 20 * torch.eye(4, 3))
        net[2].bias.zero_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed = torch.ao.quantization.quantize_dynamic(net, {{nn.Linear}})
    transform = Transform(32, 28, mean=(0.0,) * 3, std=(1.0,) * 3)
    return Classifier(Alone(packed), transform, ["red", "green", "blue", "grey"])
'''


def test_a_quantized_network_is_evaluated_and_known_by_its_packed_weights(benchmark: Path, tmp_path: Path) -> None:
    spec, settings = f"python:{tmp_path}/mine.py:build", EvaluateSettings(device="cpu")
    (tmp_path / "mine.py").write_text(QUANTIZED.format(sign=1))
    good = open_model(spec)
    assert good.nbytes >= (12 + 4) * 4  # as the numbers that the packed ones stand for
    done = run_evaluation(benchmark, [spec], tmp_path / "out", settings)
    assert done.scored == (spec,), done.failed
    assert accuracy(tmp_path / "out", spec) > 0.7
    (tmp_path / "mine.py").write_text(QUANTIZED.format(sign=-1))
    assert open_model(spec).weights_hash != good.weights_hash
