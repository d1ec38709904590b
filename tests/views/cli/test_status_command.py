"""`unswayed status` of predictions: models, runs that are alive, and runs that died."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from command_line import refusal, run_cli
from unswayed.files.whole import write_json, write_parquet
from unswayed.jobs.monitor import Monitor
from unswayed.jobs.scheduling import WorkerState


def status(*arguments: object) -> str:
    result = run_cli("status", *arguments)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    """One finished, one failed and one unfinished model."""
    rows = pa.table({"sample_id": ["a", "b", "c"]})
    write_parquet(tmp_path / "lite-0.parquet", rows)
    write_json(tmp_path / "lite-0.json", {"model": "lite:0"})
    write_json(tmp_path / "mine.failed.json", {"model": "mine", "error": "no kernel for this"})
    write_parquet(tmp_path / ".parts/lite-2-0123456789ab-32/000000-000000.parquet", rows)
    return tmp_path


def test_the_models_of_an_evaluation_are_listed(predictions: Path) -> None:
    first, *lines = status(predictions).splitlines()
    assert first == f"{predictions}: 3 models"
    rows = [line for line in lines if line.strip()][2:]  # below the headings and their line
    assert [row.split(maxsplit=3) for row in rows] == [
        ["lite:0", "finished", "3", "–"],
        ["mine", "failed", "0", "no kernel for this"],
        ["lite-2", "unfinished", "3", "–"],
    ]


def test_a_run_that_is_alive_says_what_it_does(predictions: Path) -> None:
    with Monitor(predictions, "evaluate", "predictions", every=0.05) as monitor:
        monitor.watch([WorkerState("cuda:1 2", "cuda:1", "broken", 0, 0, "CUDA error")])
        monitor.count(0, 9)
        monitor.count(6, 9, failed=1)
        deadline = time.monotonic() + 60
        while not (runs := json.loads(status(predictions, "--json"))["runs"]) or runs[0]["done"] != 6:
            assert time.monotonic() < deadline
        assert runs[0]["alive"]
        lines = status(predictions).splitlines()
    shown = lines[next(i for i, line in enumerate(lines) if "(process" in line) :]
    assert f"(process {os.getpid()}): 6 of 9 predictions" in shown[0]
    assert shown[1:] == ["  1 failed", "  cuda:1 2 cannot be started (CUDA error)"]


def test_a_run_that_died_is_stale_and_watching_it_ends(predictions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beat = {"command": "evaluate", "machine": "node7", "process": 12, "number": 4, "time": time.time() - 100}
    write_json(predictions / ".heartbeat-node7-12.json", beat)
    monkeypatch.setattr("unswayed.jobs.monitor.EVERY", 0.1)
    lines = status(predictions, "--watch").splitlines()
    assert "evaluate on node7 (process 12): stale, not heard of for 10" in " ".join(lines)
    assert max(map(len, lines[-2:])) <= 80


def test_a_finished_folder_of_masks_says_how_many_should_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "confidence.csv").write_text("picture,confidence\na.jpg,0.3\nb.jpg,0.9\n")
    assert status(tmp_path) == f"{tmp_path}: 2 masks, of which 1 should be looked at\n"
    assert json.loads(status(tmp_path, "--json"))["masks"] == {"made": 2, "doubtful": 1}


def test_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    refusal(run_cli("status", tmp_path), "is not a folder of a benchmark, of predictions")
