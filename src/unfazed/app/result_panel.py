"""The panel of the result, always in sight: both pictures, rendering with diffusion, downloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from unfazed.errors import UserError

from . import figures
from .controls import Group, chosen_chain
from .downloads import Files, write_files
from .events import Shared, Updates
from .photographs import Photograph
from .preview import Shown, preview
from .render_panel import Asked, RenderPanel, connect_render, render_panel
from .studio import Studio


@dataclass(frozen=True, eq=False)
class ResultPanel:
    """The components of the panel."""

    pictures: Any
    note: Any
    render: RenderPanel
    downloads: list[Any]


def result_panel() -> ResultPanel:
    """Build the panel inside the open gradio context."""
    gr.HTML("<h2>Result</h2>")
    pictures = gr.HTML(elem_id="pictures")
    note = gr.HTML(figures.message(""), elem_id="note")
    render = render_panel()
    with gr.Row():
        downloads = [
            gr.DownloadButton(
                f"Download {what}", interactive=False, elem_id=f"download-{what}", size="sm", min_width=80
            )
            for what in ("picture", "mask", "record")
        ]
    gr.HTML("<p class='quiet'>The record makes the same bytes again: unfazed edit PHOTO --replay RECORD.json</p>")
    return ResultPanel(pictures, note, render, downloads)


def results_of(panel: ResultPanel, shown: Any, compared: Any) -> list[Any]:
    """Return the outputs of `previewed` and of a rendering; shown: the state with both pictures; compared: the place
    of three pictures side by side."""
    return [panel.pictures, panel.note, shown, compared, *panel.downloads]


def connect_result(panel: ResultPanel, shared: Shared, updates: Updates) -> None:
    """Connect the panel's events."""

    def finished(asked: Asked, made: Shown, beside: str) -> tuple[Any, ...]:
        return _results(asked.photograph, asked.picture, made, "after: rendered with diffusion", beside)

    updates.answered(shared, connect_render(panel.render, shared, updates.results, finished, _nothing))


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


def _results(
    photograph: Photograph, picture: str | None, made: Shown, caption: str, beside: str = ""
) -> tuple[Any, ...]:
    files: Files | None = None if made.edited is None else write_files(made.edited, photograph, picture)
    buttons = [gr.DownloadButton(value=path, interactive=path is not None) for path in (files or (None, None, None))]
    pictures = figures.pair(made.before, made.after, photograph.name, caption)
    return pictures, figures.message(made.note), (made.before, made.after), beside, *buttons


def _nothing(error: UserError) -> tuple[Any, ...]:
    closed = [gr.DownloadButton(value=None, interactive=False) for _ in range(3)]
    return gr.skip(), figures.message(f"Not updated: {error}", "old"), gr.skip(), gr.skip(), *closed
