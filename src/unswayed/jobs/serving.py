"""What a worker does in its process, on every engine: ask for a task, do it, say what came out."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from unswayed.errors import UserError, reason_of

from .scheduling import Message
from .waiting import seconds_waited

Receive = Callable[[], tuple[int, Any] | None]
Send = Callable[[Message], None]
BETWEEN = 0.5  # seconds between two messages about what is done of a task


def serve(packed: bytes, device: str | None, receive: Receive, send: Send) -> None:
    """Do tasks until `receive` returns None; packed: the pickled worker, device: where it computes, if it is told."""
    try:
        worker = pickle.loads(packed)  # from our own parent
        run = _stream if hasattr(worker, "stream") else _one_by_one
        run(
            worker,
            {} if device is None else {"device": device},
            receive,
            lambda message: send(replace(message, waited=seconds_waited())),
        )
        send(Message(ended=True))
    except UserError as error:
        send(Message(error=error))
    except Exception as error:
        send(Message(ended=True, died=reason_of(error)))


class _Count:
    """Counts what is done of a task, and sends it now and then."""

    def __init__(self, send: Send) -> None:
        self.send, self.unsent, self.sent = send, 0, time.monotonic()

    def __call__(self, more: int) -> None:
        self.unsent += more
        if time.monotonic() - self.sent > BETWEEN:
            self.send(Message(counted=self.rest()))

    def rest(self) -> int:
        """Return what was not sent yet; it counts as sent."""
        unsent, self.unsent, self.sent = self.unsent, 0, time.monotonic()
        return unsent


def _one_by_one(worker: Any, place: dict[str, str], receive: Receive, send: Send) -> None:
    answer, count = Message(wants=True), _Count(send)
    if hasattr(worker, "counted"):
        worker.counted = count
    while True:
        send(answer)
        envelope = receive()
        if envelope is None:
            return
        number, task = envelope
        done = attempt(worker, task, place)
        answer = Message(wants=True, number=number, counted=count.rest(), **done)


def attempt(worker: Any, task: Any, place: dict[str, str]) -> dict[str, Any]:
    """{"result": …}, or {"failure": the reason} after an exception other than a user's mistake."""
    try:
        return {"result": worker(task, **place)}
    except UserError:
        raise
    except Exception as error:
        return {"failure": reason_of(error)}


def _stream(worker: Any, place: dict[str, str], receive: Receive, send: Send) -> None:
    numbers: dict[Any, int] = {}

    def tasks() -> Iterator[Any]:
        while True:
            send(Message(wants=True))
            envelope = receive()
            if envelope is None:
                return
            numbers[envelope[1]] = envelope[0]
            yield envelope[1]

    for outcome in worker.stream(tasks(), **place):
        send(Message(number=numbers.pop(outcome.task), result=outcome.result, failure=outcome.failure))
