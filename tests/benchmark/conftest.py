"""Benchmarks of real pictures for the tests: the sample built once, and small drawn folders."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from unswayed.benchmark import BuildSettings, build
from unswayed.evaluation import EvaluateSettings, run_evaluation


@pytest.fixture(scope="session")
def sample_benchmark(tmp_path_factory):
    """The sample under `imagenet-e`, pasted, one worker, one picture at a time; not to be written to."""
    root = tmp_path_factory.mktemp("sample") / "bench"
    build("sample", root, BuildSettings(renderer="paste", seed=7, batch_size=1, workers=1))
    return root


@pytest.fixture
def drawn_folder(tmp_path):
    """A function that fills a folder with small photographs and masks of an ellipse: `drawn_folder("photos", 6)`."""

    def fill(name: str, count: int, size: tuple[int, int] = (48, 40), classes: int = 2) -> Path:
        folder = tmp_path / name
        wide, high = size
        for number in range(count):
            stem = f"class{number % classes}/{number:04}"
            rng = np.random.default_rng(number)
            picture = Image.fromarray(rng.integers(60, 200, (high, wide, 3), np.uint8))
            mask = Image.new("L", size)
            box = (wide // 4 + number % 5, high // 4, wide * 3 // 4, high * 3 // 4)
            ImageDraw.Draw(picture).ellipse(box, fill=(250, 20, number % 256))
            ImageDraw.Draw(mask).ellipse(box, fill=255)
            (folder / "images" / stem).parent.mkdir(parents=True, exist_ok=True)
            (folder / "masks" / stem).parent.mkdir(parents=True, exist_ok=True)
            picture.save(folder / "images" / f"{stem}.jpg")
            mask.save(folder / "masks" / f"{stem}.png")
        return folder

    return fill


@pytest.fixture
def tree():
    """A function that gives every file below a folder with its hash: two equal trees hold the same bytes."""

    def read(root: Path) -> dict[str, str]:
        return {
            path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }

    return read


@pytest.fixture(scope="session")
def bench(tmp_path_factory) -> Path:
    """Six photographs of the sample, one of which flips; two of the edits in two runs."""
    root = tmp_path_factory.mktemp("exchange") / "animals"
    recipe = "original,size-0.05,position,background-random"
    build("sample", root, BuildSettings(renderer="paste", seed=7, limit=6, size=160, runs=2, recipe=recipe, workers=1))
    return root


@pytest.fixture(scope="session")
def predictions(bench, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exchange") / "predictions"
    run_evaluation(bench, ["lite:0"], folder, EvaluateSettings(device="cpu"))
    return folder
