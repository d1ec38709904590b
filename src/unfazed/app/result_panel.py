"""The panel of the result, always in sight: both pictures, rendering with diffusion, downloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from unfazed.errors import UserError
from unfazed.report.words import percent

from . import figures
from .controls import Group, chosen_chain
from .downloads import Files, write_files
from .events import HEAVY, PRIVATE, Shared, Updates
from .jobs import Canceled, Report, Step
from .photographs import Photograph
from .preview import Compared, Shown, preview, render
from .studio import Studio

RESULTS = 7  # the number of outputs of `results_of`


@dataclass(frozen=True, eq=False)
class ResultPanel:
    """The components of the panel."""

    pictures: Any
    note: Any
    steps: Any
    rendering: Any
    working: Any
    cancel: Any
    downloads: list[Any]


def result_panel() -> ResultPanel:
    """Build the panel inside the open gradio context."""
    gr.HTML("<h2>Result</h2>")
    pictures = gr.HTML(elem_id="pictures")
    note = gr.HTML(figures.message(""), elem_id="note")
    with gr.Row():
        steps = gr.Slider(4, 100, 20, step=1, label="diffusion steps: more are better and slower", buttons=[])
        rendering = gr.Button("Render with diffusion", variant="primary", elem_id="render")
        cancel = gr.Button("Cancel", variant="stop", visible=False, elem_id="cancel-render")
    working = gr.HTML(elem_id="working")
    with gr.Row():
        downloads = [
            gr.DownloadButton(
                f"Download {what}", interactive=False, elem_id=f"download-{what}", size="sm", min_width=80
            )
            for what in ("picture", "mask", "record")
        ]
    gr.HTML("<p class='quiet'>The record makes the same bytes again: unfazed edit PHOTO --replay RECORD.json</p>")
    return ResultPanel(pictures, note, steps, rendering, working, cancel, downloads)


def results_of(panel: ResultPanel, shown: Any, compared: Any) -> list[Any]:
    """Return the outputs of `previewed`; shown: the state with both pictures; compared: the place of three pictures
    side by side."""
    return [panel.pictures, panel.note, shown, compared, *panel.downloads]


def connect_result(panel: ResultPanel, shared: Shared, updates: Updates) -> None:
    """Connect the panel's events."""
    studio = shared.studio
    photograph, *others = shared.chosen

    def render_for(request: gr.Request, *given: Any) -> Iterator[tuple[Any, ...]]:
        yield from rendered(studio, shared.groups, str(request.session_hash), *given)

    event = panel.rendering.click(
        render_for, [photograph, panel.steps, shared.models, *others],
        [*updates.results, panel.working, panel.cancel], api_name="render", **{**HEAVY, "show_progress": "hidden"},
    )  # fmt: skip
    updates.answered(shared, event)
    connect_cancel(panel.cancel, studio)


def connect_cancel(button: Any, studio: Studio) -> None:
    """Let the button stop the visitor's job; it does not wait in the queue behind that job."""

    def cancel(request: gr.Request) -> None:
        studio.jobs.cancel(str(request.session_hash))

    button.click(cancel, None, None, queue=False, show_progress="hidden", **PRIVATE)


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
    visitor: str,
    photograph: Photograph,
    steps: float,
    models: Sequence[str],
    picture: str | None,
    seed: float,
    *flat: Any,
) -> Iterator[tuple[Any, ...]]:
    """Yield the progress of rendering with diffusion, then its result, as the outputs of `results_of` and a bar."""
    unchanged, last = (gr.skip(),) * RESULTS, Step(0, 0, 0.0)

    def told(step: Step) -> tuple[Any, ...]:
        nonlocal last
        last = step
        return *unchanged, figures.progress(step, "passes"), gr.Button(visible=True)

    def work(report: Report) -> tuple[Shown, Compared]:
        chain = chosen_chain(shown, picture, flat)
        return render(studio, photograph, chain, int(seed or 0), int(steps), report)

    yield *unchanged, figures.message("Loading the network …"), gr.Button(visible=True)
    try:
        made, compared = yield from studio.jobs.followed(visitor, work, told)
        beside = figures.side_by_side(compared, _said(studio, models, compared))
        outputs = _results(photograph, picture, made, "after: rendered with diffusion", beside)
        note = ""
    except Canceled:
        outputs = unchanged
        note = f"Canceled after {last.done} of {last.total} passes. The result above is the one from before."
    except UserError as error:
        outputs, note = _nothing(error), ""
    yield *outputs, figures.message(note), gr.Button(visible=False)


def _said(studio: Studio, models: Sequence[str], compared: Compared) -> dict[str, list[str]]:
    """Return each model's prediction for each picture of the comparison, in a line."""
    images = {name: image for name, image in vars(compared).items() if not isinstance(image, str)}
    said: dict[str, list[str]] = {name: [] for name in images}
    for model in models:
        try:
            answers = studio.answers(model, list(images.values()))
        except UserError:
            continue  # the predictions below say why
        for name, answer in zip(images, answers, strict=True):
            said[name].append(f"{model}: {answer.names[0]}, {percent(answer.probabilities[0], 0)}")
    return said


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
