"""Questions of visitors who do not listen to the answers, which gradio keeps in memory until somebody does."""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict
from collections.abc import Iterator

MOST_UNREAD = 50
MOST_SESSIONS = 2000  # gradio keeps the answers of as many


class Unread:
    """Counts how often each session has asked since it last listened."""

    def __init__(self) -> None:
        self.asked: OrderedDict[str, int] = OrderedDict()
        self.listening: Counter[str] = Counter()

    def may_ask(self, session: str) -> bool:
        """Count a question; whether the session listens, or has few answers that it has not read."""
        if self.listening[session]:
            return True
        self.asked[session] = self.asked.pop(session, 0) + 1
        while len(self.asked) > MOST_SESSIONS:
            self.asked.popitem(last=False)
        return self.asked[session] <= MOST_UNREAD

    @contextlib.contextmanager
    def listens(self, session: str) -> Iterator[None]:
        """A block during which the session listens."""
        self.asked.pop(session, None)
        self.listening[session] += 1
        try:
            yield
        finally:
            self.listening[session] -= 1
            self.listening += Counter()  # drops sessions that no longer listen
