"""Building with the embedded diffusion network: every edit is made; neighbours, workers and stops change nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import torch

from unswayed.benchmark import Benchmark, BuildSettings, build, verify
from unswayed.errors import UserError
from unswayed.rendering import RenderSettings, open_renderer
from unswayed.rendering.layers import Paste

OPTIONS = {"steps": 4, "device": "cpu", "limit": 2, "seed": 7}
RECIPE = "original,inversion,background-adversarial,size-0.1"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    root = tmp_path_factory.mktemp("network") / "bench"
    build("sample", root, BuildSettings(recipe=RECIPE, runs=2, **OPTIONS))
    return root


def test_every_edit_is_made_and_says_how(rendered):
    assert verify(rendered).passed
    benchmark = Benchmark(rendered)
    rows = benchmark.manifest.to_pylist()
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["edit"]: row["guide"] for row in rows} == {
        **dict.fromkeys(("source", "original", "inversion", "reinsertion", "size-0.1")),
        "background-adversarial": "lite:1,lite:2",
    }
    assert benchmark.card["renderer"]["network"]["weights_sha256"]
    assert benchmark.card["guide"] == "lite:1,lite:2"


def test_noise_is_drawn_anew_in_every_run_and_the_original_is_one(rendered):
    rows = Benchmark(rendered).manifest.to_pylist()
    hashes: dict[str, list[str]] = {}
    for row in rows:
        if row["source_id"] == "cat":
            hashes.setdefault(row["edit"], []).append(row["sha256"])
    assert {edit: len(set(found)) for edit, found in hashes.items()} == {
        "source": 1,
        "original": 1,
        "inversion": 2,
        "background-adversarial": 2,
        "size-0.1": 2,
        "reinsertion": 2,
    }


def test_batches_workers_and_a_stop_change_nothing(rendered, tmp_path, tree):
    out = tmp_path / "bench"
    build("sample", out, BuildSettings(recipe=RECIPE, runs=2, batch_size=8, workers=2, **OPTIONS))
    assert tree(out) == tree(rendered)
    (out / "rows/cat.json").unlink()
    shutil.rmtree(out / "images/inversion")
    (out / "rows/bison.json").unlink()
    build("sample", out, BuildSettings(recipe=RECIPE, runs=2, **OPTIONS))
    assert tree(out) == tree(rendered)


def test_an_open_renderer_builds_what_its_name_would(rendered, tmp_path, tree):
    renderer = open_renderer(RenderSettings(steps=4, device="cpu", guide="lite:1,lite:2"))
    build("sample", tmp_path / "bench", BuildSettings(recipe=RECIPE, runs=2, limit=2, seed=7), opened=renderer)
    assert tree(tmp_path / "bench") == tree(rendered)
    with pytest.raises(UserError, match=r"steps, batch_size cannot be set for a renderer that is already open"):
        build("sample", tmp_path / "other", BuildSettings(recipe=RECIPE, steps=20, batch_size=2), opened=renderer)
    with pytest.raises(UserError, match="has no network"):
        build("sample", tmp_path / "other", BuildSettings(recipe=RECIPE), opened=Paste())
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_adversarial_pictures_are_the_same_bytes_for_any_number_of_threads_and_beside_busy_cores(tmp_path, tree):
    settings = BuildSettings(recipe="background-adversarial", **{**OPTIONS, "limit": 1})
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            build("sample", tmp_path / str(threads), settings)
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
        try:
            build("sample", tmp_path / "busy", settings)
        finally:
            for other in others:
                other.kill()
                other.wait()
    finally:
        torch.set_num_threads(before)
    found = [tree(tmp_path / name) for name in ("1", "2", "4", "busy")]
    assert found[1:] == found[:1] * 3
    assert any("adversarial" in name for name in found[0])
