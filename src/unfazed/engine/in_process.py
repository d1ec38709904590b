"""Run tasks one after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from .outcome import Outcome

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_here(worker: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Outcome[Task, Result]]:
    for task in tasks:
        yield Outcome(task, worker(task))
