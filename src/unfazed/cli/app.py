"""`unfazed app`: the interactive page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .devices import Device


def app(
    benchmark: Annotated[Path | None, typer.Option(help="The benchmark whose pictures Browse shows.")] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="The predictions that Browse and Compare show; they know their benchmark.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("-m", "--model", help="A model to ask; repeatable [default: lite:0, 1, 2].")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to serve at [default: this computer alone].")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="[default: the first free one from 7860]")] = None,
    segmenter: Annotated[
        str, typer.Option(help="What finds objects: `grabcut`, or `onnx:FILE`, such as U²-Net.")
    ] = "grabcut",
    device: Device = None,
) -> None:
    """Serve the interactive page: edit a photograph, see what classifiers say, browse flips, compare models.

    - `unfazed app`
    - `unfazed app -m lite:0 -m timm:resnet50.a1_in1k`
    - `unfazed app --predictions predictions --port 8000`

    The page needs no internet and loads nothing from outside. It has no passwords: with `--host 0.0.0.0` everyone who
    reaches this computer can use it. What is edited can be downloaded with a record that `unfazed edit --replay`
    turns into the same bytes. Ctrl-C ends it and deletes what visitors uploaded.
    """
    import signal
    import time

    from unfazed.app.page import DEFAULT_MODELS, served

    with served(
        model or DEFAULT_MODELS, predictions, benchmark, host=host, port=port, segmenter=segmenter, device=device
    ) as (address, _):
        # A plain kill ends it as Ctrl-C does, so that what visitors uploaded is deleted too.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        print(f"unfazed is at {address} (Ctrl-C ends it)", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            typer.echo("ended", err=True)
