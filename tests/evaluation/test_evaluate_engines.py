"""Evaluation in several processes, on a Ray cluster and in shards: the same bytes as in one process, whatever dies."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from deadly import unswayed
from outside_package import install
from ray_cluster import two_nodes
from unswayed.benchmark import BuildSettings, build
from unswayed.evaluation import EvaluateSettings, cards, read_predictions, run_evaluation
from unswayed.files.tensor_files import write_tensor_file
from unswayed.models import Classifier, open_model

# Added to the models of `color_world`: what a model can do to its process.
CRASHES = """
import os, signal, sys

class Crash(Colour):
    def forward(self, x):
        y = super().forward(x)
        if (y.argmax(1) == 2).any():
            crash()
        return y

def segfault():
    global crash
    crash = lambda: os.kill(os.getpid(), signal.SIGSEGV)
    return Classifier(Crash(), PLAIN, NAMES)

def leaves():
    global crash
    crash = lambda: sys.exit(3)
    return Classifier(Crash(), PLAIN, NAMES)

def leaves_at_once():
    os._exit(5)

def poisoned_pictures():
    from unswayed.evaluation import decoding
    real = decoding.read_picture
    def read(path, *limits):
        if str(path).endswith("photo-003.png"):
            os.kill(os.getpid(), signal.SIGSEGV)
        return real(path, *limits)
    decoding.read_picture = read
    return Classifier(Colour(), PLAIN, NAMES)
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("engines") / "bench"
    build("sample", root, BuildSettings(recipe="original,size-0.1", renderer="paste", limit=3, size=64))
    return root


