"""An iterator that computes its next items in a thread before they are requested."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def prefetch(items: Iterable[Item], count: int) -> Generator[Item, None, None]:
    """The same items in the same order; a thread fetches up to `count` of them before they are requested.

    An exception of `items` is raised where it would have been. Leaving early stops the thread at its next item.

    >>> list(prefetch([1, 2, 3], count=2))
    [1, 2, 3]
    """
    ready: queue.Queue[tuple[str, object]] = queue.Queue(maxsize=count)
    stopped = threading.Event()

    def put(kind: str, value: object) -> bool:
        while not stopped.is_set():
            try:
                ready.put((kind, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def fetch() -> None:
        iterator = iter(items)
        try:
            for item in iterator:
                if not put("item", item):
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=fetch, daemon=True, name="prefetch")
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "item":
                yield value  # type: ignore[misc]
            elif kind == "end":
                return
            else:
                assert isinstance(value, BaseException)
                raise value
    finally:
        stopped.set()
        thread.join()
