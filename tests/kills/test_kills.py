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
    assert kill(name, inputs, tmp_path, injected=2, at_random=2)[1] == []


# `python tests/kills/killing.py --chaos 30` is the long version.
@pytest.mark.slow
def test_workers_and_main_processes_can_be_killed_all_through_a_build(tmp_path: Path) -> None:
    assert build_in_chaos(tmp_path, kills=3, photographs=12, seed=3)[1] == []


@pytest.mark.slow
def test_workers_and_main_processes_can_be_killed_all_through_an_evaluation(tmp_path: Path) -> None:
    assert evaluation_in_chaos(tmp_path, kills=2, runs=1, seed=4)[1] == []
