"""Folders, manifests, models and names that are made to break a run: refused with a reason, and nothing else breaks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from command_line import refusal, run_cli, run_cli_process
from report_world import make_benchmark, make_predictions
from unswayed.benchmark import BuildSettings, build
from unswayed.edits.recipes import open_recipe
from unswayed.errors import BadPicture, UserError
from unswayed.files.text_tables import csv_text
from unswayed.sources.labeled import pictures_below
from unswayed.sources.pictures import read_picture

MODELS = """
import ctypes, os, sys
import torch
from dataclasses import replace
from unswayed.models import open_model

class Does(torch.nn.Module):
    def __init__(self, what):
        super().__init__()
        self.what = what
    def forward(self, x):
        print("a print of the model")
        return self.what(torch.zeros(len(x), 1000))

def model(what):
    return replace(open_model("lite:0", device="cpu"), module=Does(what))

def exits(): sys.exit(3)
def ends(): return model(lambda x: os._exit(0))
def faults(): return model(lambda x: ctypes.string_at(0))
def complex_numbers(): return model(lambda x: x.to(torch.complex64))
def booleans(): return model(lambda x: x > 0)
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile") / "bench"
    build("sample", root, BuildSettings(recipe="original", renderer="paste", limit=1, size=64))
    return root


def test_a_model_that_ends_the_process_fails_alone_and_prints_nothing_into_the_json(
    bench: Path, tmp_path: Path
) -> None:
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    bad = ["exits", "ends", "faults", "complex_numbers", "booleans"]
    specs = [f"{name}=python:{path}:{name}" for name in bad]
    given = [word for spec in [*specs, "lite:0"] for word in ("-m", spec)]
    done = run_cli("evaluate", bench, *given, "-o", tmp_path / "out", "--json", "--device", "cpu")
    result = json.loads(done.stdout)
    assert result["scored"] == ["lite:0"]
    assert list(result["failed"]) == bad
    assert "SystemExit: 3" in result["failed"]["exits"]
    assert "exit code 0" in result["failed"]["ends"]
    assert "SIGSEGV" in result["failed"]["faults"]
    assert "complex64" in result["failed"]["complex_numbers"]
    assert "bool" in result["failed"]["booleans"]
    assert len(list((tmp_path / "out").glob("*.failed.json"))) == len(bad)


def test_links_that_lead_back_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "cats" / "a.png")
    for name in ("one", "two", "cats/up"):
        (tmp_path / name).symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "again").symlink_to(tmp_path / "cats", target_is_directory=True)
    assert pictures_below(tmp_path) == ["again/a.png", "cats/a.png"]


def test_links_that_branch_at_every_level_end_with_an_error(tmp_path: Path) -> None:
    for level in range(40):
        (tmp_path / f"d{level}").mkdir()
        for name in "ab":
            (tmp_path / f"d{level}" / name).symlink_to(tmp_path / f"d{level + 1}", target_is_directory=True)
    (tmp_path / "d40").mkdir()
    with pytest.raises(UserError, match="links lead to the folder .* on more than 1000 paths"):
        pictures_below(tmp_path / "d0")


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, ordinary_user) -> None:
    (tmp_path / "photos" / "private").mkdir(parents=True)
    done = ordinary_user(f"build images:{tmp_path}/photos -o {tmp_path}/b", closed=tmp_path / "photos" / "private")
    assert done.returncode == 2
    assert "private cannot be listed: Permission denied" in done.stderr


@pytest.mark.parametrize("command", ["build images:{} -o {}", "verify {}", "status {}", "analyze {}"])
def test_a_folder_that_may_not_be_entered_is_named(tmp_path: Path, ordinary_user, command: str) -> None:
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    done = ordinary_user(command.format(inner, tmp_path / "b"), closed=inner.parent)
    assert refusal(done, given=f"{inner}", allowed=" ").splitlines()[0].endswith("no permission")


@pytest.mark.parametrize("command", ["verify {}", "status {}", "models onnx:{}", "build folder:{} -o b"])
def test_a_name_that_is_too_long_is_a_users_error(tmp_path: Path, command: str) -> None:
    arguments = command.format("n" * 300).split()
    refusal(run_cli_process(*arguments, cwd=tmp_path))


def test_pipes_and_devices_are_no_pictures(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "endless.png").symlink_to("/dev/zero")
    for name in ("pipe.png", "endless.png"):
        with pytest.raises(BadPicture, match="no file, but a pipe or a device"):
            read_picture(tmp_path / name)
    for name in ("a" * 5000, "nul\0.png"):
        with pytest.raises(BadPicture, match="cannot be read"):
            read_picture(name)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    bench = make_benchmark(tmp_path / "bench", 8, ["a", "b"], side=16)
    make_predictions(tmp_path / "predictions", bench, ["m"], ["a", "b"])
    return tmp_path


