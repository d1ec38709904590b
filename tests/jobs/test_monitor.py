"""Heartbeats: who is alive is known also if the clocks of two machines differ."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from unswayed.errors import CannotWrite
from unswayed.files.whole import write_json
from unswayed.jobs.monitor import Monitor, View, heartbeats
from unswayed.jobs.scheduling import WorkerState


def write(folder: Path, number: int, moment: float, machine: str = "elsewhere") -> None:
    beat = {"command": "build", "machine": machine, "process": 7, "number": number, "time": moment}
    write_json(folder / f".heartbeat-{machine}-7.json", beat)


def alive(folder: Path) -> list[bool]:
    return [beat.alive for beat in heartbeats(folder, patience=0.5)]


def test_a_run_is_seen_while_it_lasts_and_leaves_nothing(tmp_path: Path) -> None:
    views: list[View] = []
    with Monitor(tmp_path, "evaluate", "predictions", views.append, every=0.05) as monitor:
        monitor.count(0, 10)
        monitor.watch(
            [WorkerState("cuda:0 1", "cuda:0", "working", 1, 3), WorkerState("cuda:1 2", "cuda:1", "ended", 0, 2)]
        )
        monitor.count(4, 10, failed=1)
        deadline = time.monotonic() + 60
        while not (found := heartbeats(tmp_path)) or found[0].content["done"] != 4:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        (beat,) = found
        assert beat.alive
        assert beat.content["process"] == os.getpid()
        assert (beat.content["done"], beat.content["total"], beat.content["failed"]) == (4, 10, 1)
        assert beat.content["remarks"] == ["1 failed", "cuda:1 2 is idle: no work is left"]
    assert list(tmp_path.iterdir()) == []
    assert views[-1].rate is not None
    assert views[-1].left is not None


def test_a_recent_heartbeat_of_another_machine_is_alive_and_an_old_one_stale(tmp_path: Path) -> None:
    write(tmp_path, 3, time.time() - 5)
    assert alive(tmp_path) == [True]
    write(tmp_path, 3, time.time() - 90)
    assert alive(tmp_path) == [False]


def test_a_clock_that_is_hours_off_does_not_matter(tmp_path: Path) -> None:
    for off in (-7200.0, 7200.0):
        stop = threading.Event()

        def beat(off: float = off, stop: threading.Event = stop) -> None:
            number = 0
            while not stop.wait(0.05):
                number += 1
                write(tmp_path, number, time.time() + off)

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            while not list(tmp_path.glob(".heartbeat*")):  # a file that is being written has another name
                time.sleep(0.02)
            assert any(alive(tmp_path) == [True] for _ in range(40))  # on a busy disk a heartbeat takes its time
        finally:
            stop.set()
            thread.join()
        assert alive(tmp_path) == [False]


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    write(tmp_path, 3, time.time() - 90)
    with Monitor(tmp_path, "evaluate", "predictions"):
        assert len(heartbeats(tmp_path)) == 1  # its own
    assert list(tmp_path.iterdir()) == []


def test_a_heartbeat_that_was_not_written_to_its_end_is_removed_once_its_process_is_dead(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    parts = [tmp_path / f"..heartbeat-{name}.json.part" for name in (f"{platform.node()}-{dead.pid}", "else-where-7")]
    for part in parts:
        part.write_text("{")
    with Monitor(tmp_path, "build", "scenes"):
        pass
    assert list(tmp_path.iterdir()) == parts[1:]  # that of another machine may still be written
    os.utime(parts[1], (time.time() - 90, time.time() - 90))
    with Monitor(tmp_path, "build", "scenes"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_moved_is_not_made_again(tmp_path: Path) -> None:
    folder: Any = tmp_path / "bench"
    with Monitor(folder, "build", "scenes", every=0.02):
        folder.rename(tmp_path / "elsewhere")
        time.sleep(0.2)
    assert not folder.exists()


def test_a_folder_that_is_replaced_by_another_one_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with Monitor(folder, "evaluate", "predictions", every=0.02) as monitor:
        monitor.count(1, 10)
        shutil.rmtree(folder)
        folder.mkdir()
        with pytest.raises(CannotWrite, match="was moved or deleted during the run of evaluate"):
            monitor.count(2, 10)
        time.sleep(0.1)
        assert list(folder.iterdir()) == []  # no heartbeat in a folder that is not ours
