"""`unswayed app`: the interactive page, where a visitor edits a photograph, browses flips and compares models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unswayed.choices import DEVICE, option
from unswayed.rendering.settings import RENDERER


@dataclass(frozen=True, kw_only=True)
class AppSettings:
    """What the page is started with."""

    benchmark: Path | None = option(None, "The benchmark whose pictures the Browse tab shows.")
    predictions: Path | None = option(
        None, "The predictions that the Browse and Compare tabs show; they record their benchmark."
    )
    models: Sequence[str] | None = option(
        None, "A model to use; may be repeated [default: lite:0, lite:1, lite:2].", flags=("-m", "--model")
    )
    host: str = option("127.0.0.1", "The address to serve at [default: this computer only].")
    port: int | None = option(None, "The port [default: a free one from 7860].", least=1, most=65535)
    segmenter: str = option(
        "auto",
        "The method that finds the object: `auto` (`sam2` where its weights are installed, else `grabcut`), "
        "`onnx:FILE` for a network such as U²-Net, or another one of `unswayed masks`.",
    )
    renderer: str = option(
        "diffusion",
        replace(
            RENDERER, help="What the button Render uses: `diffusion`, or `diffusers:NAME_OR_FOLDER`, which reads words."
        ),
    )
    device: str | None = option(None, DEVICE)
