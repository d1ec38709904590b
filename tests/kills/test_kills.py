"""A command that is killed and run again leaves the same files as one that was not killed, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from killing import COMMANDS, build_in_chaos, evaluation_in_chaos

from outside_package import path_with

SCRIPT = Path(__file__).parent / "killing.py"


def lines_of(*options: str) -> dict[str, str]:
    """What `killing.py` prints for each command, without the command's name.

    It copies its own process, so it needs one without the threads of other tests.
    """
    environment = {**os.environ, "PYTHONPATH": path_with()}
    done = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, env=environment)
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    return {name: found.get(name, done.stdout + done.stderr) for name in COMMANDS}


def test_killed_commands_resume_to_the_same_bytes() -> None:
    lines = lines_of("--injected", str(len(COMMANDS)), "--random", "0", "--seed", "1")
    assert lines == dict.fromkeys(COMMANDS, "1 runs, 1 killed, 0 different")


@pytest.mark.slow
def test_commands_can_be_killed_at_any_step_and_moment() -> None:
    often = str(2 * len(COMMANDS))
    for name, line in lines_of("--injected", often, "--random", often).items():
        assert line.endswith("killed, 0 different"), f"{name}: {line}"


# `python tests/kills/killing.py --chaos 30` is the long version.
@pytest.mark.slow
def test_workers_and_main_processes_can_be_killed_all_through_a_build(tmp_path: Path) -> None:
    assert build_in_chaos(tmp_path, kills=3, photographs=12, seed=3)[1] == []


@pytest.mark.slow
def test_workers_and_main_processes_can_be_killed_all_through_an_evaluation(tmp_path: Path) -> None:
    assert evaluation_in_chaos(tmp_path, kills=2, runs=1, seed=4)[1] == []
