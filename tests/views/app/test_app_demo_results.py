"""What Browse and Compare show without predictions: real results, which the commands in the note make again."""

from __future__ import annotations

import hashlib

import numpy as np
import polars as pl
import pytest

from unswayed.models import open_model
from unswayed.rendering.layers import png
from unswayed.views.app.results import COMMANDS, MODELS, RECIPE, Filter, demo_results


@pytest.fixture(scope="module")
def results():
    return demo_results()


def test_the_pictures_that_are_made_again_have_the_bytes_of_the_benchmark(results):
    rows = results.facts.manifest.filter((pl.col("source_id") == "koala") & (pl.col("edit") != "source"), status="ok")
    assert set(rows["edit"]) == {"original", "reinsertion", *RECIPE.split(",")}
    for sample_id, expected in rows.select("sample_id", "sha256").iter_rows():
        assert hashlib.sha256(png(results.album.picture(sample_id))).hexdigest() == expected, sample_id


def test_the_predictions_are_those_of_the_models_today(results):
    [path] = results.predictions.glob("lite*0*.parquet")
    rows = (
        pl.read_parquet(path)
        .filter(pl.col("source_id").cast(pl.String) == "koala")
        .filter(pl.col("edit").cast(pl.String) != "source")
    )
    model = open_model("lite:0")
    import torch

    pictures = [results.album.picture(one) for one in rows["sample_id"].cast(pl.String)]
    said = model.logits(torch.stack([model.prepare(np.ascontiguousarray(one)) for one in pictures])).argmax(1)
    assert said.tolist() == rows["predicted"].to_list()


def test_there_is_something_to_see(results):
    assert results.models == list(MODELS)
    flips = results.flips(Filter())
    assert len(flips.shown) >= 6
    before, after = results.pair(flips.shown[0])
    assert before.shape == after.shape == (256, 256, 3)
    comparison = results.comparison("lite:0", "lite:1")
    rows = {row["edit"]: row for row in comparison["rows"]}
    assert rows["object size 5 %"]["verdict"] == "no difference shown"
    moved = rows["small and moved"]
    assert "(7 to 60)" in moved["words"] and moved["verdict"].startswith("no difference shown")
    assert "net of the control" in comparison["told"]
    assert len(comparison["pictures"]) > 5
    assert COMMANDS in results.note


def test_the_package_stays_small(results):
    folder = results.predictions.parent
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 300_000
    assert not any(b"/tmp" in file.read_bytes() for file in folder.rglob("*.json"))
