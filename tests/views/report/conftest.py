"""One world of predictions and its report, for the tests of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from report_world import CLASSES, MODELS, make_benchmark, make_predictions
from unswayed.views.report.page import write_report


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    bench = make_benchmark(root / "bench", 40, CLASSES)
    make_predictions(root / "predictions", bench, MODELS, CLASSES, white_box="plain")
    return root


@pytest.fixture(scope="module")
def page(world: Path) -> str:
    write_report(world / "predictions", world / "report.html", assets=world / "assets", flips=8, heat_maps=0)
    return (world / "report.html").read_text()
