"""The progress line of long commands on stderr: what is done, the rate and the remaining time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def progress_line(what: str, unit: str) -> Iterator[Callable[[int, int, str], None]]:
    """Yield a function `show(done, total, note)` that updates the line; the rate is measured from its first call."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{{task.fields[rate]}} {unit}/s"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    with (
        _output_on_stderr(),
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task(what, total=None, rate="–", note="")
        first: list[int] = []

        def show(done: int, total: int, note: str = "") -> None:
            first.append(done) if not first else None
            elapsed = progress.tasks[0].elapsed or 0.0
            made = done - first[0]
            rate = f"{made / elapsed:.3g}" if elapsed > 0 and made else "–"
            progress.update(task, completed=done, total=total, rate=rate, note=note)

        yield show


def next_command(command: str) -> None:
    """Print the command that usually follows, on stderr, so that tables on stdout stay as they are."""
    import typer

    typer.echo(f"next: {command}", err=True)


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
def stoppable(run: str) -> Iterator[None]:
    """Run a block; Ctrl-C prints how to resume and exits with 130."""
    import typer

    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"stopped; run the same command again to resume\nrun: {run}", err=True)
        raise typer.Exit(130) from None
