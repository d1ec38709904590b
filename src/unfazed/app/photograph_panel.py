"""The panel of the photograph: a sample or an upload, the mask of its object, its true class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import gradio as gr

from unfazed.errors import UserError
from unfazed.labels import imagenet
from unfazed.sources.segment import parse_box

from . import figures
from .events import HEAVY, LIGHT, PRIVATE, Shared, Updates
from .photographs import Photograph, found_by, marked, open_sample, open_upload, own_mask, sample_names, uploaded_mask
from .studio import Studio

FIRST_SAMPLE = "koala"
UNKNOWN = -1


@dataclass(frozen=True, eq=False)
class PhotographPanel:
    """The components of the panel."""

    sample: Any
    upload: Any
    problem: Any
    marker: Any
    automatic: Any
    given: Any
    mask: Any
    box: Any
    label: Any


def photograph_panel(studio: Studio) -> PhotographPanel:
    """Build the panel inside the open gradio context."""
    gr.HTML("<h2>1 · Photograph</h2>")
    sample = gr.Dropdown(list(sample_names()), value=FIRST_SAMPLE, label="a sample photograph", elem_id="sample")
    upload = gr.File(label="or drop your own photograph (up to 50 MB)", elem_id="upload", height=150)
    problem = gr.HTML(figures.message(""), elem_id="problem")
    script = resources.files(__package__).joinpath("marker.js").read_text(encoding="utf-8")
    marker = gr.HTML(elem_id="marker", js_on_load=script)
    with gr.Row():
        automatic = gr.Button("Find the object", size="sm", elem_id="find-object")
        given = gr.Button("Use the sample's own mask", size="sm", elem_id="own-mask")
        mask = gr.UploadButton("Upload a mask", size="sm", elem_id="upload-mask")
    if studio.better is not None:
        gr.HTML(figures.better_masks(studio.better), elem_id="better-masks")
    with gr.Accordion("More about the object", open=False):
        box = gr.Textbox(label="box around it, in pixels of the photograph: X,Y,W,H", max_lines=1)
        label = gr.Dropdown(
            [("unknown", UNKNOWN), *((name, index) for index, name in enumerate(imagenet().classes))],
            value=UNKNOWN,
            label="its true class in ImageNet",
            info="marked in the predictions; needed for an adversarial background",
        )
    return PhotographPanel(sample, upload, problem, marker, automatic, given, mask, box, label)


def connect_photograph(page: Any, panel: PhotographPanel, shared: Shared, updates: Updates) -> None:
    """Connect the panel's events: each opens a photograph or changes its mask, and updates the result."""
    studio = shared.studio
    opened = [shared.photograph, panel.problem, panel.marker, panel.label]
    openings: list[tuple[Any, Callable[..., Photograph], list[Any], str]] = [
        (panel.sample.input, lambda _, name: open_sample(name), [panel.sample], "open_sample"),
        (panel.upload.upload, functools.partial(_open_upload, studio), [panel.upload], "open_photograph"),
        (panel.automatic.click, lambda one: found_by(one, studio.segmenter), [], "find_object"),
        (panel.given.click, own_mask, [], "own_mask"),
        (panel.mask.upload, uploaded_mask, [panel.mask], "upload_mask"),
        (
            panel.box.submit,
            lambda one, text: found_by(one, studio.segmenter, parse_box(text)),
            [panel.box],
            "find_in_box",
        ),
        (panel.label.input, _labelled, [panel.label], "true_class"),
    ]
    for event, action, inputs, name in openings:
        updates.follow(shared, event(_opening(action), [shared.photograph, *inputs], opened, api_name=name, **HEAVY))
    # Clear the upload field for the next photograph.
    panel.upload.upload(None, None, panel.upload, js="() => null", **PRIVATE)

    def mark(photograph: Photograph, event: gr.EventData) -> tuple[Any, ...]:
        return _marked(studio, photograph, event)

    updates.follow(shared, panel.marker.select(mark, [shared.photograph], opened, **PRIVATE, **HEAVY))
    updates.follow(shared, page.load(_begun, [shared.photograph], opened, **PRIVATE, **LIGHT))


def _open_upload(studio: Studio, photograph: Photograph, path: str | None) -> Photograph:
    return photograph if path is None else open_upload(path, studio.segmenter)


def _labelled(photograph: Photograph, label: int | None) -> Photograph:
    return replace(photograph, label=None if label is None or label < 0 else int(label))


def _begun(photograph: Photograph) -> tuple[Any, ...]:
    label = UNKNOWN if photograph.label is None else photograph.label
    return photograph, figures.message(""), figures.marker(photograph), label


def _opening(action: Callable[..., Photograph]) -> Callable[..., tuple[Any, ...]]:
    """Return the action as an event: the new photograph, or the previous one and what was wrong."""

    def event(photograph: Photograph, *given: Any) -> tuple[Any, ...]:
        try:
            return _begun(action(photograph, *given))
        except UserError as error:
            return photograph, figures.message(str(error), "problem"), gr.skip(), gr.skip()

    return event


def _marked(studio: Studio, photograph: Photograph, event: gr.EventData) -> tuple[Any, ...]:
    mark = {name: getattr(event, name, None) for name in ("box", "paint", "add", "undo")}
    begun = _opening(lambda one: marked(one, mark, studio.segmenter))(photograph)
    # The stroke is drawn over the old picture, which is shown again if the stroke had no effect.
    return (*begun[:2], figures.marker(begun[0]), begun[3])
