"""What long commands print on stderr: the progress line, failures and the next command."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer

from . import EXIT_WITH_FAILURES

if TYPE_CHECKING:
    from unswayed.jobs.monitor import View


class Show(Protocol):
    """Updates the progress line."""

    def __call__(
        self, done: int, total: int, note: str = "", *, what: str = ..., unit: str = ..., rate: float | None = None
    ) -> None: ...


@contextmanager
def progress_view() -> Iterator[Callable[[View], None]]:
    """Yield a function that shows how a long command stands: what is done, the rate, the time left, failures, and which
    workers do nothing and why."""
    with progress_line("", "") as show:

        def view(now: View) -> None:
            show(now.done, now.total, "; ".join(now.remarks), what=now.command, unit=now.unit, rate=now.rate)

        yield view


@contextmanager
def progress_line(what: str, unit: str) -> Iterator[Show]:
    """Yield a function `show(done, total, note)` that updates the line; the rate is measured from its first call, and
    again from the first call of another stage, which has another `what` or has done less."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]} {task.fields[unit]}/s"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    with (
        _output_on_stderr(),
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task(what, total=None, rate="–", note="", unit=unit)
        first: list[int] = []

        def show(
            done: int, total: int, note: str = "", *, what: str = what, unit: str = unit, rate: float | None = None
        ) -> None:
            if what != progress.tasks[0].description or done < progress.tasks[0].completed:
                # Another stage of the command: its rate and time left do not follow from the last one's.
                progress.reset(task, completed=done)
                first.clear()
            first.append(done) if not first else None
            elapsed = progress.tasks[0].elapsed or 0.0
            made = done - first[0]
            rate = rate or (made / elapsed if elapsed > 0 and made else None)
            fields: dict[str, Any] = {"rate": "–" if rate is None else f"{rate:.3g}", "note": note, "unit": unit}
            progress.update(task, description=what, completed=done, total=total or None, **fields)

        yield show


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
def stoppable(run: str | None = None) -> Iterator[None]:
    """Run a block; Ctrl-C prints how to resume and exits with 130. run: the command to print, this one if None."""
    try:
        yield
    except KeyboardInterrupt:
        run = run or shlex.join(["unswayed", *sys.argv[1:]])
        say(f"stopped; run the same command again to resume\nrun: {run}")
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
    """Say which results will be there when the last shard is done."""
    say(f"{folder}: this shard is done; the last one to end writes {', '.join(names)}")


def next_command(command: str) -> None:
    """Print the command that usually follows, on stderr, so that tables on stdout stay as they are."""
    say(f"next: {command}")


def say(*lines: str) -> None:
    """Print lines on stderr, where they do not mix with the command's result."""
    for line in lines:
        typer.echo(line, err=True)


def warn(lines: Sequence[str]) -> None:
    say(*(f"warning: {line}" for line in lines))


def exit_with_failures(failures: Mapping[str, str]) -> None:
    """Print the first failures, and exit with 4 if there are any."""
    say(*(f"failed: {name}: {reason}" for name, reason in list(failures.items())[:20]))
    if failures:
        raise typer.Exit(EXIT_WITH_FAILURES)
