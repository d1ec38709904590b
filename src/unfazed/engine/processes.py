"""Run tasks in a pool of spawned processes, each with one thread of torch and OpenCV.

A process receives the worker once, then one task at a time. When the parent is gone, the pipe closes and the process
ends, so a killed run leaves no process behind.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Two torch threads on one core are many times slower than one, so each worker has one thread.
LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
ONE_THREAD = dict.fromkeys(LIBRARIES, "1")

DONE, FAILED = b"+", b"-"


@dataclass(frozen=True)
class Outcome(Generic[Task, Result]):
    """A task with its result, or with the reason why there is none (its process died twice)."""

    task: Task
    result: Result | None = None
    failure: str | None = None


@dataclass
class _Member:
    """One process of the pool, the pipe to it, and its current task."""

    process: SpawnProcess
    pipe: Connection
    job: _Job | None = None


@dataclass
class _Job:
    task: Any
    deaths: int = 0


def run_in_processes(
    worker: Callable[[Task], Result], tasks: Iterable[Task], workers: int
) -> Iterator[Outcome[Task, Result]]:
    """Outcomes as they finish; tasks are taken from the iterable only when a process is free."""
    packed = pickle.dumps(worker)
    waiting = iter(tasks)
    retries: deque[_Job] = deque()
    pool: list[_Member] = []

    def next_job() -> _Job | None:
        if retries:
            return retries.popleft()
        return next((_Job(task) for task in waiting), None)

    try:
        while len(pool) < workers and (job := next_job()) is not None:
            pool.append(_start_member(packed, job))
        while busy := [member.pipe for member in pool if member.job is not None]:
            for pipe in wait(busy):
                member = next(one for one in pool if one.pipe is pipe)
                job = member.job
                assert job is not None
                try:
                    answer = member.pipe.recv_bytes()
                except (EOFError, OSError):
                    pool.remove(member)
                    failure = _after_death(member, job)
                    if failure is None:
                        retries.append(job)
                    if (following := next_job()) is not None:
                        pool.append(_start_member(packed, following))
                    if failure is not None:
                        yield Outcome(job.task, failure=failure)
                    continue
                value = pickle.loads(memoryview(answer)[1:])
                if answer[:1] == FAILED:
                    raise value
                _send(member, next_job())
                yield Outcome(job.task, value)
    finally:
        _stop_pool(pool)


def _after_death(member: _Member, job: _Job) -> str | None:
    """None after a first death, since the task is repeated; the reason for the failure after a second."""
    member.pipe.close()
    member.process.join()
    job.deaths += 1
    if job.deaths < 2:
        return None
    return f"the process that worked on it died twice ({_cause(member.process.exitcode)})"


def _cause(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"{name}, most likely out of memory" if name == "SIGKILL" else name


def _start_member(packed: bytes, job: _Job) -> _Member:
    """A new process that has the worker and its first task."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    with _one_thread(), _no_interrupt():
        process.start()
    theirs.close()
    member = _Member(process, ours)
    with contextlib.suppress(OSError):
        ours.send_bytes(packed)
    _send(member, job)
    return member


def _send(member: _Member, job: _Job | None) -> None:
    """Send a task to this process, or None, which ends it, if no task is left."""
    member.job = job
    with contextlib.suppress(OSError):  # if the process has died, its closed pipe shows it
        member.pipe.send(None if job is None else (job.task,))


def _stop_pool(pool: list[_Member]) -> None:
    """Close every pipe, which ends idle processes at once, and terminate the busy ones."""
    for member in pool:
        member.pipe.close()
        if member.job is not None:
            member.process.terminate()
    for member in pool:
        member.process.join(timeout=5)
        if member.process.is_alive():
            member.process.kill()
            member.process.join()


def _serve(pipe: Connection) -> None:
    """The main function of a process: receive the worker, then run tasks until None arrives or the pipe closes."""
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        packed = pipe.recv_bytes()
        worker = None
        while (envelope := pipe.recv()) is not None:
            try:
                worker = worker or pickle.loads(packed)  # from our own parent, over a private pipe
                answer = DONE + pickle.dumps(worker(envelope[0]), protocol=pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                error.add_note(f"in a worker process:\n{traceback.format_exc()}")
                answer = FAILED + pickle.dumps(_sendable(error))
            pipe.send_bytes(answer)


def _sendable(error: Exception) -> Exception:
    """The error itself if it can be pickled, else a RuntimeError with the same message."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}\n{''.join(getattr(error, '__notes__', []))}")


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Set the environment that a new process inherits; libraries read it when they are first imported."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Let Ctrl-C reach only the parent, which then ends its processes; a spawned one inherits the blocked signal."""
    resource_tracker.ensure_running()  # its first start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
