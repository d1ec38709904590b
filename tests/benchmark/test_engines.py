"""Devices, shards and crashes change nothing about a benchmark but the rows of what crashed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from deadly_source import load_or_die
from unswayed.benchmark import BuildSettings, build, verify
from unswayed.benchmark.plan import standing
from unswayed.benchmark.rows import LOCK
from unswayed.errors import UserError
from unswayed.files.locks import alone
from unswayed.sources import open_source

NETWORK = {"recipe": "original,size-0.1", "steps": 2, "limit": 2, "seed": 7}
PASTE = {"recipe": "original,size-0.1,background-random", "renderer": "paste", "size": 64, "seed": 3}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_two_device_processes_make_the_bytes_of_one(tmp_path, tree, device):
    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, which two processes share")
    one, two = tmp_path / "one", tmp_path / "two"
    build("sample", one, BuildSettings(device=device, **NETWORK))
    seen = []
    built = build("sample", two, BuildSettings(device=f"{device},{device}", **NETWORK), progress=seen.append)
    assert tree(two) == tree(one)
    assert (built.made, built.failures) == (2, {})
    assert seen[-1].passes == (4, 4)  # one pass for size-0.1 and one for its control


@pytest.mark.parametrize(
    ("more", "worker"),
    [({"renderer": "paste", "size": 64}, "worker 1"), ({"steps": 2, "device": "cpu", "size": 256}, "cpu")],
)
def test_a_picture_that_crashes_its_reader_costs_its_rows_alone_with_one_worker(drawn_folder, tmp_path, more, worker):
    source = replace(open_source(f"folder:{drawn_folder('photos', 3)}"), load=load_or_die)
    views = []
    built = build(source, tmp_path / "b", BuildSettings(recipe="original", workers=1, **more), show=views.append)
    assert (views[-1].failed, [one.name for one in views[-1].workers]) == (2, [worker])
    assert "2 failed" in views[-1].remarks
    assert built.failures == {"class0--0002": "the process that worked on it died twice (exit code 11)"}
    assert built.counts == {"ok": 4, "skipped": 0, "failed": 2}


@pytest.fixture
def photographs(drawn_folder):
    return f"folder:{drawn_folder('photos', 8)}"


def test_shards_at_the_same_time_make_the_bytes_of_one_run(photographs, tmp_path, tree):
    build(photographs, tmp_path / "whole", BuildSettings(**PASTE))
    out = tmp_path / "shards"
    with ThreadPoolExecutor(2) as pool:
        shards = [BuildSettings(shard=f"{number}/2", **PASTE) for number in (1, 2)]
        built = list(pool.map(lambda one: build(photographs, out, one), shards))
    assert tree(out) == tree(tmp_path / "whole")
    assert [one.made for one in built] == [4, 4]
    assert 0 in {one.unfinished for one in built}
    assert verify(out).passed


def test_a_plain_run_merges_what_shards_left(photographs, tmp_path, tree):
    build(photographs, tmp_path / "whole", BuildSettings(**PASTE))
    out = tmp_path / "shards"
    first = build(photographs, out, BuildSettings(shard="2/3", **PASTE))
    assert (first.sources, first.made, first.unfinished) == (3, 3, 5)
    assert not (out / "manifest.parquet").exists()
    (out / "images/original/.other.png.abc.part").write_bytes(b"of a shard that is running")
    build(photographs, out, BuildSettings(shard="3/3", **PASTE))
    assert (out / "images/original/.other.png.abc.part").exists()
    assert build(photographs, out, BuildSettings(**PASTE)).made == 3
    assert tree(out) == tree(tmp_path / "whole")


def test_a_shard_and_the_whole_build_refuse_each_other(photographs, tmp_path):
    out = tmp_path / "b"
    build(photographs, out, BuildSettings(shard="1/2", **PASTE))
    for held, refused in ((LOCK, "2/2"), (f"{LOCK}.1-of-2", None), (f"{LOCK}.1-of-2", "1/2")):
        with alone(out / held, UserError("")), pytest.raises(UserError, match="another run is building"):
            build(photographs, out, BuildSettings(shard=refused, **PASTE))
    with alone(out / f"{LOCK}.1-of-2", UserError("")):
        assert standing(out).running
        assert build(photographs, out, BuildSettings(shard="2/2", **PASTE)).unfinished == 0
