"""A command that is killed and run again leaves the same files as one that was not killed, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from killing import COMMANDS, build_in_chaos, evaluation_in_chaos, kill, make_inputs


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_resumes_to_the_same_bytes(name: str, inputs: Path, tmp_path: Path) -> None:
    killed, problems = kill(name, inputs, tmp_path, injected=1, at_random=0, seed=1)
    assert problems == []
    assert killed == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_can_be_killed_at_any_step_and_moment(name: str, inputs: Path, tmp_path: Path) -> None:
    assert kill(name, inputs, tmp_path, injected=10, at_random=12)[1] == []


@pytest.mark.parametrize(("kills", "photographs"), [(3, 12), pytest.param(30, 100, marks=pytest.mark.slow)])
def test_workers_and_main_processes_can_be_killed_all_through_a_build(
    kills: int, photographs: int, tmp_path: Path
) -> None:
    assert build_in_chaos(tmp_path, kills, photographs, seed=3)[1] == []


@pytest.mark.parametrize(("kills", "runs"), [(2, 1), pytest.param(30, 18, marks=pytest.mark.slow)])
def test_workers_and_main_processes_can_be_killed_all_through_an_evaluation(
    kills: int, runs: int, tmp_path: Path
) -> None:
    assert evaluation_in_chaos(tmp_path, kills, runs, seed=4)[1] == []
