"""`run_tasks(worker, tasks)`: run tasks here, in processes or on a Ray cluster, and yield results as they finish."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from unswayed.errors import UserError

from .processes import defined_in_script, preload
from .resources import prefetch
from .scheduling import Counted, Here, Outcome, Schedule, Streaming, Watch, WorkerState, attempt
from .settings import ENGINES, Engine, EngineSettings

__all__ = [
    "ENGINES",
    "EngineSettings",
    "Outcome",
    "Watch",
    "WorkerState",
    "engine_of",
    "prefetch",
    "run_tasks",
]

Task = TypeVar("Task")


def run_tasks(
    worker: Callable[..., Any] | Streaming,
    tasks: Iterable[Task],
    workers: int = 1,
    settings: EngineSettings | None = None,
    *,
    devices: Sequence[str] = (),
    apart: bool = False,
    watch: Watch | None = None,
    counted: Counted | None = None,
) -> Iterator[Outcome[Task, Any]]:
    """One `Outcome` for every task, in the order in which they finish; tasks are begun in the order given.

    worker: a picklable callable. Each process gets it once, so what it loads for its first task is kept for the next.
        It is called with a task. If it has a method `stream(tasks)`, that is called instead, with an iterator of
        tasks, and yields an `Outcome` for each in any order; so it can prepare tasks before it finishes others. Its
        tasks must be hashable.
    workers: how many processes. One runs in this process, task by task, as the results are requested, unless `apart`.
    settings: the engine. Its shard is not applied here: the caller selects the tasks with `settings.part`.
    devices: one process for each of these devices instead of `workers`; the worker is called with `device=NAME` too.
        `engine_of(settings).places(settings)` are those of the engine.
    apart: also a single worker has a process for itself, so that one that crashes costs only its task.
    watch: is called with the states of all processes, this one if it does the work, when one of them changes.
    counted: is called with what a worker passes to its attribute `counted`, if it has one: how much more of a task is
        done. What was counted for a task that failed is counted back.

    A UserError of a worker ends the run and is raised here. A task that raises another exception, or whose process
    dies (killed, out of memory, crashed, its machine lost), is repeated, and if it fails again, the outcome has the
    reason and the run goes on.

    >>> [outcome.result for outcome in run_tasks(abs, [-1, -2])]
    [1, 2]
    """
    settings = EngineSettings() if settings is None else settings
    if workers < 1:
        raise UserError(f"{workers} workers", allowed="1 or more")
    places: Sequence[str | None] = devices or [None] * workers
    here = len(places) == 1 and ENGINES.part(settings.engine).facts.get("this_process", False)
    packed = None if here and not apart else _packed(worker, optional=here)
    if packed is not None:
        preload(worker)
        crew = ENGINES.load(settings.engine).crew(packed, places, settings)
        return Schedule(crew, tasks, watch, counted).run()
    process = Here(places[0] or "this process", places[0], watch)
    if counted is not None and hasattr(worker, "counted"):

        def count(more: int) -> None:
            counted(more)
            process.tell()

        worker.counted = count
    return _run_here(worker, tasks, process)


def engine_of(settings: EngineSettings) -> Engine:
    """The engine of the settings, which knows its cores and devices.

    >>> settings = EngineSettings(device="cpu,cpu")
    >>> engine_of(settings).places(settings)
    ['cpu', 'cpu']
    """
    return ENGINES.load(settings.engine)


def _packed(worker: Any, optional: bool) -> bytes | None:
    """The pickled worker; optional: None where a process that has not run the user's script cannot receive it."""
    try:
        packed = pickle.dumps(worker)
    except Exception:
        if not optional:
            raise
        return None
    return None if optional and defined_in_script(packed) else packed


def _run_here(worker: Any, tasks: Iterable[Task], process: Here) -> Iterator[Outcome[Task, Any]]:
    place = {} if process.device is None else {"device": process.device}

    def one_by_one() -> Iterator[Outcome[Task, Any]]:
        for task in tasks:
            answer = attempt(worker, task, place)
            yield Outcome(task, **(attempt(worker, task, place) if "failure" in answer else answer))

    process.tell()
    for outcome in worker.stream(iter(tasks), **place) if hasattr(worker, "stream") else one_by_one():
        process.tell(finished=1)
        yield outcome
