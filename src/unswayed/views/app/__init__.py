"""`unswayed app`: the interactive page, where a visitor edits a photograph, browses flips and compares models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from unswayed.choices import DEVICE, Option
from unswayed.rendering.settings import RENDERER


@dataclass(frozen=True, kw_only=True)
class AppSettings:
    """What the page is started with."""

    benchmark: Annotated[Path | None, Option("The benchmark whose pictures the Browse tab shows.")] = None
    predictions: Annotated[
        Path | None, Option("The predictions that the Browse and Compare tabs show; they record their benchmark.")
    ] = None
    models: Annotated[
        Sequence[str] | None,
        Option("A model to use; may be repeated [default: lite:0, lite:1, lite:2].", flags=("-m", "--model")),
    ] = None
    host: Annotated[str, Option("The address to serve at [default: this computer only].")] = "127.0.0.1"
    port: Annotated[int | None, Option("The port [default: a free one from 7860].", least=1, most=65535)] = None
    segmenter: Annotated[
        str,
        Option(
            "The method that finds the object: `auto` (`sam2` where its weights are installed, else `grabcut`), "
            "`onnx:FILE` for a network such as U²-Net, or another one of `unswayed masks`."
        ),
    ] = "auto"
    renderer: Annotated[
        str,
        replace(
            RENDERER, help="What the button Render uses: `diffusion`, or a pipeline that also reads words, {values}."
        ),
    ] = "diffusion"
    device: Annotated[str | None, DEVICE] = None
