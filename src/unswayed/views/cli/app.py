"""`unswayed app`: the interactive page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Device


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
    """Serve the interactive page: edit a photograph, see what classifiers predict, browse flips, compare models.

    - `unswayed app`
    - `unswayed app -m lite:0 -m timm:resnet50.a1_in1k`
    - `unswayed app --predictions predictions --port 8000`

    The page needs no internet connection and answers only this computer. With another `--host` the printed address
    contains a token, without which nobody can use the page. Edited pictures can be downloaded with a record from which
    `unswayed edit --replay` makes the same bytes. Ctrl-C stops the server and deletes what visitors uploaded.
    """
    # Importing the page takes seconds, in which nothing else would be printed.
    typer.echo(f"loading the page and {', '.join(model) if model else 'the models'} …", err=True)
    import signal
    import time

    _share_memory()
    from unswayed.views.app.messages import bounded_messages
    from unswayed.views.app.page import DEFAULT_MODELS, served

    with (
        bounded_messages(),
        served(
            model or DEFAULT_MODELS, predictions, benchmark, host=host, port=port, segmenter=segmenter, device=device
        ) as (address, _),
    ):
        # SIGTERM stops the server as Ctrl-C does, so that what visitors uploaded is deleted too.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        print(f"unswayed is at {address} (Ctrl-C stops it)", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)


def _share_memory() -> None:
    """Let all threads take memory from two pools, where the C library can do so (glibc).

    By default every thread of the server has a pool of its own, which keeps what the largest request in it needed.
    """
    import contextlib
    import ctypes

    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(-8, 2)  # M_ARENA_MAX
