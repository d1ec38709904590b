"""Predictions are read with the benchmark that was evaluated, wherever it is now, and with no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import fsspec
import pyarrow.parquet as parquet
import pytest

from color_world import copied, write_benchmark
from unswayed.analyses.tables import analyze
from unswayed.errors import UserError
from unswayed.evaluation import run_evaluation
from unswayed.evaluation.facts import read_facts
from unswayed.evaluation.settings import EvaluateSettings
from unswayed.views.report.drop_tables import moved_lines
from unswayed.views.report.page import write_report


@pytest.fixture(scope="module")
def world(own_models: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("found")
    run_evaluation(write_benchmark(root / "bench"), [own_models + "good"], root / "predictions")
    return root


CHANGES = [{"seed": 7}, {"frame": "squash"}, {"labels": {"name": "own", "classes": ["x"]}}]


@pytest.mark.parametrize("changed", CHANGES)
def test_another_benchmark_is_refused_with_what_differs(
    world: Path, tmp_path: Path, changed: dict[str, object]
) -> None:
    other = copied(world / "bench", tmp_path / "other", **changed)
    for read in (
        lambda: read_facts(world / "predictions", other),
        lambda: analyze(world / "predictions", benchmark=other),
        lambda: write_report(world / "predictions", tmp_path / "report.html", benchmark=other, heat_maps=0),
    ):
        with pytest.raises(UserError, match="is not the benchmark that was evaluated") as refused:
            read()
        assert f"{next(iter(changed))}:" in str(refused.value)
    assert not (tmp_path / "report.html").exists()


def test_other_photographs_are_refused(world: Path, tmp_path: Path) -> None:
    fewer = write_benchmark(tmp_path / "fewer", a_class=2)
    with pytest.raises(UserError, match="photographs: 24 in the predictions, 8 in .*fewer, 8 of them in both"):
        read_facts(world / "predictions", fewer)
    other = copied(world / "bench", tmp_path / "other")
    rows = parquet.read_table(other / "manifest.parquet")
    labels = [(label + 1) % 2 for label in rows["label"].to_pylist()]
    for edited in (
        rows.append_column("sha256", [["0" * 64] * rows.num_rows]),
        rows.set_column(rows.column_names.index("label"), "label", [labels]),
    ):
        parquet.write_table(edited, other / "manifest.parquet")
        with pytest.raises(UserError, match="the same settings and names, but other files or labels"):
            read_facts(world / "predictions", other)


def test_a_copy_and_a_benchmark_that_has_grown_are_the_same(world: Path, own_models: str, tmp_path: Path) -> None:
    moved = copied(world / "bench", tmp_path / "moved")
    assert read_facts(world / "predictions", moved).root == moved
    # The manifest has other bytes, such as a column that was measured later, and the same pictures.
    rows = parquet.read_table(moved / "manifest.parquet")
    parquet.write_table(rows.append_column("validity", [[0.9] * rows.num_rows]), moved / "manifest.parquet")
    assert read_facts(world / "predictions", moved).root == moved
    small = write_benchmark(tmp_path / "small", a_class=2)
    run_evaluation(small, [own_models + "good"], tmp_path / "p")
    assert read_facts(tmp_path / "p", world / "bench").root == world / "bench"
    run_evaluation(moved, [own_models + "good"], tmp_path / "q", EvaluateSettings(limit=3))
    assert read_facts(tmp_path / "q", world / "bench").root == world / "bench"


def test_a_benchmark_that_was_replaced_or_moved_is_not_used(own_models: str, tmp_path: Path) -> None:
    bench = write_benchmark(tmp_path / "bench")
    run_evaluation(bench, [own_models + "good"], tmp_path / "p")
    assert (read_facts(tmp_path / "p").root, moved_lines(tmp_path / "p")) == (bench, [])
    shutil.rmtree(bench)
    write_benchmark(bench, a_class=2)
    assert read_facts(tmp_path / "p").root is None
    [line] = moved_lines(tmp_path / "p")
    assert "is not the one that was evaluated (photographs: 24 in the predictions, 8 in" in line
    shutil.rmtree(bench)
    [line] = moved_lines(tmp_path / "p")
    assert f"the benchmark is no longer at {bench}" in line and "--benchmark" in line
    assert write_report(tmp_path / "p", tmp_path / "report.html", heat_maps=0).notes == [line]
    assert f"Note: {line}." in (tmp_path / "report.html").read_text()


def test_an_address_in_a_card_that_cannot_be_used_is_a_note(own_models: str, tmp_path: Path) -> None:
    run_evaluation(write_benchmark(tmp_path / "bench"), [own_models + "good"], tmp_path / "p")
    [path] = (tmp_path / "p").glob("*.json")
    card = json.loads(path.read_text())
    card["benchmark"]["path"] = "s3://user@evil/bench"
    path.write_text(json.dumps(card))
    [line] = moved_lines(tmp_path / "p")
    assert "the card's path of the benchmark is 's3://user@evil/bench', which cannot be used" in line


def test_an_address_that_only_a_card_names_is_not_fetched(own_models: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("UNSWAYED_COPIES", str(tmp_path / "copies"))
    bench = write_benchmark(tmp_path / "bench")
    run_evaluation(bench, [own_models + "good"], tmp_path / "p")
    [path] = (tmp_path / "p").glob("*.json")
    card = json.loads(path.read_text())
    card["benchmark"]["path"] = "memory://evil/bench"
    path.write_text(json.dumps(card))
    memory = fsspec.filesystem("memory")
    memory.put(f"{bench}/", "/evil/bench/", recursive=True)
    assert memory.exists("/evil/bench/manifest.parquet")
    assert read_facts(tmp_path / "p").root is None
    assert not (tmp_path / "copies").exists()
    [line] = moved_lines(tmp_path / "p")
    assert "memory://evil/bench, which is not fetched because only a file names it" in line and "--benchmark" in line
    assert read_facts(tmp_path / "p", "memory://evil/bench").root is not None  # given by the user
