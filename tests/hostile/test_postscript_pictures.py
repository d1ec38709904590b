"""A picture file that is PostScript is refused by every reader, and Ghostscript is never started for it."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image
from torchvision import tv_tensors

from unswayed.benchmark import Benchmark, import_benchmark
from unswayed.errors import UserError
from unswayed.rendering.training.photos import load_photos
from unswayed.transforms import EditMixture, RandomEdit


@pytest.fixture
def postscript(tmp_path, monkeypatch) -> Path:
    """A PostScript drawing called `.jpg`, beside a program `gs` in the PATH that leaves a file `started`."""
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    buffer = io.BytesIO()
    Image.new("RGB", (256, 256), "red").save(buffer, "EPS")
    file = tmp_path / "photos" / "a.jpg"
    file.parent.mkdir()
    file.write_bytes(buffer.getvalue())
    yield file
    assert not (tmp_path / "started").exists()


def test_training_photographs(postscript):
    with pytest.raises(UserError, match="a.jpg cannot be read as a photograph .*not a picture"):
        load_photos([postscript.parent], 0, "cpu")


def test_backgrounds_of_random_edits(postscript):
    mask = np.zeros((64, 64), bool)
    mask[20:40, 20:40] = True
    edit = RandomEdit(EditMixture(probability=1.0, weights={"background": 1.0}), backgrounds=[postscript])
    with pytest.raises(UserError, match="not a picture"):
        edit(tv_tensors.Image(torch.full((3, 64, 64), 128, dtype=torch.uint8)), tv_tensors.Mask(torch.from_numpy(mask)))


def test_imported_benchmarks(postscript, tmp_path):
    for folder in ("original", "rain"):
        (tmp_path / "release" / folder).mkdir(parents=True)
        (tmp_path / "release" / folder / "a.jpg").write_bytes(postscript.read_bytes())
    (tmp_path / "labels.txt").write_text("a.jpg 1\n")
    import_benchmark(tmp_path / "release", tmp_path / "bench", labels=tmp_path / "labels.txt")
    rows = Benchmark(tmp_path / "bench").manifest.to_pylist()
    assert [row["status"] for row in rows] == ["failed", "failed"]
    assert all("not a picture" in row["reason"] for row in rows)
