"""The panel of the result, always in sight: the stage with both pictures, rendering with diffusion, downloads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from typing import Any

import gradio as gr

from unswayed.errors import UserError

from . import figures
from .controls import Group, chosen_chain
from .downloads import Files, write_files
from .events import LIGHT, PRIVATE, Shared, Updates
from .photographs import Photograph
from .preview import Shown, preview
from .render_panel import Asked, RenderPanel, connect_render, render_panel
from .stage import Said, stage
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
    script = resources.files(__package__).joinpath("handles.js").read_text(encoding="utf-8")
    pictures = gr.HTML(elem_id="pictures", js_on_load=script)
    note = gr.HTML(figures.message(""), elem_id="note")
    render = render_panel()
    with gr.Row():
        downloads = [
            gr.DownloadButton(
                f"Download {what}", interactive=False, elem_id=f"download-{what}", size="sm", min_width=80
            )
            for what in ("picture", "mask", "record")
        ]
    gr.HTML("<p class='quiet'>The record makes the same bytes again: unswayed edit PHOTO --replay RECORD.json</p>")
    return ResultPanel(pictures, note, render, downloads)


def results_of(panel: ResultPanel, shown: Any, compared: Any) -> list[Any]:
    """Return the outputs of `previewed` and of a rendering; shown: the state with both pictures; compared: the place
    of three pictures side by side."""
    return [panel.pictures, panel.note, shown, compared, *panel.downloads]


def connect_result(panel: ResultPanel, shared: Shared, updates: Updates) -> None:
    """Connect the panel's events."""

    def finished(asked: Asked, made: Shown, beside: str) -> tuple[Any, ...]:
        return _results(shared.studio, shared.groups, asked, made, "after: rendered with diffusion", beside)

    connect_render(panel.render, shared, updates.results, finished, nothing)
    # The picture is settled once nothing new has come for a moment, so that no heat map slows a drag.
    given = [shared.photograph, shared.shown, shared.models]
    panel.pictures.settled(updates.answer, given, updates.answers, **PRIVATE, **LIGHT)


def previewed(
    studio: Studio,
    shown: Sequence[Group],
    models: Sequence[str],
    photograph: Photograph,
    picture: str | None,
    seed: float,
    *flat: Any,
    serial: int | None = None,
) -> tuple[Any, ...]:
    """Return the paste preview for the values of the controls, as the outputs of `results_of`."""
    try:
        asked = Asked(models, photograph, picture, int(seed or 0), chosen_chain(shown, picture, flat))
        made = preview(studio, photograph, asked.chain, asked.seed)
    except UserError as error:
        return nothing(error)
    return _results(studio, shown, asked, made, "after: paste preview" if made.edited else "after", serial=serial)


def _results(
    studio: Studio,
    shown: Sequence[Group],
    asked: Asked,
    made: Shown,
    caption: str,
    beside: str = "",
    serial: int | None = None,
) -> tuple[Any, ...]:
    photograph = asked.photograph
    files: Files | None = None if made.edited is None else write_files(made.edited, photograph, asked.picture)
    buttons = [gr.DownloadButton(value=path, interactive=path is not None) for path in (files or (None, None, None))]
    names = {edit.name for edit in asked.chain}
    unchanged = [group.edit for group in shown if group.edit not in names]
    said = _said(studio, asked.models, made)
    markup = stage(photograph, made, caption, said, asked.chain, unchanged, asked.seed, serial)
    return markup, figures.message(made.note), (made.before, made.after), beside, *buttons


def _said(studio: Studio, models: Sequence[str], made: Shown) -> list[Said]:
    """Return the predictions of the models that can be opened; the others are named with the predictions."""
    said = []
    for name in models:
        with suppress(UserError):
            said.append(Said(name, *studio.answers(name, (made.before, made.after))))
    return said


def nothing(error: UserError) -> tuple[Any, ...]:
    """Return the outputs of `results_of` that leave the pictures as they are and say what was wrong."""
    closed = [gr.DownloadButton(value=None, interactive=False) for _ in range(3)]
    return gr.skip(), figures.message(f"Not updated: {error}", "old"), gr.skip(), gr.skip(), *closed
