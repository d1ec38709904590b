"""What long commands print on stderr: the progress line, failures and the next command."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from unswayed.errors import printable

from . import EXIT_WITH_FAILURES

if TYPE_CHECKING:
    from unswayed.jobs.monitor import View


BAR = 20  # columns


@contextmanager
def progress_view() -> Iterator[Callable[[View], None]]:
    """Yield a function that shows how a long command stands: what is done, the rate, the time left, failures, and which
    workers do nothing and why. Ctrl-C says how to resume it."""
    with stoppable(), progress_line("", "") as show:

        def view(now: View) -> None:
            show(now.done, now.total, "; ".join(now.remarks), what=now.command, unit=now.unit, rate=now.rate)

        yield view


class ProgressLine:
    """The line of a command that runs; the rate is measured from the first call, and again from the first call of
    another stage, which has another `what` or has done less."""

    def __init__(self, what: str, unit: str) -> None:
        self.what, self.unit, self.note = what, unit, ""
        self.done = self.total = 0
        self.rate: float | None = None
        self.begun: tuple[float, int] | None = None

    def __call__(
        self, done: int, total: int, note: str = "", *, what: str = "", unit: str = "", rate: float | None = None
    ) -> None:
        if self.begun is None or (what or self.what) != self.what or done < self.done:
            self.begun = time.monotonic(), done
        seconds, made = time.monotonic() - self.begun[0], done - self.begun[1]
        self.rate = rate or (made / seconds if made and seconds > 0 else None)
        self.done, self.total, self.note = done, total, note
        self.what, self.unit = what or self.what, unit or self.unit

    def text(self, width: int) -> str:
        """Return the line for a terminal of this width: what does not fit is left out, and no word is divided.

        >>> line = ProgressLine("build", "pictures")
        >>> line.text(80)
        'build: starting …'
        >>> line(30, 120, "2 failed", rate=1.5)
        >>> line.text(80)
        'build ━━━━━───────────────  30 of 120 pictures  1.5/s  1:00 left  2 failed'
        >>> line.text(50)
        'build ━━━━━───────────────  30 of 120 pictures'
        """
        if not self.total:
            counted = f"{self.done:,} {self.unit}" if self.done else "starting …"
            return " ".join(textwrap.wrap(f"{self.what}: {counted}  {self.note}".strip(" :"), width)[:1])
        filled = round(BAR * min(self.done / self.total, 1))
        line = f"{self.what} {'━' * filled}{'─' * (BAR - filled)}"
        parts = [f"{self.done:,} of {self.total:,} {self.unit}"]
        if self.rate:
            minutes, seconds = divmod(round((self.total - self.done) / self.rate), 60)
            left = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}" if minutes >= 60 else f"{minutes}:{seconds:02}"
            parts += [f"{self.rate:.3g}/s", f"{left} left"]
        for part in [*parts, *textwrap.wrap(self.note, max(width - len("  ".join([line, *parts])) - 3, 10))[:1]]:
            line += f"  {part}" if len(line) + 2 + len(part) <= width else ""
        return line


@contextmanager
def progress_line(what: str, unit: str) -> Iterator[ProgressLine]:
    """Yield a function `show(done, total, note)` that updates the line on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def shown() -> Text:
        return Text(line.text(console.width), no_wrap=True)

    console, line = Console(stderr=True), ProgressLine(what, unit)
    live = Live(get_renderable=shown, console=console, transient=True) if console.is_terminal else nullcontext()
    with _output_on_stderr(), live:
        yield line


@contextmanager
def _output_on_stderr() -> Iterator[None]:
    """Send to stderr what models and libraries print meanwhile: stdout is for the command's own result."""
    sys.stdout.flush()
    before = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 1)
        os.close(before)


@contextmanager
def stoppable() -> Iterator[None]:
    """Run a block; Ctrl-C prints how to resume and exits with 130."""
    try:
        yield
    except KeyboardInterrupt:
        say("stopped; run the same command again to resume", f"run: {shlex.join(['unswayed', *sys.argv[1:]])}")
        raise typer.Exit(130) from None


def serve_until_stopped(address: str, end: str) -> None:
    """Print where a page is served and wait; Ctrl-C and SIGTERM alike end it, so that what it keeps is cleaned up."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(address, flush=True)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        say(end)


def unfinished_shards(names: Sequence[str], folder: Path) -> None:
    """Say which results will be there when the last shard is done, if any are missing."""
    if names:
        say(f"{folder}: this shard is done; the last one to end writes {', '.join(names)}")


def say(*lines: str) -> None:
    """Print lines on stderr, where they do not mix with the command's result; no name in them can begin a new line."""
    for line in map(printable, lines):
        typer.echo(for_a_terminal(line), err=True)


def for_a_terminal(line: str) -> str:
    """Return a line of stderr, wrapped if that is a terminal; a command stays in one line, so that it can be copied."""
    is_whole = line.startswith(("run: ", "next: ")) or not sys.stderr.isatty()
    return line if is_whole else "\n".join(wrapped(line))


def wrapped(text: str) -> list[str]:
    """Return the text in lines that fit the terminal; no word is divided."""
    width = shutil.get_terminal_size().columns
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def warn(lines: Sequence[str]) -> None:
    say(*(f"warning: {line}" for line in lines))


def exit_with_failures(failures: Mapping[str, str]) -> None:
    """Print the first failures, and exit with 4 if there are any."""
    say(*(f"failed: {name}: {reason}" for name, reason in list(failures.items())[:20]))
    if failures:
        raise typer.Exit(EXIT_WITH_FAILURES)
