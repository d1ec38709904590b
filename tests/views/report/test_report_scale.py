"""The report of fifty models over the full ImageNet-E stays small, and its memory does not grow with the models."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from report_world import make_benchmark, make_predictions
from unswayed.labels import imagenet, imagenet_e_classes
from unswayed.views.report.page import write_report

EDITS = ("original", "inversion", "background-simple", "background-complex", "background-adversarial",
         "background-random", "size-full", "size-0.1", "size-0.08", "size-0.05", "position", "direction-small",
         "reinsertion")  # fmt: skip
LIMIT = 15 * 2**20


@pytest.mark.slow
def test_fifty_models_twelve_edits_4352_images_fit_into_fifteen_megabytes(tmp_path: Path) -> None:
    names = [imagenet().classes[label] for label in imagenet_e_classes()]
    bench = make_benchmark(tmp_path / "bench", 4352, names, EDITS, side=256, pictures=60)
    models = [f"timm:some_architecture_with_a_long_name_{number:02}.in1k" for number in range(50)]
    make_predictions(tmp_path / "predictions", bench, models, names)
    written = write_report(tmp_path / "predictions", tmp_path / "report.html", flips=36, heat_maps=0)
    assert written.size < LIMIT
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 * 2**20  # KiB
