"""benchmarks/simulate.py plans runs with the schedule of the engine; what it promises must follow from its rules."""

from __future__ import annotations

from types import ModuleType

import pytest

from benchmark_scripts import load_script


@pytest.fixture(scope="module")
def simulate() -> ModuleType:
    return load_script("simulate")


def test_equal_tasks_take_their_share_of_the_gpus_and_the_start(simulate: ModuleType) -> None:
    machines = simulate.Machines([simulate.Node(2), simulate.Node(2)], startup=10.0)
    run = simulate.simulated([5.0] * 40, machines)
    assert run.seconds == pytest.approx(10 + 40 * 5 / 4)
    assert run.done == 40
    assert run.wasted == 0


def test_the_order_of_the_tasks_is_kept_since_a_fresh_run_does_not_know_what_they_take(simulate: ModuleType) -> None:
    run = simulate.simulated([1.0] * 10 + [10.0], simulate.Machines([simulate.Node(2)], startup=0.0))
    assert run.seconds == pytest.approx(5.0 + 10.0)


def test_a_slow_machine_gets_fewer_tasks(simulate: ModuleType) -> None:
    machines = simulate.Machines([simulate.Node(1), simulate.Node(1, slowdown=2.0)], startup=0.0)
    assert simulate.simulated([1.0] * 30, machines).seconds == pytest.approx(20.0)


@pytest.mark.parametrize("ahead", [1, 4])
def test_after_the_loss_of_a_machine_every_task_is_done_once(simulate: ModuleType, ahead: int) -> None:
    losses = [(25.0, 0, None), (40.0, 1, 30.0)]
    nodes = [simulate.Node(4), simulate.Node(4), simulate.Node(4)]
    tasks = [float(1 + number % 7) for number in range(200)]
    run = simulate.simulated(tasks, simulate.Machines(nodes, 3.0, ahead, losses, noticed=2.0))
    whole = simulate.simulated(tasks, simulate.Machines([simulate.Node(4) for _ in nodes], 3.0, ahead))
    assert run.done == whole.done == 200
    assert run.wasted > 0
    assert run.seconds > whole.seconds


def test_a_run_without_any_machine_waits_until_one_is_back(simulate: ModuleType) -> None:
    machines = simulate.Machines([simulate.Node(1)], 1.0, losses=[(5.5, 0, 100.0)])
    run = simulate.simulated([2.0] * 5, machines)
    # Two tasks are done by then; the third begins again when the machine is back and its worker has started.
    assert run.seconds == pytest.approx(5.5 + 100 + 1 + 3 * 2)
    assert run.done == 5


def test_machines_that_are_lost_again_and_again_fail_no_task(simulate: ModuleType) -> None:
    """Three times while the worker starts, then five times in the middle of its only task."""
    losses = [(0.5, 0, 1.0), (2.0, 0, 1.0), (3.5, 0, 1.0), *((10.0 + 10 * number, 0, 1.0) for number in range(5))]
    run = simulate.simulated([8.0], simulate.Machines([simulate.Node(1)], startup=1.0, losses=losses))
    assert run.done == 1
    assert run.seconds == pytest.approx(50.0 + 1 + 1 + 8)


def test_a_task_whose_machine_is_lost_every_time_fails_in_the_end(simulate: ModuleType) -> None:
    losses = [(5.0 + 5 * number, 0, 1.0) for number in range(100)]
    run = simulate.simulated([20.0], simulate.Machines([simulate.Node(1)], startup=1.0, losses=losses))
    assert run.done == 0
    assert run.seconds == pytest.approx(5.0 + 5 * 21)
