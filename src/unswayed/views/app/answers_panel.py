"""The panel of the predictions: each chosen model's five most likely classes, and heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from unswayed.errors import UserError
from unswayed.labels import imagenet

from . import figures
from .events import LIGHT, PRIVATE, Shared, Updates
from .photographs import Photograph
from .studio import Studio


@dataclass(frozen=True, eq=False)
class AnswersPanel:
    """The components of the panel."""

    models: Any
    answers: Any


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


def answered(studio: Studio, photograph: Photograph, shown: Any, models: Sequence[str]) -> str:
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
