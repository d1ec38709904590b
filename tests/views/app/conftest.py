"""A page on the loopback address with real predictions behind it, and a model and an edit with hostile names."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from command_line import run_cli
from hostile_names import HOSTILE_EDIT, HOSTILE_MODEL
from unswayed.views.app import AppSettings
from unswayed.views.app.page import served


@pytest.fixture(scope="session")
def predictions(tmp_path_factory) -> Path:
    """Two models on four scenes and two edits; and a third, the first again under hostile names."""
    root = tmp_path_factory.mktemp("results")
    bench, folder = root / "bench", root / "predictions"
    run_cli("build", "sample", "-o", bench, "--limit", 4, "--renderer", "paste", "--recipe", "size=0.02:0.05:2", code=0)
    run_cli("evaluate", bench, "-m", "lite:0", "-m", "lite:1", "-o", folder, code=0)
    [path] = folder.glob("lite*0*.parquet")
    rows = pl.read_parquet(path).with_columns(pl.col("model", "edit").cast(pl.String))
    names = {"size-0.05": HOSTILE_EDIT}
    hostile = rows.with_columns(model=pl.lit(HOSTILE_MODEL), edit=pl.col("edit").replace(names))
    hostile.write_parquet(folder / "hostile.parquet")
    card = json.loads(path.with_suffix(".json").read_text())
    (folder / "hostile.json").write_text(json.dumps({**card, "model": HOSTILE_MODEL}))
    return folder


@pytest.fixture(scope="session")
def address(predictions) -> str:
    with served(AppSettings(models=["lite:0"], predictions=predictions, segmenter="grabcut")) as (place, _):
        yield place
