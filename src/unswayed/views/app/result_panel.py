"""The panel of the result: the picture of the stage, the rendering with diffusion, downloads; and the events that all
panels share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeAlias

import gradio as gr

from unswayed.edits import Edit
from unswayed.errors import UserError
from unswayed.views.text import percent

from . import figures
from .controls import Group, Value, chosen_chain
from .photographs import Photograph
from .stage import Compared, Files, Said, Shown, preview, render, stage, write_files
from .studio import Canceled, Report, Step, Studio

# Heavy work is queued: only one visitor at a time renders or opens a photograph.
LIGHT_LIMIT, HEAVY_LIMIT = 4, 1
# gradio gives its components no type that has their events.
Component: TypeAlias = Any
# While one update is running, only the last of the waiting ones is run.
LIGHT: dict[str, Any] = {
    "concurrency_limit": LIGHT_LIMIT,
    "show_progress": "hidden",
    "trigger_mode": "always_last",
}
HEAVY: dict[str, Any] = {"concurrency_limit": HEAVY_LIMIT, "concurrency_id": "heavy"}
PRIVATE: dict[str, Any] = {"api_visibility": "private"}


@dataclass(frozen=True, eq=False)
class Shared:
    """What every panel may read.

    photograph: the state with the visitor's `Photograph`; shown: the state with the pictures (before, after), or None;
    chosen: the inputs of a preview, which are the photograph, the file of a background, the seed and every control in
    the order in which `values_from` reads them; models: the list of chosen models.
    """

    studio: Studio
    groups: Sequence[Group]
    photograph: Component
    shown: Component
    chosen: Sequence[Component]
    models: Component


@dataclass(frozen=True, eq=False)
class Updates:
    """The steps that follow a change.

    preview: the new result, from the models and `chosen`; results: its outputs; begin: the same after another
    photograph, for which the controls start elsewhere; controls: its further outputs; answer: the predictions in
    detail, which follow by themselves when the picture is settled; answers: its output.
    """

    preview: Callable[..., Any]
    results: Sequence[Component]
    begin: Callable[..., Any]
    controls: Sequence[Component]
    answer: Callable[..., Any]
    answers: Component

    def follow(self, shared: Shared, event: Component) -> None:
        """Update the controls and the result after `event`, which changed the photograph."""
        event.then(self.begin, [shared.models, *shared.chosen], [*self.controls, *self.results], **PRIVATE, **LIGHT)


@dataclass(frozen=True, eq=False)
class RenderPanel:
    """The components of the panel."""

    steps: Component
    rendering: Component
    cancel: Component
    working: Component


@dataclass(frozen=True, eq=False)
class Asked:
    """What a visitor wants to be rendered; picture: the file of a background, or None."""

    models: Sequence[str]
    photograph: Photograph
    picture: str | None
    seed: int
    chain: tuple[Edit, ...]


def render_panel() -> RenderPanel:
    """Build the panel inside the open gradio context."""
    with gr.Row():
        steps = gr.Slider(4, 100, 20, step=1, label="diffusion steps: more are better and slower", buttons=[])
        rendering = gr.Button("Render with diffusion", variant="primary", elem_id="render")
        cancel = gr.Button("Cancel", variant="stop", visible=False, elem_id="cancel-render", min_width=80)
    return RenderPanel(steps, rendering, cancel, gr.HTML(elem_id="working"))


def connect_render(
    panel: RenderPanel,
    shared: Shared,
    outputs: Sequence[Component],
    finished: Callable[[Asked, Shown, str], tuple[object, ...]],
    refused: Callable[[UserError], tuple[object, ...]],
) -> Any:
    """Connect the panel's events and return that of the rendering.

    outputs: the components of the result; finished: their values for a rendered picture and the comparison beside it;
    refused: their values if nothing could be rendered.
    """
    studio, unchanged = shared.studio, (gr.skip(),) * len(outputs)
    photograph, *others = shared.chosen

    def rendered(
        request: gr.Request, models: Sequence[str], photograph: Photograph, steps: float, *given: Any
    ) -> Iterator[tuple[object, ...]]:
        picture, seed, *flat = given
        last = Step(0, 0, 0.0)

        def told(step: Step) -> tuple[object, ...]:
            nonlocal last
            last = step
            return *unchanged, figures.progress(step, "passes"), gr.Button(visible=True)

        def work(report: Report) -> tuple[Asked, Shown, Compared]:
            chain = chosen_chain(shared.groups, picture, flat)
            asked = Asked(models, photograph, picture, int(seed or 0), chain)
            return asked, *render(studio, photograph, chain, asked.seed, int(steps), report)

        note = ""
        yield *unchanged, figures.message("Loading the network …"), gr.Button(visible=True)
        try:
            asked, made, compared = yield from studio.jobs.followed(str(request.session_hash), work, told)
            result = finished(asked, made, figures.side_by_side(compared, _prediction_lines(studio, models, compared)))
        except Canceled:
            result = unchanged
            note = f"Canceled after {last.done} of {last.total} passes. The result above is the one from before."
        except UserError as error:
            result = refused(error)
        yield *result, figures.message(note), gr.Button(visible=False)

    connect_cancel(panel.cancel, studio)
    return panel.rendering.click(
        rendered, [shared.models, photograph, panel.steps, *others], [*outputs, panel.working, panel.cancel],
        api_name="render", show_progress="hidden", **HEAVY,
    )  # fmt: skip


def connect_cancel(button: Component, studio: Studio) -> None:
    """Let the button stop the visitor's job; it does not wait in the queue behind that job."""

    def cancel(request: gr.Request) -> None:
        studio.jobs.cancel(str(request.session_hash))

    button.click(cancel, None, None, queue=False, show_progress="hidden", **PRIVATE)


