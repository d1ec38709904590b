"""The Browse and Compare tabs: gradio components for `results.Results`."""

from __future__ import annotations

from typing import Any

import gradio as gr

from unswayed.errors import UserError

from . import figures
from .editor import data, script
from .results import Filter, Results
from .studio import Studio

ALL = "all"


def browse_tab(tab: Any, studio: Studio, results: Results) -> None:
    """Fill the tab with flips under three filters, and one flip enlarged with its heat maps."""
    gr.HTML(figures.message(results.note))
    with gr.Row():
        model = gr.Dropdown([ALL, *results.models], value=ALL, label="model", elem_id="browse-model")
        edit = gr.Dropdown(
            [ALL, *((results.words[name], name) for name in results.edits)],
            value=ALL,
            label="edit",
            elem_id="browse-edit",
        )
        label = gr.Dropdown([ALL, *results.classes], value=ALL, label="class", elem_id="browse-class")
    large = gr.HTML(elem_id="flip")
    listing = gr.HTML(elem_id="flips", js_on_load=script("flips.js"))
    filters = [model, edit, label]

    def asked(model: str, edit: str, label: str) -> Filter:
        number = None if label == ALL else results.classes[label]
        return Filter(None if model == ALL else model, None if edit == ALL else edit, number)

    def listed(model: str, edit: str, label: str) -> tuple[str, str]:
        try:
            return figures.flips_list(results, results.flips(asked(model, edit, label))), ""
        except UserError as error:
            return figures.message(str(error), "problem"), ""

    def opened(model: str, edit: str, label: str, event: gr.EventData) -> str:
        flips = results.flips(asked(model, edit, label))
        place = getattr(event, "place", None)
        if flips is None or not isinstance(place, int) or not 0 <= place < len(flips.shown):
            return figures.message("That flip is not in the list.", "problem")
        flip = flips.shown[place]
        return figures.flip_markup(results, flip, *results.warm_pair(studio, flip))

    limits: dict[str, Any] = {"concurrency_limit": 2}
    # The pictures of the list are only made for visitors who look at them.
    tab.select(listed, filters, [listing, large], api_visibility="private", **limits)
    gr.on([component.input for component in filters], listed, filters, [listing, large], api_name="flips", **limits)
    listing.select(opened, filters, large, api_visibility="private", **limits)


def compare_tab(tab: Any, results: Results) -> None:
    """Fill the tab that compares two models on the same photographs."""
    gr.HTML(figures.message(results.note))
    if len(results.models) < 2:
        gr.HTML(figures.message("There is only one model in these predictions: evaluate a second one to compare."))
        return
    with gr.Row():
        first = gr.Dropdown(results.models, value=results.models[0], label="first model", elem_id="first")
        second = gr.Dropdown(results.models, value=results.models[-1], label="second model", elem_id="second")
    problem = gr.HTML(figures.message(""))
    drawn: dict[str, Any] = {"html_template": "<div class='comparison'></div>", "js_on_load": script("compare.js")}
    chart = gr.HTML("null", elem_id="comparison", **drawn)

    def compared(first: str, second: str) -> tuple[str, str]:
        try:
            return data(results.comparison(first, second)), figures.message("")
        except UserError as error:
            return "null", figures.message(str(error), "problem")

    shown = [chart, problem]
    tab.select(compared, [first, second], shown, api_visibility="private", concurrency_limit=1)
    gr.on([first.input, second.input], compared, [first, second], shown, api_name="compare", concurrency_limit=1)
