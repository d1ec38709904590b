"""A run that is stopped, however rudely, and started again ends in the same bytes and redoes nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from command_line import PROGRAM
from unswayed.benchmark import BuildSettings, build, verify
from unswayed.benchmark.plan import standing
from unswayed.errors import UserError


def start_build(out: Path, *more: str) -> subprocess.Popen:
    command = [
        *PROGRAM,
        "build",
        "sample",
        "--recipe",
        "imagenet-e",
        "--renderer",
        "paste",
        "-o",
        str(out),
        "--seed",
        "7",
    ]
    return subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for_rows(out: Path, count: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while len(list(out.glob("rows/*.json"))) < count:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killed_half_way_it_ends_in_the_same_bytes(sample_benchmark, tmp_path, tree):
    out = tmp_path / "bench"
    process = start_build(out, "--workers", "2", "--batch-size", "16")
    wait_for_rows(out, 5, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    rows = {path: path.stat().st_mtime_ns for path in out.glob("rows/*.json")}
    assert not (out / "manifest.parquet").exists()
    assert len(rows) < 20
    assert not standing(out).finished
    again = start_build(out)
    assert again.wait() == 0, again.stderr.read()
    assert tree(out) == tree(sample_benchmark)
    assert verify(out).passed
    assert {path: path.stat().st_mtime_ns for path in rows} == rows


def test_interrupted_it_says_so_and_goes_on(tmp_path, sample_benchmark, tree):
    out = tmp_path / "bench"
    while True:
        process = start_build(out)
        wait_for_rows(out, 2, process)
        process.send_signal(signal.SIGINT)
        if process.wait(timeout=60) != 0:
            break
        # On busy cores this process may see the first rows when the last ones are written.
        assert len(list(out.glob("rows/*.json"))) == 20
        shutil.rmtree(out)
    assert process.returncode == 130
    said = process.stderr.read()
    assert "stopped; run the same command again to resume" in said
    assert "Traceback" not in said
    build("sample", out, BuildSettings(renderer="paste", seed=7))
    assert tree(out) == tree(sample_benchmark)


def test_unfinished_sources_are_made_again_and_finished_ones_left(sample_benchmark, tmp_path, tree):
    out = tmp_path / "bench"
    shutil.copytree(sample_benchmark, out)
    (out / "rows/panda.json").unlink()
    (out / "images/size-0.05/panda.png").write_bytes(b"half a pict")
    (out / "images/size-0.05/.panda.png.abc.part").write_bytes(b"left by a killed run")
    kept = (out / "images/size-0.05/pig.png").stat().st_mtime_ns
    built = build("sample", out, BuildSettings(renderer="paste", seed=7))
    assert built.made == 1
    assert tree(out) == tree(sample_benchmark)
    assert (out / "images/size-0.05/pig.png").stat().st_mtime_ns == kept


def test_two_runs_in_one_folder_at_once_are_refused(tmp_path, sample_benchmark, tree):
    out = tmp_path / "bench"
    process = start_build(out)
    wait_for_rows(out, 1, process)
    assert standing(out).running
    with pytest.raises(UserError, match="another run is building"):
        build("sample", out, BuildSettings(renderer="paste", seed=7))
    assert process.wait() == 0
    assert tree(out) == tree(sample_benchmark)
    now = standing(out)
    assert (now.finished, now.running, now.done, now.total) == (True, False, 20, 20)


def test_a_path_that_cannot_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("precious")
    for out in (tmp_path / "file", tmp_path / "file" / "bench"):
        with pytest.raises(UserError, match="cannot write .*not a folder"):
            build("sample", out, BuildSettings(recipe="original", renderer="paste", limit=1))
    assert (tmp_path / "file").read_text() == "precious"


SMALL = BuildSettings(recipe="original,size-0.1", renderer="paste", size=64, limit=4, workers=1)


def test_a_clock_that_jumps_changes_nothing(tmp_path, tree, monkeypatch):
    build("sample", tmp_path / "whole", SMALL)
    out, now, jumps = tmp_path / "b", time.time, iter((-86400.0, 3 * 86400.0, -7 * 86400.0, 0.0))

    def jump(progress):
        if progress.summary is not None:
            hours = next(jumps)
            monkeypatch.setattr(time, "time", lambda: now() + hours)
            row = out / f"rows/{progress.summary.source_id}.json"
            os.utime(row, (now() + hours, now() + hours))
            if progress.done == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build("sample", out, SMALL, progress=jump)
    standing(out)
    assert build("sample", out, SMALL, progress=jump).made == 2
    assert tree(out) == tree(tmp_path / "whole")
    assert standing(out).finished
