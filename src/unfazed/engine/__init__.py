"""`run_tasks(worker, tasks)`: run tasks in this process or in several, and yield results as they finish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from unfazed.errors import UserError, unknown

from .prefetch import prefetch
from .processes import Outcome, run_in_processes

__all__ = ["ENGINES", "Outcome", "prefetch", "run_tasks"]

Task = TypeVar("Task")
Result = TypeVar("Result")

# engine -> function (worker, tasks, workers) -> iterator of outcomes
ENGINES: dict[str, Callable[..., Iterator[Outcome]]] = {"local": run_in_processes}


def run_tasks(
    worker: Callable[[Task], Result], tasks: Iterable[Task], workers: int = 1, engine: str = "local"
) -> Iterator[Outcome[Task, Result]]:
    """One `Outcome` for every task, in the order in which they finish.

    `worker` is a picklable callable. Each process gets it once, so what it loads for its first task is kept for
    the next. With one worker everything happens in this process, task by task, as the results are requested.
    An exception in a worker ends the run and is raised here; if a worker process dies (killed, out of memory,
    crashed), its task is repeated in a new process, and if that dies too, the outcome is a failure and the run goes on.

    >>> [outcome.result for outcome in run_tasks(abs, [-1, -2])]
    [1, 2]
    """
    if workers < 1:
        raise UserError(f"{workers} workers", allowed="1 or more")
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if workers == 1 and engine == "local":
        return (Outcome(task, worker(task)) for task in tasks)
    return ENGINES[engine](worker, tasks, workers)