def _prediction_lines(studio: Studio, models: Sequence[str], compared: Compared) -> dict[str, list[str]]:
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


@dataclass(frozen=True, eq=False)
class ResultPanel:
    """The components of the panel."""

    pictures: Component
    note: Component
    render: RenderPanel
    downloads: list[Component]


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


def results_of(panel: ResultPanel, shown: Component, compared: Component) -> list[Component]:
    """Return the outputs of `previewed` and of a rendering; shown: the state with both pictures; compared: the place
    of three pictures side by side."""
    return [panel.pictures, panel.note, shown, compared, *panel.downloads]


def connect_result(panel: ResultPanel, shared: Shared, updates: Updates) -> None:
    """Connect the panel's events."""

    def finished(asked: Asked, made: Shown, beside: str) -> tuple[object, ...]:
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
    *flat: Value,
    serial: int | None = None,
) -> tuple[object, ...]:
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
) -> tuple[object, ...]:
    photograph = asked.photograph
    files: Files | None = None if made.edited is None else write_files(made.edited, photograph, asked.picture)
    buttons = [gr.DownloadButton(value=path, interactive=path is not None) for path in (files or (None, None, None))]
    names = {edit.name for edit in asked.chain}
    unchanged = [group.edit for group in shown if group.edit not in names]
    said = _predictions(studio, asked.models, made)
    markup = stage(photograph, made, caption, said, asked.chain, unchanged, asked.seed, serial)
    return markup, figures.message(made.note), (made.before, made.after), beside, *buttons


def _predictions(studio: Studio, models: Sequence[str], made: Shown) -> list[Said]:
    """Return the predictions of the models that can be opened; the others are named with the predictions."""
    said = []
    for name in models:
        with suppress(UserError):
            said.append(Said(name, *studio.answers(name, (made.before, made.after))))
    return said


def nothing(error: UserError) -> tuple[object, ...]:
    """Return the outputs of `results_of` that leave the pictures as they are and say what was wrong."""
    closed = [gr.DownloadButton(value=None, interactive=False) for _ in range(3)]
    return gr.skip(), figures.message(f"Not updated: {error}", "old"), gr.skip(), gr.skip(), *closed
