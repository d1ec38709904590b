"""A small benchmark on disk, and the start of the names of models in a Python file."""

from __future__ import annotations

from pathlib import Path

import pytest

from color_world import MODELS, write_benchmark


@pytest.fixture(scope="session")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_benchmark(tmp_path_factory.mktemp("benchmark"))


@pytest.fixture(scope="session")
def own_models(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The start of a name: add one of the functions of MODELS."""
    path = tmp_path_factory.mktemp("models") / "mine.py"
    path.write_text(MODELS)
    return f"python:{path}:"
