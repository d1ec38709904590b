"""The Edit tab: its panels, placed and connected.

A panel is a module with the components of one subject, a function that builds them and one that connects their events.
"""

from __future__ import annotations

import functools
from typing import Any

import gradio as gr

from .answers_panel import answered, answers_panel, connect_answers
from .changes_panel import begun, changes_panel, connect_changes
from .controls import groups
from .events import Shared, Updates
from .photograph_panel import connect_photograph, photograph_panel, preset_buttons
from .photographs import open_sample
from .presets import PRESETS, preset_flat
from .result_panel import connect_result, previewed, result_panel, results_of
from .search_panel import connect_search, search_panel
from .studio import Studio


def edit_tab(page: Any, studio: Studio) -> None:
    """Build the tab inside the open gradio context: the result in a column that stays in sight, the rest beside it."""
    shown_groups, first = groups(), open_sample(PRESETS[0].sample)
    with gr.Row():
        with gr.Column(scale=5, min_width=320, elem_id="stage"):
            presets = preset_buttons()
            result = result_panel()
        with gr.Column(scale=7, min_width=320):
            with gr.Row():
                with gr.Column(min_width=280):
                    photographed = photograph_panel(studio)
                with gr.Column(min_width=280):
                    changes = changes_panel(shown_groups, first, preset_flat(shown_groups, PRESETS[0]))
            compared = gr.HTML(elem_id="compared")
            predictions = answers_panel(studio)
            search = search_panel()

    photograph = gr.State(first, time_to_live=7200)
    shown = gr.State(None, time_to_live=7200)
    chosen = [photograph, changes.picture, changes.seed, *changes.flat]
    shared = Shared(studio, shown_groups, photograph, shown, chosen, predictions.models)
    updates = Updates(
        functools.partial(previewed, studio, shown_groups),
        results_of(result, shown, compared),
        functools.partial(begun, studio, shown_groups),
        changes.flat,
        functools.partial(answered, studio),
        predictions.answers,
    )
    connect_photograph(page, photographed, presets, shared, updates)
    connect_changes(changes, result.pictures, shared, updates)
    connect_result(result, shared, updates)
    connect_answers(predictions, shared, updates)
    connect_search(search, shared, result.render.steps)