@pytest.mark.parametrize("command", ["analyze", "report"])
def test_a_benchmark_that_does_not_exist_or_is_damaged_is_refused(world: Path, command: str) -> None:
    arguments = [command, world / "predictions", *(("-o", world / "r.html") if command == "report" else ())]
    missing = run_cli(*arguments, "--benchmark", "/nonexistent")
    refusal(missing, "/nonexistent is not a")
    manifest = world / "bench" / "manifest.parquet"
    data = bytearray(manifest.read_bytes())
    for damaged in (data[: len(data) // 2], bytes(data[:200]) + os.urandom(300) + bytes(data[500:])):
        manifest.write_bytes(damaged)
        done = run_cli(*arguments)
        refusal(done, "manifest.parquet")


def test_files_of_different_versions_with_text_as_text_or_as_categories_are_read_together(world: Path) -> None:
    rows = pl.read_parquet(world / "predictions" / "model00.parquet")
    changed = rows.with_columns(model=pl.lit("n").cast(pl.Categorical), edit=pl.col("edit").cast(pl.Categorical))
    changed.write_parquet(world / "predictions" / "model01.parquet")
    card = json.loads((world / "predictions" / "model00.json").read_text())
    (world / "predictions" / "model01.json").write_text(json.dumps({**card, "model": "n"}))
    from unswayed.evaluation import read_predictions

    assert set(read_predictions(world / "predictions")["model"]) == {"m", "n"}
    assert run_cli("analyze", world / "predictions").exit_code == 0


def test_pictures_outside_the_benchmark_are_never_read_also_without_a_hash(bench: Path, tmp_path: Path) -> None:
    table = pl.read_parquet(bench / "manifest.parquet")
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "secret.png")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "benchmark.json").write_bytes((bench / "benchmark.json").read_bytes())
    table.with_columns(path=pl.lit("../secret.png"), sha256=pl.lit(None, pl.String)).write_parquet(
        copy / "manifest.parquet"
    )
    done = run_cli("evaluate", copy, "-m", "lite:0", "-o", tmp_path / "out")
    refusal(done, "outside the benchmark")


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "a/b", "a" * 300])
def test_an_item_of_a_recipe_has_a_name_that_is_a_folder_of_its_own(tmp_path: Path, name: str) -> None:
    (tmp_path / "r.toml").write_text(f'[[item]]\nname = "{name}"\nchain = [{{edit = "size", rate = 0.1}}]\n')
    with pytest.raises(UserError, match="has an item named"):
        open_recipe(str(tmp_path / "r.toml"))


def test_a_grid_is_bounded_before_it_is_made() -> None:
    with pytest.raises(UserError, match=r"1,000,000 edits"):
        open_recipe("size=0.02:0.5:1000 x direction=-90:90:1000")


def test_no_cell_of_a_csv_is_a_formula() -> None:
    table = pl.DataFrame(
        {"model": ["=cmd|' /C calc'!A0", "@x", "+x", "-x", "a=b"], "level": ["-20", "+0.5", "", "-", "−1"]}
    )
    lines = csv_text(table).splitlines()[1:]
    assert [line.split(",")[0].strip('"')[:2] for line in lines] == ["'=", "'@", "'+", "'-", "a="]
    assert [line.rpartition(",")[2] for line in lines] == ["-20", "+0.5", '""', "-", "−1"]


def test_classes_whose_names_are_commands_of_a_terminal_or_a_workflow_are_printed_as_text(tmp_path):
    """Before, `build` printed the names of the classes as they are."""
    for name in ("a\n::error::b", "c\x1b[31md"):
        for place, color in (("images", 90), ("masks", 255)):
            path = tmp_path / "photographs" / place / name / f"{len(name)}.png"
            path.parent.mkdir(parents=True)
            picture = Image.new("L", (64, 48), 0 if place == "masks" else 160)
            picture.paste(color, (20, 12, 40, 36))
            picture.save(path)
    source = f"folder:{tmp_path / 'photographs'}"
    done = run_cli("build", source, "-o", tmp_path / "b", "--recipe", "size=0.1", "--renderer", "paste", code=0)
    assert "2 classes: a ::error::b 1, c [31md 1" in done.stdout.splitlines()
    assert "\x1b" not in done.output
