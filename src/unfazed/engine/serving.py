"""What a worker does in its process, on every engine: ask for a task, do it, say what came out."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

from unfazed.errors import UserError, reason_of

from .scheduling import Message

Receive = Callable[[], tuple[int, Any] | None]
Send = Callable[[Message], None]


def serve(packed: bytes, device: str | None, receive: Receive, send: Send) -> None:
    """Do tasks until `receive` returns None; packed: the pickled worker, device: where it computes, if it is told."""
    try:
        worker = pickle.loads(packed)  # from our own parent
        run = _stream if hasattr(worker, "stream") else _one_by_one
        run(worker, {} if device is None else {"device": device}, receive, send)
        send(Message(ended=True))
    except UserError as error:
        send(Message(error=error))
    except Exception as error:
        send(Message(ended=True, died=reason_of(error)))


def _one_by_one(worker: Any, place: dict[str, str], receive: Receive, send: Send) -> None:
    answer = Message(wants=True)
    while True:
        send(answer)
        envelope = receive()
        if envelope is None:
            return
        number, task = envelope
        answer = Message(wants=True, number=number, **attempt(worker, task, place))


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
