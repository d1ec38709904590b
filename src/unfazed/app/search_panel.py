"""The panel of the search for the smallest change that changes the prediction."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from unfazed.errors import UserError

from . import figures
from .controls import Group, chosen_chain
from .events import HEAVY, Shared
from .photographs import Photograph
from .smallest import directions, find_smallest
from .studio import Studio


@dataclass(frozen=True, eq=False)
class SearchPanel:
    """The components of the panel."""

    direction: Any
    means: Any
    searching: Any
    found: Any


def search_panel() -> SearchPanel:
    """Build the panel inside the open gradio context."""
    gr.HTML("<h2>4 · The smallest change that changes the prediction</h2>")
    with gr.Row():
        direction = gr.Dropdown(list(directions()), value=next(iter(directions())), label="change to try")
        means = gr.Radio(["paste preview", "diffusion"], value="paste preview", label="rendered by")
    searching = gr.Button("Find the smallest change", elem_id="search")
    return SearchPanel(direction, means, searching, gr.HTML(elem_id="found"))


def connect_search(panel: SearchPanel, shared: Shared, steps: Any) -> None:
    """Connect the panel's events; steps: the component with the number of diffusion steps."""
    photograph, *others = shared.chosen
    panel.searching.click(
        functools.partial(searched, shared.studio, shared.groups),
        [photograph, panel.direction, panel.means, shared.models, steps, *others], panel.found,
        api_name="smallest_change", show_progress_on=panel.found, **HEAVY,
    )  # fmt: skip


def searched(
    studio: Studio,
    shown: Sequence[Group],
    photograph: Photograph,
    direction: str,
    means: str,
    models: Sequence[str],
    steps: float,
    picture: str | None,
    seed: float,
    *flat: Any,
    progress: Any = gr.Progress(),
) -> str:
    """Return the smallest change of that direction for the first chosen model, or why there is none."""
    try:
        if not models:
            raise UserError("no model is chosen", allowed="one of the list of models")
        found = find_smallest(
            studio,
            models[0],
            photograph,
            directions()[direction],
            chosen_chain(shown, picture, flat),
            seed=int(seed or 0),
            steps=int(steps) if means == "diffusion" else None,
            progress=lambda done, all: progress((done, all), unit="levels"),
        )
    except UserError as error:
        return figures.message(str(error), "problem")
    return figures.found_markup(found, models[0])
