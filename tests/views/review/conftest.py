"""A small benchmark of real photographs, pasted, that each test may write its reviews into."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from unswayed.benchmark import BuildSettings, build


@pytest.fixture(scope="session")
def built_benchmark(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("review") / "bench"
    recipe = "original,size-0.1,size-0.05,position,direction"
    build("sample", root, BuildSettings(renderer="paste", limit=8, recipe=recipe, size=96))
    return root


@pytest.fixture
def bench(built_benchmark, tmp_path) -> Path:
    return Path(shutil.copytree(built_benchmark, tmp_path / "bench"))
