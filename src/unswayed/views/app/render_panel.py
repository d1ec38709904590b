"""The panel that renders with diffusion: its steps, its progress, Cancel, and three pictures to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from unswayed.edits import Edit
from unswayed.errors import UserError
from unswayed.views.text import percent

from . import figures
from .controls import chosen_chain
from .events import HEAVY, PRIVATE, Shared
from .jobs import Canceled, Report, Step
from .photographs import Photograph
from .preview import Compared, Shown, render
from .studio import Studio


@dataclass(frozen=True, eq=False)
class RenderPanel:
    """The components of the panel."""

    steps: Any
    rendering: Any
    cancel: Any
    working: Any


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
    outputs: Sequence[Any],
    finished: Callable[[Asked, Shown, str], tuple[Any, ...]],
    refused: Callable[[UserError], tuple[Any, ...]],
) -> Any:
    """Connect the panel's events and return that of the rendering.

    outputs: the components of the result; finished: their values for a rendered picture and the comparison beside it;
    refused: their values if nothing could be rendered.
    """
    studio, unchanged = shared.studio, (gr.skip(),) * len(outputs)
    photograph, *others = shared.chosen

    def rendered(request: gr.Request, models: Any, photograph: Photograph, steps: float, *given: Any) -> Iterator[Any]:
        picture, seed, *flat = given
        last = Step(0, 0, 0.0)

        def told(step: Step) -> tuple[Any, ...]:
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
            result = finished(asked, made, figures.side_by_side(compared, _said(studio, models, compared)))
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


def connect_cancel(button: Any, studio: Studio) -> None:
    """Let the button stop the visitor's job; it does not wait in the queue behind that job."""

    def cancel(request: gr.Request) -> None:
        studio.jobs.cancel(str(request.session_hash))

    button.click(cancel, None, None, queue=False, show_progress="hidden", **PRIVATE)


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
