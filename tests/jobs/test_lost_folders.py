"""A full disk, a read-only folder and one that is moved away end every long command with an error, and it resumes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from unswayed.benchmark import BuildSettings, build
from unswayed.errors import CannotWrite
from unswayed.evaluation import EvaluateSettings, run_evaluation
from unswayed.evaluation.settings import SensitivitySettings
from unswayed.evaluation.study import run_study
from unswayed.jobs.monitor import View

SMALL = BuildSettings(recipe="original,size-0.1", renderer="paste", size=64, limit=3, workers=1)
Show = Callable[[View], None]


@dataclass(frozen=True)
class Command:
    """A long command; room: bytes of free disk that suffice for its beginning; whole: files of an undisturbed run."""

    run: Callable[[Path, Show | None], Any]
    room: int
    whole: dict[str, bytes]


@pytest.fixture(scope="module", params=["build", "evaluate", "sensitivity"])
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Command:
    folder = tmp_path_factory.mktemp(request.param)

    def run_build(out: Path, show: Show | None) -> None:
        build("sample", out, SMALL, show=show)

    def run_evaluate(out: Path, show: Show | None) -> None:
        settings = EvaluateSettings(device="cpu", batch_size=1)
        done = run_evaluation(folder / "bench", ["lite:0", "lite:1"], out, settings, save_every=0, show=show)
        assert done.failed == {}

    def run_sensitivity(out: Path, show: Show | None) -> None:
        settings = SensitivitySettings(levels="60", ablation=False, limit=1, device="cpu")
        study = run_study("sample", ["lite:0", "lite:1"], out, settings, show=show)
        assert study.failures == {}

    if request.param == "evaluate":
        build("sample", folder / "bench", SMALL)
    run, room = {
        "build": (run_build, 60_000),
        "evaluate": (run_evaluate, 30_000),
        "sensitivity": (run_sensitivity, 10_000),
    }[request.param]
    run(folder / "whole", None)
    return Command(run, room, files(folder / "whole"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount the small file system that this fills")
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], capture_output=True).returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_and_a_read_only_one_end_the_run_with_words_and_lose_nothing(command: Command, disk: Path) -> None:
    out, ballast = disk / "out", disk / "ballast"
    free = os.statvfs(disk)
    ballast.write_bytes(bytes(free.f_bavail * free.f_frsize - command.room))
    with pytest.raises(CannotWrite, match="cannot write .*the disk is full"):
        command.run(out, None)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(CannotWrite, match="cannot write .*the file system is read-only"):
        command.run(out, None)
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    ballast.unlink()
    command.run(out, None)
    assert files(out) == command.whole


def test_a_folder_that_is_moved_away_ends_the_run_and_resumes_in_its_new_place(
    command: Command, tmp_path: Path
) -> None:
    out, moved = tmp_path / "out", tmp_path / "moved"

    def move(now: View) -> None:
        if now.done and not moved.exists():
            out.rename(moved)

    with pytest.raises(CannotWrite, match="the folder .* was moved or deleted during the run of"):
        command.run(out, move)
    assert not set(files(out)) & set(command.whole)
    shutil.rmtree(out, ignore_errors=True)
    command.run(moved, None)
    assert files(moved) == command.whole
