"""The number of threads is measured when others begin to compute, and not while nothing changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from unswayed.jobs import resources
from unswayed.jobs.resources import AGAIN, SOON, Threads


class Machine:
    """A clock, and how many cores other processes use."""

    def __init__(self) -> None:
        self.now, self.busy, self.others = 1000.0, 0.0, 0.0

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.busy += seconds * self.others

    def usage(self) -> tuple[float, float, float]:
        return self.now, self.busy, 0.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made, before = Machine(), torch.get_num_threads()
    monkeypatch.setattr(resources, "_usage", made.usage)
    monkeypatch.setattr(resources.time, "monotonic", lambda: made.now)
    torch.set_num_threads(2)
    yield made
    torch.set_num_threads(before)


def measured(chooser: Threads, runs: list[int]) -> bool:
    before = len(runs)
    chooser.adjust()
    return len(runs) > before


def test_a_quiet_machine_is_not_measured_for_a_minute(machine: Machine) -> None:
    runs: list[int] = []
    with Threads(lambda: runs.append(1)) as chooser:
        machine.passes(1)
        assert not measured(chooser, runs)
        assert torch.get_num_threads() == 2
        machine.passes(AGAIN)
        assert measured(chooser, runs)


def test_others_who_begin_or_stop_are_noticed(machine: Machine) -> None:
    runs: list[int] = []
    with Threads(lambda: runs.append(1)) as chooser:
        machine.others = float(resources.os.cpu_count() or 1)
        machine.passes(1)
        assert measured(chooser, runs)
        machine.passes(SOON)
        assert not measured(chooser, runs)  # they still compute: nothing new
        machine.others = 0.0
        machine.passes(SOON)
        assert measured(chooser, runs)


def test_one_thread_is_quicker_where_two_wait_for_each_other(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {1: 1.0, 2: 10.0}
    monkeypatch.setattr(resources.time, "perf_counter", lambda: machine.now)
    with Threads(lambda: machine.passes(seconds[torch.get_num_threads()])) as chooser:
        machine.others = float(resources.os.cpu_count() or 1)
        machine.passes(1)
        chooser.adjust()
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
