"""Which worker gets which task, and what happens to the tasks of a worker that dies; the same on every engine.

Workers ask for tasks, so a fast one gets more of them, and a dead one holds only those that it had begun.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

from unswayed.errors import UserError, reason_of

Task = TypeVar("Task")
Result = TypeVar("Result")

State = Literal["starting", "working", "ended", "broken"]
TRIES = 2
# How often a task may lose its machine, and a place its machine while a worker starts there. On machines that can be
# taken away at any time this is normal; the limit only ends runs that would never end.
LOSSES = 20


@dataclass(frozen=True)
class Outcome(Generic[Task, Result]):
    """A task with its result, or with the reason why there is none after two attempts."""

    task: Task
    result: Result | None = None
    failure: str | None = None


@dataclass(frozen=True)
class WorkerState:
    """What one worker does: its name, its device if it has one, and how many tasks it has begun and finished.

    note: why it does not work, such as how its last process died; waited: the share of its time, in [0, 1], in which
    its network had nothing to do because no picture was decoded or prepared.
    """

    name: str
    device: str | None
    state: State
    begun: int
    finished: int
    note: str = ""
    waited: float = 0.0


Watch = Callable[[Sequence[WorkerState]], None]
Counted = Callable[[int], None]


@dataclass(frozen=True)
class Message:
    """A worker's message: it `wants` a task, has a `result` or an `error` that ends the run, or has `ended` or `died`.

    number: of the task that has a result or a `failure`; counted: how much more of its task is done; died: the cause
    of its death; lost: it died because its machine was lost, which is not the fault of its tasks; waited: the seconds
    that it has waited for pictures so far.
    """

    wants: bool = False
    number: int | None = None
    result: object = None
    failure: str | None = None
    counted: int = 0
    error: Exception | None = None
    ended: bool = False
    died: str | None = None
    lost: bool = False
    waited: float = 0.0


class Crew(Protocol):
    """Starts workers, each in one of `places` (the names of their devices, or None), and carries the messages."""

    places: Sequence[str | None]

    def start(self, device: str | None) -> object: ...

    def send(self, worker: object, envelope: tuple[int, object] | None) -> None:
        """Give a worker the numbered task that it wants, or None: there are no more."""

    def receive(self, workers: Sequence[object]) -> list[tuple[object, Message]]:
        """Wait for at least one message."""

    def stop(self, workers: Sequence[object]) -> None:
        """End all workers at once."""


@dataclass
class _Job:
    number: int
    task: object
    tries: int = 0
    losses: int = 0


@dataclass
class _Seat:
    """A seat for one worker at a time, with the tasks that this worker has begun.

    asked: whether this worker has asked for a task; group: the tasks that only it will get, or None for any task.
    """

    name: str
    device: str | None
    worker: object = None
    asked: bool = False
    group: deque[_Job] | None = None
    begun: dict[int, _Job] = field(default_factory=dict)
    finished: int = 0
    counted: int = 0
    stillborn: int = 0
    losses: int = 0
    note: str = ""
    since: float = 0.0
    waited: float = 0.0

    @property
    def broken(self) -> bool:
        return self.stillborn >= TRIES or self.losses >= LOSSES

    def state(self) -> WorkerState:
        kind: State = "working" if self.asked else "starting"
        if self.worker is None:
            kind = "broken" if self.broken else "ended"
        waited = min(1.0, self.waited / max(1e-9, time.monotonic() - self.since)) if self.asked else 0.0
        return WorkerState(self.name, self.device, kind, len(self.begun), self.finished, self.note, waited)


class Schedule:
    """The tasks that wait, first those to be repeated, and the seats of the workers that do them."""

    def __init__(
        self, crew: Crew, tasks: Iterable[object], watch: Watch | None = None, counted: Counted | None = None
    ) -> None:
        self.crew, self.watch, self.counted = crew, watch, counted
        self.waiting = (_Job(number, task) for number, task in enumerate(tasks))
        self.retries: deque[_Job] = deque()
        # Tasks of streams that died twice: each group has a worker for itself, and one that dies again is halved.
        self.groups: deque[list[_Job]] = deque()
        self.seats = [_Seat(f"{device or 'worker'} {number}", device) for number, device in enumerate(crew.places, 1)]

    def run(self) -> Iterator[Outcome]:
        """One outcome for every task, in the order in which they finish."""
        try:
            while True:
                self.fill()
                busy = {id(seat.worker): seat for seat in self.seats if seat.worker is not None}
                if not self.retries and not self.groups:
                    self.retries.extend(itertools.islice(self.waiting, 1))
                if not (self.retries or self.groups or any(seat.begun for seat in busy.values())):
                    return
                outcomes: list[Outcome] = []
                for worker, message in self.crew.receive([seat.worker for seat in busy.values()]):
                    outcomes += self.take(busy[id(worker)], message)
                if self.watch is not None:
                    self.watch([seat.state() for seat in self.seats])
                yield from outcomes
        finally:
            self.crew.stop([seat.worker for seat in self.seats if seat.worker is not None])

    def fill(self) -> None:
        """Start workers in free seats, as many as there are tasks for."""
        free = [seat for seat in self.seats if seat.worker is None and not seat.broken]
        if not free and all(seat.broken for seat in self.seats):
            raise UserError(f"no worker could be started: {self.seats[-1].note}")
        starting = sum(seat.worker is not None and not seat.asked for seat in self.seats)
        self.retries.extend(itertools.islice(self.waiting, max(0, len(free) + starting - len(self.retries))))
        for seat in free[: max(0, len(self.retries) + len(self.groups) - starting)]:
            seat.worker, seat.asked, seat.group, seat.waited = self.crew.start(seat.device), False, None, 0.0

    def take(self, seat: _Seat, message: Message) -> list[Outcome]:
        """What follows from a message of the worker in a seat."""
        if message.error is not None:
            raise message.error
        outcomes: list[Outcome] = []
        seat.waited = max(seat.waited, message.waited)
        self.count(seat, message.counted)
        if message.number is not None:
            job = seat.begun.pop(message.number)
            seat.finished += 1
            if message.failure is None:
                outcomes.append(Outcome(job.task, message.result))
            else:
                self.count(seat, -seat.counted)
                outcomes += self.failed([job], message.failure)
            seat.counted = 0
        if message.wants:
            if not seat.asked:
                seat.asked, seat.stillborn, seat.losses, seat.since = True, 0, 0, time.monotonic()
                seat.group = deque(self.groups.popleft()) if self.groups else None
            tasks = self.retries if seat.group is None else seat.group
            following = tasks.popleft() if tasks else None
            if following is None and seat.group is None:
                following = next(self.waiting, None)
            if following is not None:
                seat.begun[following.number] = following
            self.crew.send(seat.worker, None if following is None else (following.number, following.task))
        if message.ended:
            seat.note = message.died or ""
            self.count(seat, -seat.counted)
            if message.died is not None:
                outcomes += self.died(seat, message.died, message.lost)
            seat.worker, seat.begun = None, {}
        return outcomes

    def count(self, seat: _Seat, more: int) -> None:
        """Count what is done of the current task of a worker; less than nothing if that is lost."""
        seat.counted += more
        if more and self.counted is not None:
            self.counted(more)

    def died(self, seat: _Seat, cause: str, lost: bool) -> list[Outcome]:
        """Repeat the tasks of a worker that died; those whose machine was lost have not failed by that."""
        if not seat.asked:
            seat.stillborn, seat.losses = seat.stillborn + (not lost), seat.losses + lost
        spared = [job for job in seat.begun.values() if lost and job.losses < LOSSES]
        others = [job for job in seat.begun.values() if not lost or job.losses >= LOSSES]
        for job in spared:
            job.losses += 1
        if seat.group is None:
            self.retries.extend(spared)
        elif rest := [*spared, *seat.group]:
            self.groups.append(rest)
        reason = f"its machine was lost more than {LOSSES} times"
        return self.failed(others, f"{reason if lost else 'the process that worked on it died twice'} ({cause})")

    def failed(self, jobs: Sequence[_Job], reason: str) -> list[Outcome]:
        """Repeat the tasks of a worker that failed; a task that was alone with it twice has failed for good."""
        for job in jobs:
            job.tries += 1
        if len(jobs) == 1 and jobs[0].tries >= TRIES:
            return [Outcome(jobs[0].task, failure=reason)]
        self.retries.extend(job for job in jobs if job.tries < TRIES)
        again = [job for job in jobs if job.tries >= TRIES]
        half = (len(again) + 1) // 2
        self.groups.extend(group for group in (again[:half], again[half:]) if group)
        return []


Item = TypeVar("Item")
_seconds = 0.0


def counting_waits(items: Iterable[Item]) -> Iterator[Item]:
    """The same items; the time until each is there is added to `seconds_waited`."""
    global _seconds
    iterator = iter(items)
    while True:
        begun = time.perf_counter()
        try:
            item = next(iterator)
        except StopIteration:
            return
        finally:
            _seconds += time.perf_counter() - begun
        yield item


def seconds_waited() -> float:
    """How many seconds this process has waited in `counting_waits` so far."""
    return _seconds


class Here:
    """Tells `watch` what this process does, where no other process does the work."""

    def __init__(self, name: str, device: str | None, watch: Watch | None) -> None:
        self.name, self.device, self.watch, self.finished = name, device, watch, 0
        self.started, self.before = time.monotonic(), seconds_waited()

    def tell(self, finished: int = 0) -> None:
        self.finished += finished
        if self.watch is not None:
            waited = (seconds_waited() - self.before) / max(1e-9, time.monotonic() - self.started)
            self.watch([WorkerState(self.name, self.device, "working", 1, self.finished, "", min(1.0, waited))])


Receive = Callable[[], tuple[int, object] | None]
Send = Callable[[Message], None]
BETWEEN = 0.5  # seconds between two messages about what is done of a task


def serve(packed: bytes, device: str | None, receive: Receive, send: Send) -> None:
    """Do tasks until `receive` returns None; packed: the pickled worker, device: where it computes, or None."""
    try:
        worker = pickle.loads(packed)  # from our own parent
        keywords = {} if device is None else {"device": device}
        _work(worker, keywords, receive, lambda message: send(replace(message, waited=seconds_waited())))
        send(Message(ended=True))
    except UserError as error:
        send(Message(error=error))
    except Exception as error:
        send(Message(ended=True, died=reason_of(error)))


def _work(worker: object, keywords: dict[str, str], receive: Receive, tell: Send) -> None:
    numbers: dict[object, int] = {}
    unsent, sent = 0, time.monotonic()

    def envelopes() -> Iterator[tuple[int, object]]:
        tell(Message(wants=True))
        while (envelope := receive()) is not None:
            yield envelope
            tell(Message(wants=True))

    def tasks() -> Iterator[object]:
        for number, task in envelopes():
            numbers[task] = number
            yield task

    def count(more: int) -> None:
        nonlocal unsent, sent
        unsent += more
        if time.monotonic() - sent > BETWEEN:
            tell(Message(counted=unsent))
            unsent, sent = 0, time.monotonic()

    if hasattr(worker, "stream"):
        for outcome in worker.stream(tasks(), **keywords):
            tell(Message(number=numbers.pop(outcome.task), result=outcome.result, failure=outcome.failure))
        return
    if hasattr(worker, "counted"):
        worker.counted = count
    for number, task in envelopes():
        result, failure = attempt(worker, task, keywords)
        tell(Message(number=number, counted=unsent, result=result, failure=failure))
        unsent, sent = 0, time.monotonic()


def attempt(worker: Any, task: object, keywords: dict[str, str]) -> tuple[object, str | None]:
    """The result, and the reason why there is none after an exception other than a user's mistake."""
    try:
        return worker(task, **keywords), None
    except UserError:
        raise
    except Exception as error:
        return None, reason_of(error)
