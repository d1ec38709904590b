"""The report of fifty models over the full ImageNet-E stays small, and its memory does not grow with the models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from report_world import make_benchmark, make_predictions
from unswayed.labels import imagenet, imagenet_e_classes

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
    program = (
        "import sys; from pathlib import Path; from unswayed.views.report.page import write_report; "
        "written = write_report(sys.argv[1], sys.argv[2], flips=36, heat_maps=0); "
        "print(written.size, Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    paths = [str(tmp_path / "predictions"), str(tmp_path / "report.html")]
    # In a process of its own, since the largest memory of this one is that of any test before.
    printed = subprocess.run([sys.executable, "-c", program, *paths], capture_output=True, text=True, check=True).stdout
    size, memory = map(int, printed.split())
    assert size == (tmp_path / "report.html").stat().st_size < LIMIT
    assert memory < 4 * 2**20  # KiB
