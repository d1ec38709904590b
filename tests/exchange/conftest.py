"""A small real benchmark and real predictions on it, shared by the tests of exports and trackers."""

from __future__ import annotations

from pathlib import Path

import pytest

from unfazed.benchmark import BuildSettings, build
from unfazed.predictions import EvaluateSettings, run_evaluation


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
