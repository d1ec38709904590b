"""Tasks done by spawned processes of this machine, each with one thread of torch and OpenCV.

A process asks for nothing and knows nothing of the others: it gets the worker once, then a task, answers, gets the
next. Where the parent is gone the pipe closes and the process ends, so a killed run leaves nobody behind.
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
from typing import Any, TypeVar

from .outcome import Outcome

Task = TypeVar("Task")
Result = TypeVar("Result")

# Two torch threads that wait for one core are many times slower than one, so workers × threads stays at workers.
LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
ONE_THREAD = dict.fromkeys(LIBRARIES, "1")

DONE, FAILED = b"+", b"-"


@dataclass
class _Hand:
    """One process, the pipe to it, and the task it has now."""

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
    again: deque[_Job] = deque()
    hands: list[_Hand] = []

    def next_job() -> _Job | None:
        if again:
            return again.popleft()
        return next((_Job(task) for task in waiting), None)

    try:
        while len(hands) < workers and (job := next_job()) is not None:
            hands.append(_hire(packed, job))
        while busy := [hand.pipe for hand in hands if hand.job is not None]:
            for pipe in wait(busy):
                hand = next(one for one in hands if one.pipe is pipe)
                job = hand.job
                assert job is not None
                try:
                    answer = hand.pipe.recv_bytes()
                except (EOFError, OSError):
                    hands.remove(hand)
                    failure = _after_death(hand, job)
                    if failure is None:
                        again.append(job)
                    if (following := next_job()) is not None:
                        hands.append(_hire(packed, following))
                    if failure is not None:
                        yield Outcome(job.task, failure=failure)
                    continue
                value = pickle.loads(memoryview(answer)[1:])
                if answer[:1] == FAILED:
                    raise value
                _give(hand, next_job())
                yield Outcome(job.task, value)
    finally:
        _dismiss(hands)


def _after_death(hand: _Hand, job: _Job) -> str | None:
    """None for a first death: the task is done again. The reason to give up for a second."""
    hand.pipe.close()
    hand.process.join()
    job.deaths += 1
    if job.deaths < 2:
        return None
    return f"the process that worked on it died twice ({_cause(hand.process.exitcode)})"


def _cause(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"{name}, most likely out of memory" if name == "SIGKILL" else name


def _hire(packed: bytes, job: _Job) -> _Hand:
    """A fresh process that has the worker and its first task."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    with _one_thread(), _no_interrupt():
        process.start()
    theirs.close()
    hand = _Hand(process, ours)
    with contextlib.suppress(OSError):
        ours.send_bytes(packed)
    _give(hand, job)
    return hand


def _give(hand: _Hand, job: _Job | None) -> None:
    """The task to this process, or, where none is left, its leave."""
    hand.job = job
    with contextlib.suppress(OSError):  # a process that died since is noticed by its closed pipe
        hand.pipe.send(None if job is None else (job.task,))


def _dismiss(hands: list[_Hand]) -> None:
    """Close every pipe, which ends idle processes at once, and end the busy ones."""
    for hand in hands:
        hand.pipe.close()
        if hand.job is not None:
            hand.process.terminate()
    for hand in hands:
        hand.process.join(timeout=5)
        if hand.process.is_alive():
            hand.process.kill()
            hand.process.join()


def _serve(pipe: Connection) -> None:
    """The life of a process: the worker, then task after task until there is none, or nobody to give one."""
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
    """The error itself where it survives pickling, else one that says the same."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}\n{''.join(getattr(error, '__notes__', []))}")


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """The environment that a process inherits: libraries read it when they are first imported."""
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
    """Ctrl-C reaches the parent alone, which then ends its processes: a spawned one inherits the blocked signal."""
    resource_tracker.ensure_running()  # its first start would unblock the signal again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
