"""Probes and masks in several processes, on a Ray cluster and in shards: the same bytes as in one process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outside_package import install
from ray_cluster import two_nodes
from unswayed.benchmark import BuildSettings, build
from unswayed.evaluation.distribution import DistributionStudy, run_distribution
from unswayed.evaluation.probes import read_probe
from unswayed.evaluation.study import run_study
from unswayed.jobs import EngineSettings
from unswayed.masks import MaskSettings
from unswayed.masks.make_masks import MaskResult, make_masks
from unswayed.sources import open_source

SMALL = {"levels": "60", "saliency": "layercam", "limit": 2}
# A network that ends its process after a few passes, when some pictures have been measured.
CRASH = """
import os, signal, torch
from dataclasses import replace
from unswayed.models import open_model

class Crash(torch.nn.Module):
    passes = 0  # of all copies
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        Crash.passes += 1
        if Crash.passes > 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        return self.inner(x)

def build():
    model = open_model("lite:0", device="cpu")
    return replace(model, module=Crash(model.module))
"""

# The sample, whose second photograph ends the process that reads it.
DEADLY = """
import os
from dataclasses import replace
from unswayed.sources import open_source

sample = open_source("sample")

def load(entry):
    if entry.id == sample.ids[1] and os.getpid() != int(os.environ["MAIN_PROCESS"]):
        os._exit(11)
    return sample.load(entry)

def open_scenes(spec):
    spec.take()
    return replace(sample, spec=spec.text, load=load)
"""


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("alone")
    run_study("sample", ["lite:0"], folder, **SMALL, device="cpu")
    return files(folder)


def test_two_device_processes_measure_the_bytes_of_one(alone: dict[str, bytes], tmp_path: Path) -> None:
    study = run_study("sample", ["lite:0"], tmp_path, **SMALL, device="cpu,cpu")
    assert (study.noise, study.saliency) == (["lite-0"], ["lite-0"])
    assert files(tmp_path) == alone
    assert {"noise/lite-0.parquet", "saliency/lite-0.parquet"} <= set(alone)


def test_the_last_shard_writes_the_results(alone: dict[str, bytes], tmp_path: Path) -> None:
    for number, unfinished in ((2, True), (1, False), (2, False)):
        study = run_study("sample", ["lite:0"], tmp_path, **SMALL, device="cpu", shard=f"{number}/2")
        assert bool(study.unfinished) == unfinished
    assert files(tmp_path) == alone
    # Killed between the rows and the card, which is that of other settings in one probe and missing in the other.
    (tmp_path / "noise/lite-0.json").write_text(json.dumps({"key": "other", "settings": {}, "failures": {}}))
    (tmp_path / "saliency/lite-0.json").unlink()
    for number in (1, 2):
        again = run_study("sample", ["lite:0"], tmp_path, **SMALL, device="cpu", shard=f"{number}/2")
        assert not again.failures
    assert files(tmp_path) == alone


def test_a_model_that_ends_its_process_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "crash.py").write_text(CRASH)
    spec = f"python:{tmp_path}/crash.py:build"
    study = run_study("sample", [spec, "lite:0"], tmp_path / "out", levels="60", limit=2)
    assert study.noise == ["lite-0"]
    assert "SIGSEGV" in study.failures[spec]


def test_a_picture_that_ends_its_process_costs_its_rows_alone_in_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, {"unswayed.sources": {"deadly": "deadly_sample:open_scenes"}}, deadly_sample=DEADLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MAIN_PROCESS", str(os.getpid()))
    study = run_study("deadly", ["lite:0"], tmp_path / "out", levels="60", limit=2, device="cpu")
    first, second = open_source("sample").ids[:2]
    assert list(study.failures) == [f"lite:0, {second}"]
    assert "died twice (exit code 11)" in study.failures[f"lite:0, {second}"]
    assert read_probe(tmp_path / "out", "noise")["source_id"].unique(maintain_order=True).to_list() == [first]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("distribution") / "bench"
    build("sample", root, BuildSettings(recipe="original,size-0.1", renderer="paste", limit=2, size=64))
    return root


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with two_nodes() as made:
        yield made


def distribution(bench: Path, folder: Path, adapt: bool = False, **where: str) -> DistributionStudy:
    return run_distribution(bench, ["lite:0"], folder, fid=False, adapt=adapt, **{"device": "cpu", **where})


def test_distribution_in_two_processes_and_in_shards_measures_the_bytes_of_one(bench: Path, tmp_path: Path) -> None:
    distribution(bench, tmp_path / "one")
    distribution(bench, tmp_path / "two", device="cpu,cpu")
    shards = [distribution(bench, tmp_path / "shards", shard=f"{number}/2").unfinished for number in (2, 1)]
    assert shards == [["lite:0"], []]
    assert files(tmp_path / "one") == files(tmp_path / "two") == files(tmp_path / "shards") != {}


def test_distribution_on_a_ray_cluster_measures_the_bytes_of_one_process(
    bench: Path, tmp_path: Path, cluster: Any
) -> None:
    one = distribution(bench, tmp_path / "one", adapt=True)
    ray = {"engine": "ray", "address": cluster.address, "device": "cpu,cpu"}
    spread = distribution(bench, tmp_path / "ray", adapt=True, **ray)
    assert spread.adapted == one.adapted == [("lite:0", "lite:0+bn-adapt")]
    assert (spread.slugs, spread.failures) == (one.slugs, {})
    assert files(tmp_path / "one") == files(tmp_path / "ray") != {}


def test_sensitivity_on_a_ray_cluster_measures_the_bytes_of_one_process(
    alone: dict[str, bytes], tmp_path: Path, cluster: Any
) -> None:
    where = {"engine": "ray", "address": cluster.address, "device": "cpu,cpu"}
    run_study("sample", ["lite:0"], tmp_path, **SMALL, **where)
    assert files(tmp_path) == alone


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("masks")
    build("sample", root / "bench", BuildSettings(recipe="original", renderer="paste", limit=3, size=64))
    return root / "bench/images/original"


def test_masks_in_two_processes_and_in_shards_are_the_same(photographs: Path, tmp_path: Path) -> None:
    list(make_masks(photographs, tmp_path / "one", segmenter="grabcut"))
    both = make_masks(photographs, tmp_path / "two", segmenter="grabcut", workers=2)
    assert [made.status for made in both] == ["made"] * 3
    shards = [
        len(list(make_masks(photographs, tmp_path / "shards", segmenter="grabcut", shard=f"{number}/2")))
        for number in (1, 2)
    ]
    assert sorted(shards) == [1, 2]
    assert files(tmp_path / "one") == files(tmp_path / "two") == files(tmp_path / "shards")


@pytest.mark.parametrize("model", [None, "lite:0"])
def test_masks_on_a_ray_cluster_are_those_of_this_machine(
    photographs: Path, tmp_path: Path, cluster: Any, model: str | None
) -> None:
    def made(folder: str, engine: EngineSettings) -> list[MaskResult]:
        chosen = {"model": model, "label": None if model is None else "koala"}
        settings = MaskSettings(segmenter="grabcut", workers=2, **chosen, **vars(engine))
        found = make_masks(photographs, tmp_path / folder, settings)
        return sorted((replace(one, mask="") for one in found), key=lambda one: one.picture)

    device = None if model is None else "cpu,cpu"
    ray = EngineSettings(engine="ray", address=cluster.address, device=device)
    one = made("one", EngineSettings(device=device))
    assert [each.status for each in one] == ["made"] * 3
    assert made("ray", ray) == one
    assert files(tmp_path / "one") == files(tmp_path / "ray")
