"""One process has the network; the processes that prepare and write pictures send it their layers.

The process with the network runs a `Service`, each of the others has a `Client`, which takes the place of the renderer
and of the removal. Messages go through a socket, pixels through memory that the two processes share.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import queue
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import AuthenticationError, reduction
from multiprocessing.connection import Client as connect
from multiprocessing.connection import Connection, Listener, Pipe, wait
from typing import Any, NamedTuple

import numpy as np

from unswayed.edits.layers import Layers, composite
from unswayed.errors import UserError, reason_of
from unswayed.jobs import Outcome
from unswayed.jobs.scheduling import counting_waits
from unswayed.rendering.layers import NetworkRenderer, Refusal, Removal, Renderer, Rendering

from .rows import FAILED

# How many pictures of a source are in the shared memory of one worker at a time.
AT_ONCE = 32
# A GPU removes this many objects at once, always the same number, so that none depends on its neighbors; it waits until
# so many are asked for, but not longer than these seconds.
REMOVED_AT_ONCE, PATIENCE = 16, 1.0
SWITCH = 1e-4  # seconds for which a thread may keep the interpreter while others wait for it


class Address(NamedTuple):
    """Where a service is reached; removal: the name of its removal method, if it has one."""

    path: str
    key: bytes
    removal: str | None = None


# What goes through the shared memory, or is not needed by a renderer.
_NO_PIXELS: dict[str, Any] = dict.fromkeys(("object", "background", "alpha", "visible"))
_NO_IMAGE: dict[str, Any] = {"image": None}


class Client:
    """A renderer and a removal in another process; the connection is made when it is first used."""

    def __init__(self, address: Address) -> None:
        self.address, self.name = address, address.removal
        self._connection: Connection | None = None

    def render(self, batch: Sequence[Layers]) -> list[Rendering | Refusal]:
        """One answer per picture; one whose start is 0 needs no network."""
        blended = [layers for layers in batch if layers.start > 0]
        parts = [blended[first : first + AT_ONCE] for first in range(0, len(blended), AT_ONCE)]
        answers = iter([answer for part in parts for answer in self._render(part)])
        return [
            next(answers) if layers.start > 0 else Rendering(composite(layers.object, layers.alpha, layers.background))
            for layers in batch
        ]

    def _render(self, batch: Sequence[Layers]) -> list[Rendering | Refusal]:
        size = batch[0].background.shape[0]
        self._memory.reserve(len(batch) * pixels_of(size))
        places = [self._memory.arrays(size, number) for number in range(len(batch))]
        for layers, arrays in zip(batch, places, strict=True):
            for array, pixels in zip(arrays, (layers.object, layers.background, layers.alpha), strict=True):
                array[...] = pixels
        answers = self._ask((size, [replace(layers, **_NO_PIXELS) for layers in batch]))
        return [
            replace(answer, image=arrays[0].copy()) if isinstance(answer, Rendering) else answer
            for answer, arrays in zip(answers, places, strict=True)
        ]

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int = 0, label: int | None = None) -> np.ndarray:
        """The picture without its object, see `rendering.removal`."""
        removed: np.ndarray = self._ask(_Removal(image, mask, seed))
        return removed

    def describe(self) -> dict[str, object]:
        return {}

    def _ask(self, request: object) -> Any:
        try:
            if self._connection is None:
                self._connection = connect(self.address.path, "AF_UNIX", self.address.key)
                reduction.send_handle(self._connection, self._memory.handle, 0)  # on a socket it needs no process
            self._connection.send(request)
            answer = self._connection.recv()
        except (EOFError, OSError):
            raise SystemExit(1) from None  # the process with the network is gone: this one ends without a result
        if isinstance(answer, Exception):
            raise answer
        return answer

    @functools.cached_property
    def _memory(self) -> _Memory:
        if hasattr(os, "memfd_create"):
            return _Memory(os.memfd_create("pictures"))
        with tempfile.TemporaryFile() as file:  # it is gone when nobody has it open
            return _Memory(os.dup(file.fileno()))


def pixels_of(size: int) -> int:
    """How many bytes the layers of one picture take."""
    return size * size * (3 + 3 + 4)


class _Memory:
    """Memory of a file that two processes have open; for each picture its object, background and alpha."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._bytes: mmap.mmap | bytes = b""

    def reserve(self, count: int) -> None:
        if len(self._bytes) < count:
            if os.fstat(self.handle).st_size < count:
                os.ftruncate(self.handle, count)
            self._bytes = mmap.mmap(self.handle, count)

    def arrays(self, size: int, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first, plane = number * pixels_of(size), 3 * size * size
        shape = (size, size)
        return (
            np.ndarray((*shape, 3), np.uint8, self._bytes, first),
            np.ndarray((*shape, 3), np.uint8, self._bytes, first + plane),
            np.ndarray(shape, np.float32, self._bytes, first + 2 * plane),
        )


@dataclass(frozen=True, eq=False)
class _Removal:
    """A picture whose object is to be removed; asked: when, by the clock of the service."""

    image: np.ndarray
    mask: np.ndarray
    seed: int
    connection: Connection | None = None
    asked: float = 0.0


@dataclass(eq=False)
class _Batch:
    """Pictures of one worker; left: how many have no answer yet."""

    connection: Connection
    layers: list[Layers]

    def __post_init__(self) -> None:
        self.answers: list[Rendering | Refusal | None] = [None] * len(self.layers)
        self.left = len(self.layers)

    def answer(self, number: int, answer: Rendering | Refusal) -> None:
        """Keep the answer to a picture; its pixels go where its object was. The last one sends all of them."""
        if isinstance(answer, Rendering):
            np.copyto(self.layers[number].object, answer.image)
            answer = replace(answer, **_NO_IMAGE)
        self.answers[number], self.left = answer, self.left - 1
        if not self.left:
            _send(self.connection, self.answers)


def _send(connection: Connection | None, answer: object) -> None:
    assert connection is not None
    with contextlib.suppress(OSError):  # the worker has died, which the engine notices
        connection.send(answer)


Key = tuple[_Batch, int]


class Service:
    """Renders what workers send, in batches that mix their pictures; a context that ends with its connections.

    on_passes: is called after every pass of the network with the number of pictures in it.
    """

    def __init__(self, renderer: Renderer, removal: Removal, on_passes: Callable[[int], None] | None = None) -> None:
        self.renderer, self.on_passes = renderer, on_passes
        self.removal: Any = removal if hasattr(removal, "remove") else None
        self.fixed = REMOVED_AT_ONCE if renderer.describe().get("device") == "cuda" else 1
        self.events: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.pictures: deque[Key] = deque()
        self.begun: dict[Key, None] = {}
        self.removals: deque[_Removal] = deque()
        self.outcomes: deque[Outcome] = deque()
        self.failure: BaseException | None = None
        self.ended = self.closed = False
        self.memories: dict[Connection, _Memory] = {}  # of the workers that are connected
        self.news, self.arrivals = Pipe(duplex=False)
        self.threads: list[threading.Thread] = []
        key = os.urandom(32)
        self.listener = Listener(family="AF_UNIX", backlog=64, authkey=key)
        self.address = Address(self.listener.address, key, getattr(self.removal, "name", None))

    def __enter__(self) -> Service:
        self.threads = [self._start(self._listen)]
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as end:
            end.connect(self.address.path)  # wakes the thread that waits for workers
        self.listener.close()
        self.arrivals.close()
        self.threads[0].join(timeout=30)
        for connection, memory in self.memories.items():
            connection.close()  # whoever waits for an answer ends
            os.close(memory.handle)
        for thread in self.threads:
            thread.join(timeout=30)

    def run(self, outcomes: Iterator[Outcome]) -> Generator[Outcome, None, None]:
        """The outcomes of workers that use this service, which does its work in this thread meanwhile."""
        self.threads.append(self._start(self._gather, outcomes))
        # The thread that listens to workers would keep the interpreter for 5 ms whenever this one launches a kernel.
        sys.setswitchinterval(SWITCH)
        for event in counting_waits(iter(self.events.get, self)):
            self._sort(event)
            for (batch, number), answer in self._answers():
                self.begun.pop((batch, number), None)
                batch.answer(number, answer)
                while self.outcomes:
                    yield self.outcomes.popleft()
            if self.failure is not None:
                raise self.failure
            while self.outcomes:
                yield self.outcomes.popleft()
            if self.ended:
                return

    def _answers(self) -> Iterator[tuple[Key, Rendering | Refusal]]:
        """The answers to all pictures that wait or come meanwhile; a bad picture costs only itself."""
        if isinstance(self.renderer, NetworkRenderer):
            try:
                # Again for what comes at its end: rendered one by one, it would take as long as a full batch.
                while (self.pictures or self.removals) and self.failure is None:
                    yield from self.renderer.stream(self._take, self.on_passes)
                return
            except UserError:
                raise
            except Exception:
                for key in self.begun:
                    self.pictures.appendleft(key)
        while (taken := self._take()) is not None:
            key, layers = taken
            yield key, render_safely(self.renderer, [layers])[0]

    def _take(self) -> tuple[Key, Layers] | None:
        """The next picture, if one is waiting; objects are removed here, between two passes."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._sort(self.events.get_nowait())
        while self.removals and (
            not self.pictures
            or len(self.removals) >= self.fixed
            or time.monotonic() - self.removals[0].asked > PATIENCE
        ):
            self._remove([self.removals.popleft() for _ in range(min(self.fixed, len(self.removals)))])
        if not self.pictures or self.failure is not None:
            return None
        key = self.pictures.popleft()
        self.begun[key] = None
        batch, number = key
        return key, batch.layers[number]

    def _sort(self, event: object) -> None:
        if isinstance(event, _Batch):
            self.pictures.extend((event, number) for number in range(len(event.layers)))
        elif isinstance(event, _Removal):
            self.removals.append(event)
        elif isinstance(event, Outcome):
            self.outcomes.append(event)
        elif isinstance(event, BaseException):
            self.failure = event
        else:
            self.ended = True

    def _remove(self, waiting: Sequence[_Removal]) -> None:
        padded = [*waiting, *[waiting[-1]] * (self.fixed - len(waiting))]
        try:
            answers: list[object] = self.removal.remove(
                [removal.image for removal in padded],
                [removal.mask for removal in padded],
                [removal.seed for removal in padded],
            )
        except Exception as error:  # one of them cannot be removed, so each is tried alone
            if len(waiting) > 1:
                for removal in waiting:
                    self._remove([removal])
                return
            answers = [error]
        for removal, answer in zip(waiting, answers, strict=False):
            _send(removal.connection, answer)

    def _start(self, target: Callable[..., None], *given: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=given, daemon=True, name=target.__name__.strip("_"))
        thread.start()
        return thread

    def _gather(self, outcomes: Iterator[Outcome]) -> None:
        try:
            with contextlib.closing(outcomes):  # type: ignore[type-var]
                for outcome in outcomes:
                    if self.closed:
                        return
                    self.events.put(outcome)
            self.events.put(None)
        except BaseException as error:
            self.events.put(error)

    def _accept(self) -> None:
        while not self.closed:
            try:
                connection = self.listener.accept()
                self.memories[connection] = _Memory(reduction.recv_handle(connection))
                self.arrivals.send(None)
            except (OSError, EOFError, AuthenticationError):  # a worker that died while it connected, or the end
                continue

    def _listen(self) -> None:
        """Put what workers send among the events: one thread for all, since many would fight for the interpreter."""
        while True:
            for ready in wait([self.news, *self.memories]):
                assert isinstance(ready, Connection)
                try:
                    if ready is self.news:
                        self.news.recv()
                    else:
                        self.events.put(self._read(ready, self.memories[ready]))
                except (EOFError, OSError):
                    if ready is self.news:
                        return
                    with ready:  # the worker has ended
                        os.close(self.memories.pop(ready).handle)

    def _read(self, connection: Connection, memory: _Memory) -> _Removal | _Batch:
        request = connection.recv()
        if isinstance(request, _Removal):
            return replace(request, connection=connection, asked=time.monotonic())
        size, bare = request
        memory.reserve(len(bare) * pixels_of(size))
        names = ("object", "background", "alpha")
        pixels = [dict(zip(names, memory.arrays(size, number), strict=True)) for number in range(len(bare))]
        return _Batch(connection, [replace(layers, **arrays) for layers, arrays in zip(bare, pixels, strict=True)])


def render_safely(renderer: Renderer, batch: Sequence[Layers]) -> list[Rendering | Refusal]:
    """Return the renderer's results; if a batch fails, its pictures are tried one by one and bad ones marked failed.

    A user's mistake (no memory for a single picture, a broken network) ends the run instead.
    """
    try:
        return renderer.render(batch)
    except UserError:
        raise
    except Exception as error:
        if len(batch) > 1:
            return [answer for layers in batch for answer in render_safely(renderer, [layers])]
        return [Refusal(reason_of(error), status=FAILED)]
