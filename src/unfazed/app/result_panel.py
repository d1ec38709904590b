"""The panel of the result, always in sight: both pictures, rendering with diffusion, downloads."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from unfazed.errors import UserError

from . import figures
from .controls import Group, chosen_chain
from .downloads import Files, write_files
from .events import HEAVY, Shared, Updates
from .photographs import Photograph
from .preview import Shown, preview, render
from .studio import Studio


@dataclass(frozen=True, eq=False)
class ResultPanel:
    """The components of the panel."""

    pictures: Any
    note: Any
    steps: Any
    rendering: Any
    downloads: list[Any]


def result_panel() -> ResultPanel:
    """Build the panel inside the open gradio context."""
    gr.HTML("<h2>Result</h2>")
    pictures = gr.HTML(elem_id="pictures")
    note = gr.HTML(figures.message(""), elem_id="note")
    with gr.Row():
        steps = gr.Slider(4, 100, 20, step=1, label="diffusion steps: more are better and slower", buttons=[])
        rendering = gr.Button("Render with diffusion", variant="primary", elem_id="render")
    with gr.Row():
        downloads = [
            gr.DownloadButton(
                f"Download {what}", interactive=False, elem_id=f"download-{what}", size="sm", min_width=80
            )
            for what in ("picture", "mask", "record")
        ]
    gr.HTML("<p class='quiet'>The record makes the same bytes again: unfazed edit PHOTO --replay RECORD.json</p>")
    return ResultPanel(pictures, note, steps, rendering, downloads)


def results_of(panel: ResultPanel, shown: Any) -> list[Any]:
    """Return the outputs of `previewed` and `rendered`; shown: the state with both pictures."""
    return [panel.pictures, panel.note, shown, *panel.downloads]


def connect_result(panel: ResultPanel, shared: Shared, updates: Updates) -> None:
    """Connect the panel's events."""
    photograph, *others = shared.chosen
    event = panel.rendering.click(
        functools.partial(rendered, shared.studio, shared.groups), [photograph, panel.steps, *others],
        updates.results, api_name="render", show_progress_on=panel.pictures, **HEAVY,
    )  # fmt: skip
    updates.answered(shared, event)


def previewed(
    studio: Studio, shown: Sequence[Group], photograph: Photograph, picture: str | None, seed: float, *flat: Any
) -> tuple[Any, ...]:
    """Return the paste preview for the values of the controls, as the outputs of `results_of`."""
    try:
        made = preview(studio, photograph, chosen_chain(shown, picture, flat), int(seed or 0))
    except UserError as error:
        return _nothing(error)
    caption = "after: paste preview" if made.edited else "after"
    return _results(photograph, picture, made, caption)


def rendered(
    studio: Studio,
    shown: Sequence[Group],
    photograph: Photograph,
    steps: float,
    picture: str | None,
    seed: float,
    *flat: Any,
    progress: Any = gr.Progress(),
) -> tuple[Any, ...]:
    """Return the picture rendered with diffusion, as the outputs of `results_of`."""
    progress(0, desc="loading the network")
    try:
        chain = chosen_chain(shown, picture, flat)
        made = render(
            studio, photograph, chain, int(seed or 0), int(steps), lambda done, all: progress((done, all), unit="steps")
        )
    except UserError as error:
        return _nothing(error)
    return _results(photograph, picture, made, "after: rendered with diffusion")


def _results(photograph: Photograph, picture: str | None, made: Shown, caption: str) -> tuple[Any, ...]:
    files: Files | None = None if made.edited is None else write_files(made.edited, photograph, picture)
    buttons = [gr.DownloadButton(value=path, interactive=path is not None) for path in (files or (None, None, None))]
    pictures = figures.pair(made.before, made.after, photograph.name, caption)
    return pictures, figures.message(made.note), (made.before, made.after), *buttons


def _nothing(error: UserError) -> tuple[Any, ...]:
    closed = [gr.DownloadButton(value=None, interactive=False) for _ in range(3)]
    return gr.skip(), figures.message(str(error), "problem"), gr.skip(), *closed
