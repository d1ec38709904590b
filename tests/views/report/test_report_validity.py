"""The report of a benchmark with invalid and reviewed pictures: both drops and the human ceiling."""

from __future__ import annotations

import polars as pl

from report_world import make_benchmark, make_predictions
from unswayed.benchmark.rows import Review, add_review
from unswayed.views.report.page import write_report


def test_the_report_shows_the_drop_on_valid_pictures_and_human_accuracy(tmp_path):
    classes = ["cat", "dog"]
    bench = make_benchmark(tmp_path / "bench", 24, classes)
    make_predictions(tmp_path / "p", bench, ["m"], classes)
    write_report(tmp_path / "p", tmp_path / "plain.html", flips=2, heat_maps=0)
    manifest = pl.read_parquet(bench / "manifest.parquet")
    odd = pl.col("source_id").str.slice(-1).cast(pl.Int64) % 2 == 1
    spoiled = pl.when(odd & (pl.col("edit") == "size-0.05")).then(0.1).otherwise(0.9)
    manifest.with_columns(validity=spoiled).write_parquet(bench / "manifest.parquet")
    add_review(bench, Review("scene00000/size-0.05/0", "scene00000", "size-0.05", 0, "ann", "unrecognizable"))
    write_report(tmp_path / "p", tmp_path / "both.html", flips=2, heat_maps=0)
    plain, both = ((tmp_path / name).read_text() for name in ("plain.html", "both.html"))
    for heading in ("drop on valid pictures, points", "human accuracy, %"):
        assert heading in both
        assert heading not in plain
    assert "n = 12" in both
