"""A labelled folder named like ImageNet's validation pictures, evaluated and then broken down by factor."""

from __future__ import annotations

import json
import shutil
from importlib import resources

import pytest

from command_line import run_cli
from unswayed.errors import UserError
from unswayed.sources.imagenet_x import FACTORS, load_annotations
from unswayed.sources.sample import credits


@pytest.fixture
def annotations():
    try:
        return load_annotations("multi")
    except UserError as error:
        pytest.skip(f"the ImageNet-X annotations are not installed: {error}")


def test_evaluate_then_factors(tmp_path, annotations):
    names = [f"{key}.JPEG" for key in annotations.keys[:8]]
    lines = []
    with resources.as_file(resources.files("unswayed.data").joinpath("sample")) as sample:
        for name, credit in zip(names, credits(), strict=False):
            shutil.copy(sample / f"{credit.id}.jpg", tmp_path / name)
            lines.append(f"{name}\t{credit.label}")
    (tmp_path / "labels.txt").write_text("\n".join(lines) + "\n")
    predictions = str(tmp_path / "predictions")
    run_cli("evaluate", f"images:{tmp_path}", "-m", "lite:0", "-o", predictions, code=0)
    records = json.loads(run_cli("factors", predictions, "--which", "multi", "--format", "json", code=0).stdout)
    by_factor = {record["factor"]: record for record in records if record["model"] == "lite:0"}
    assert set(FACTORS) <= set(by_factor)
    # The labels are the annotations' own, so pictures of sample animals are wrong answers here: what counts is that
    # every picture is joined by its name.
    assert by_factor["average"]["n"] == 8
    assert sum(by_factor[factor]["n"] for factor in FACTORS) >= 8
