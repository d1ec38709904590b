"""What the server and its libraries print, up to a limit: a visitor can cause any number of error messages."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import TextIO

MOST = 2 * 2**20  # characters
LAST = "\nFurther messages of the server are not shown.\n"


class Bounded(io.TextIOBase):
    """A text stream that passes on at most `most` characters to another one."""

    def __init__(self, stream: TextIO, most: int = MOST) -> None:
        self.stream, self.left = stream, most

    def write(self, text: str) -> int:
        if self.left > 0:
            self.stream.write(text[: self.left] + (LAST if len(text) >= self.left else ""))
        self.left -= len(text)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()


@contextlib.contextmanager
def bounded_messages() -> Iterator[None]:
    """A block in which at most MOST characters are written to standard output and to standard error each."""
    with contextlib.redirect_stdout(Bounded(sys.stdout)), contextlib.redirect_stderr(Bounded(sys.stderr)):
        yield