@pytest.fixture(scope="module")
def alone(bench: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return evaluated(bench, tmp_path_factory.mktemp("alone"))


def evaluated(bench: Path, folder: Path, **settings: Any) -> dict[str, bytes]:
    """The files of an evaluation in batches of one picture."""
    done = run_evaluation(bench, ["lite:0"], folder, EvaluateSettings(**{"device": "cpu", "batch_size": 1, **settings}))
    assert done.failed == {}
    return files(folder)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_device_processes_write_the_bytes_of_one(bench: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    assert evaluated(bench, tmp_path, device="cpu,cpu") == alone
    assert sorted(alone) == ["lite-0.json", "lite-0.parquet"]


def test_threads_write_the_bytes_of_one(bench: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert evaluated(bench, tmp_path) == alone
    finally:
        torch.set_num_threads(before)


def test_the_last_shard_merges_and_a_repeated_one_does_nothing(
    bench: Path, alone: dict[str, bytes], tmp_path: Path
) -> None:
    settings = {"device": "cpu", "batch_size": 1}
    first = run_evaluation(bench, ["lite:0"], tmp_path, EvaluateSettings(shard="2/2", **settings))
    assert (first.scored, first.unfinished, first.failed) == ((), ("lite:0",), {})
    assert not list(tmp_path.glob("*.parquet"))
    last = run_evaluation(bench, ["lite:0"], tmp_path, EvaluateSettings(shard="1/2", **settings))
    assert (last.scored, last.unfinished) == (("lite:0",), ())
    assert files(tmp_path) == alone
    again = run_evaluation(bench, ["lite:0"], tmp_path, EvaluateSettings(shard="2/2", **settings))
    assert (again.scored, again.skipped) == ((), ("lite:0",))
    assert files(tmp_path) == alone


def test_an_evaluation_that_loses_a_node_ends_in_the_bytes_of_one_process(
    bench: Path, alone: dict[str, bytes], tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    lost: list[int] = []

    def lose_a_node(done: int, total: int) -> None:
        if done and not lost:
            lost.append(done)
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

    with two_nodes() as cluster:
        settings = EvaluateSettings(engine="ray", address=cluster.address, device="cpu,cpu", batch_size=1)
        done = run_evaluation(bench, ["lite:0"], tmp_path, settings, progress=lose_a_node)
    assert lost
    assert done.failed == {}
    assert files(tmp_path) == alone
    assert read_predictions(tmp_path)["sample_id"].is_unique().all()


@pytest.fixture(scope="module")
def crashes(own_models: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("crashes") / "crashes.py"
    path.write_text(Path(own_models.removeprefix("python:").removesuffix(":")).read_text() + CRASHES)
    return f"python:{path}:"


def test_models_that_end_their_process_fail_alone(benchmark: Path, crashes: str, tmp_path: Path) -> None:
    names = [crashes + name for name in ("segfault", "good", "leaves", "leaves_at_once")]
    done = run_evaluation(benchmark, names, tmp_path, EvaluateSettings(device="cpu", batch_size=4))
    assert done.scored == (crashes + "good",)
    assert "SIGSEGV" in done.failed[crashes + "segfault"]
    assert "SystemExit: 3" in done.failed[crashes + "leaves"]
    assert "exit code 5" in done.failed[crashes + "leaves_at_once"]
    assert {json.loads(path.read_text())["model"] for path in tmp_path.glob("*.failed.json")} == set(done.failed)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only this processor stops at the overflow of a division")
def test_an_onnx_file_that_crashes_its_runtime_fails_alone(bench: Path, tmp_path: Path) -> None:
    spec = f"onnx:{overflowing(tmp_path / 'm.onnx')}?resize=8&crop=8&mean=0.5&std=0.25&labels=imagenet"
    write_head(tmp_path / "head", spec)
    write_repaired(tmp_path / "repaired", spec)
    names = [spec, f"head:{tmp_path / 'head'}", f"repaired:{tmp_path / 'repaired'}"]
    done = run_evaluation(bench, [*names, "lite:0"], tmp_path / "out", EvaluateSettings(device="cpu"))
    assert done.scored == ("lite:0",)
    assert ["SIGFPE" in done.failed[name] for name in names] == [True] * 3


def write_head(folder: Path, base: str) -> None:
    """A head for two classes on the features of a model."""
    card = {"base": base, "base_weights_sha256": open_model(base, device="cpu").weights_hash}
    labels = {"name": "two", "classes": ["cat", "dog"]}
    write_tensor_file(folder / "head.safetensors", {"weight": torch.zeros(2, 8), "bias": torch.zeros(2)})
    (folder / "head.json").write_text(json.dumps({**card, "labels": labels}))


def write_repaired(folder: Path, base: str) -> None:
    """A model for two classes that was trained from another one."""
    write_tensor_file(folder / "model.safetensors", {"weight": torch.zeros(2, 8)})
    transform = open_model(base, device="cpu").transform.to_json()
    card = {"base": base, "labels": {"name": "two", "classes": ["cat", "dog"]}, "transform": transform}
    (folder / "card.json").write_text(json.dumps({**card, "architecture": {}, "training": {}, "weights_sha256": ""}))


def overflowing(path: Path) -> Path:
    """An ONNX file that divides the lowest integer by −1, which ends the process that runs it."""
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node
    lowest = numpy.iinfo(numpy.int32).min
    values = {"w": numpy.ones((3, 1000), numpy.float32), "axes": numpy.array([2, 3])}
    values |= {name: numpy.array([one], numpy.int32) for name, one in (("lowest", lowest), ("minus", -1))}
    nodes = [
        node("ReduceMean", ["x", "axes"], ["mean"], keepdims=0),
        node("Cast", ["mean"], ["whole"], to=onnx.TensorProto.INT32),
        node("Sub", ["whole", "whole"], ["zero"]),  # the runtime does not know that, so it cannot divide in advance
        node("Add", ["zero", "lowest"], ["above"]),
        node("Add", ["zero", "minus"], ["below"]),
        node("Div", ["above", "below"], ["divided"]),
        node("Cast", ["divided"], ["number"], to=onnx.TensorProto.FLOAT),
        node("MatMul", ["number", "w"], ["y"]),
    ]
    shapes = {"x": ["n", 3, 8, 8], "y": ["n", 1000]}
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, one) for name, one in shapes.items())
    weights = [onnx.numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = onnx.helper.make_graph(nodes, "overflowing", [x], [y], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def test_a_picture_that_ends_its_process_is_one_unreadable_row(benchmark: Path, crashes: str, tmp_path: Path) -> None:
    name = crashes + "poisoned_pictures"
    done = run_evaluation(benchmark, [name], tmp_path, EvaluateSettings(device="cpu", batch_size=16))
    assert done.scored == (name,)
    unreadable = cards(tmp_path)[name]["unreadable"]
    assert sorted(unreadable) == ["photo-003/dark/0", "photo-003/original/0"]
    assert "SIGSEGV" in unreadable["photo-003/original/0"]
    assert read_predictions(tmp_path).height == 46


# A source of models that an installed package adds.
PLUG_IN = """
def open_colour(spec, labels=None, **where):
    return Classifier(Colour(), PLAIN, NAMES, str(spec))
"""


def test_a_picture_that_ends_its_reader_costs_the_command_only_its_row(
    benchmark: Path, own_models: str, tmp_path: Path
) -> None:
    code = Path(own_models.removeprefix("python:").removesuffix(":")).read_text() + PLUG_IN
    install(tmp_path, {"unswayed.models": {"colour": "colours:open_colour"}}, colours=code)
    for number, name in enumerate(("red/one", "green/two", "green/deadly")):
        path = tmp_path / "photographs" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((benchmark / f"images/original/photo-00{number}.png").read_bytes())
    pictures, out, model = f"images:{tmp_path / 'photographs'}", tmp_path / "out", "colour:mean"
    done = unswayed(tmp_path, "evaluate", pictures, "-m", model, "--device", "cpu", "-o", out, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["scored"], result["failed"], result["pictures"]) == ([model], {}, 3)
    assert "1 pictures cannot be read" in done.stderr
    ((row, reason),) = cards(out)[model]["unreadable"].items()
    assert "deadly" in row
    assert "died twice (SIGSEGV)" in reason
    assert sorted(read_predictions(out)["file_name"]) == ["one.png", "two.png"]


def test_a_name_is_evaluated_in_a_worker_process_and_a_classifier_in_this_one(bench: Path, tmp_path: Path) -> None:
    settings = EvaluateSettings(device="cpu", batch_size=4)
    assert workers_of(bench, "lite:0", tmp_path / "name", settings) == {"cpu 1"}
    assert workers_of(bench, open_model("lite:0", device="cpu"), tmp_path / "classifier", settings) == {"cpu"}
    assert files(tmp_path / "name") == files(tmp_path / "classifier")


def workers_of(bench: Path, model: str | Classifier, folder: Path, settings: EvaluateSettings) -> set[str]:
    """The names of the workers in the view of an evaluation."""
    workers: set[str] = set()
    show = lambda view: workers.update(one.name for one in view.workers)  # noqa: E731
    run_evaluation(bench, [model], folder, settings, show=show)
    return workers


def test_an_adapting_model_can_be_divided_by_its_edits(bench: Path, tmp_path: Path) -> None:
    model = open_model("lite:0+bn-adapt", device="cpu").name
    both = [tmp_path / "one", tmp_path / "two"]
    for folder, device in zip(both, ("cpu", "cpu,cpu"), strict=True):
        run_evaluation(bench, [model], folder, EvaluateSettings(device=device, batch_size=2))
    assert files(both[0]) == files(both[1])
