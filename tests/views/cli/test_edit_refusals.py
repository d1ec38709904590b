"""`unswayed edit` and `build` refuse what cannot be before any work is done, and pass facts about a network on."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from command_line import refusal, run_cli

SAMPLE = Path(str(resources.files("unswayed.data").joinpath("sample")))
DOG = (str(SAMPLE / "dog.jpg"), "--mask", str(SAMPLE / "dog.png"))
MINI = Path(__file__).parents[2] / "data" / "adm_mini_weights.safetensors"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "x.jpg"), "ends in .png"),
        (("-o", "/proc/x/out.png"), "cannot write /proc/x/out.png"),
        (("-o", "folder.png"), "is a folder"),
        (("--box", "1,2,30,40"), "both the mask"),
        (("--renderer", "paste", "--steps", "5000", "--sampler", "ddim"), "no use for steps, sampler"),
        (("--network-fact", "image_size"), "NAME=VALUE"),
        (("--device", "meta"), "device is 'meta'"),
    ],
)
def test_an_edit_is_refused_before_it_is_made(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()

    def never(*given, **options):
        raise AssertionError("a picture was made")

    monkeypatch.setattr("unswayed.rendering.diffusion.Diffusion.render", never)
    monkeypatch.setattr("unswayed.rendering.layers.Paste.render", never)
    done = run_cli("edit", *DOG, "--size", "0.1", *arguments)
    refusal(done, words)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]


@pytest.mark.parametrize("command", ["edit", "build"])
def test_facts_of_a_network_are_passed_on(tmp_path, command):
    (tmp_path / "net.pt").write_bytes(MINI.read_bytes())
    network = ("--network", tmp_path / "net.pt", "--steps", 2, "--pixels", 32, "--device", "cpu")
    facts = ("--network-fact", "num_head_channels=32", "--network-fact", "beta_schedule=cosine")
    what = {
        "edit": ("edit", *DOG, "--background", "inversion", "-o", tmp_path / "out.png"),
        "build": ("build", "sample", "--recipe", "original", "--limit", 1, "-o", tmp_path / "bench"),
    }[command]
    done = run_cli(*what, *network, *facts)
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / {"edit": "out.json", "build": "bench/benchmark.json"}[command]).read_text())
    described = written["rendered_by" if command == "edit" else "renderer"]["network"]
    assert (described["facts"]["num_head_channels"], described["beta_schedule"], described["size"]) == (
        32,
        "cosine",
        32,
    )
