"""A thousand pictures of which nine are bad: the run finishes, the nine say why, nothing else is affected."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import run_cli
from unswayed.benchmark import Benchmark


@pytest.fixture
def bad_folder(drawn_folder):
    folder = drawn_folder("photos", 1000, size=(24, 20), classes=4)
    truncated = ["0010", "0211", "0412", "0613", "0814"]
    for stem in truncated:
        path = picture(folder, stem)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for stem in ("0100", "0301"):
        mask(folder, stem).unlink()
    picture(folder, "0502").write_text("this is not a picture")
    Image.fromarray(np.zeros((20, 24), np.uint8)).save(mask(folder, "0703"))
    return folder


def picture(folder: Path, stem: str) -> Path:
    return next((folder / "images").rglob(f"{stem}.jpg"))


def mask(folder: Path, stem: str) -> Path:
    return next((folder / "masks").rglob(f"{stem}.png"))


def test_the_build_finishes_and_says_what_is_wrong(bad_folder, tmp_path):
    out = tmp_path / "bench"
    command = ["build", f"folder:{bad_folder}", "-o", str(out), "--renderer", "paste", "--pixels", "32"]
    command += ["--recipe", "original,size-0.1", "--workers", "2", "--json"]
    done = run_cli(*command)
    assert done.exit_code == 4, done.stderr
    answer = json.loads(done.stdout)
    reasons = {source.partition("--")[2]: reason for source, reason in answer["failures"].items()}
    assert sorted(reasons) == ["0010", "0100", "0211", "0301", "0412", "0502", "0613", "0703", "0814"]
    assert all("cut off" in reasons[stem] for stem in ("0010", "0211", "0412", "0613", "0814"))
    assert all("there is no mask for it" in reasons[stem] for stem in ("0100", "0301"))
    assert "not a picture but text" in reasons["0502"]
    assert "the mask is empty" in reasons["0703"]
    rows = Benchmark(out).manifest.to_pylist()
    assert len({row["source_id"] for row in rows}) == 1000
    good = [row for row in rows if row["source_id"] not in answer["failures"]]
    assert {row["status"] for row in good} == {"ok"}
    assert len(good) == 991 * 4
    verified = run_cli("verify", out, "--json")
    assert verified.exit_code == 1
    problems = json.loads(verified.stdout)["problems"]
    assert len(problems) == 9 * 4
    assert {problem["where"].split("/")[0].partition("--")[2] for problem in problems} == set(reasons)


def test_a_mask_of_another_size_and_two_masks_are_said(drawn_folder, tmp_path):
    folder = drawn_folder("photos", 3)
    Image.fromarray(np.full((20, 20), 255, np.uint8)).save(mask(folder, "0000"))
    second = mask(folder, "0001")
    second.with_suffix(".bmp").write_bytes(b"")
    Image.open(second).save(second.with_suffix(".bmp"))
    out = tmp_path / "bench"
    command = ["build", f"folder:{folder}", "-o", str(out), "--renderer", "paste", "--recipe", "original"]
    done = run_cli(*command)
    assert done.exit_code == 4
    assert "the mask is 20×20, its picture 48×40" in done.stderr
    assert "0001" in done.stderr
    failed = {
        row["source_id"]: row["reason"] for row in Benchmark(out).manifest.to_pylist() if row["status"] == "failed"
    }
    assert sorted(failed) == ["class0--0000", "class1--0001"]
    assert "more than one" in failed["class1--0001"]
