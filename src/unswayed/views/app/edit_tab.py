"""The Edit tab: its panels, placed and connected, and the panel of the predictions.

A panel is a module with the components of one subject, a function that builds them and one that connects their events.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import gradio as gr

from unswayed.errors import UserError
from unswayed.labels import imagenet

from . import figures
from .changes_panel import begun, changes_panel, connect_changes
from .controls import PRESETS, groups, preset_flat
from .films import connect_search, search_panel
from .photograph_panel import connect_photograph, photograph_panel, preset_buttons
from .photographs import Photograph, open_sample
from .result_panel import (
    LIGHT,
    PRIVATE,
    Component,
    Shared,
    Updates,
    connect_result,
    previewed,
    result_panel,
    results_of,
)
from .studio import Studio


@dataclass(frozen=True, eq=False)
class AnswersPanel:
    """The components of the panel."""

    models: Component
    answers: Component


def answers_panel(studio: Studio) -> AnswersPanel:
    """Build the panel inside the open gradio context."""
    gr.HTML("<h2>3 · Predictions</h2>")
    models = gr.Dropdown(
        list(studio.models), value=[studio.models[0]], multiselect=True, label="models", elem_id="models"
    )
    return AnswersPanel(models, gr.HTML(elem_id="answers"))


def connect_answers(panel: AnswersPanel, shared: Shared, updates: Updates) -> None:
    """Connect the panel's events."""
    given = [shared.photograph, shared.shown, panel.models]
    panel.models.input(updates.answer, given, panel.answers, api_name="answers", **LIGHT)
    # The answer on the picture is that of the chosen models too.
    panel.models.input(updates.preview, [shared.models, *shared.chosen], updates.results, **PRIVATE, **LIGHT)


def answered(studio: Studio, photograph: Photograph, shown: Component, models: Sequence[str]) -> str:
    """Return the predictions of the models for both pictures that are shown."""
    if shown is None:
        return figures.message("")
    if not models:
        return figures.message("Choose a model to see its predictions.")
    parts = []
    for name in models:
        try:
            before, after = studio.answers(name, shown)
            truth = photograph.label if studio.model(name).labels == imagenet() else None
            warm = studio.heat(name, shown, [before.best, after.best])
        except UserError as error:
            parts.append(figures.message(f"{name}: {error}", "problem"))
            continue
        parts.append(figures.answer_bars(name, before, after, truth))
        parts.append(figures.heat_pair(name, warm, [before.names[0], after.names[0]]))
    return figures.joined(parts)


def edit_tab(page: Component, studio: Studio) -> None:
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
