"""The panel of the photograph: a sample or an upload, the mask of its object, its true class."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import gradio as gr
from markupsafe import Markup

from unswayed.errors import UserError
from unswayed.labels import imagenet
from unswayed.masks.settings import parse_box

from . import figures
from .controls import PRESETS, Group, Preset, preset_flat
from .photographs import (
    Photograph,
    found_by,
    marked,
    open_sample,
    open_upload,
    own_mask,
    read_once,
    sample_names,
    uploaded_mask,
)
from .result_panel import HEAVY, LIGHT, PRIVATE, Component, Shared, Updates
from .studio import Studio

UNKNOWN = -1
# A press on a thumbnail chooses its photograph; the component's value is the name.
CHOOSE = """
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-sample]");
  if (button) { props.value = button.dataset.sample; trigger("input"); }
});
"""


@dataclass(frozen=True, eq=False)
class PhotographPanel:
    """The components of the panel."""

    sample: Component
    upload: Component
    problem: Component
    marker: Component
    automatic: Component
    given: Component
    mask: Component
    box: Component
    label: Component


def photograph_panel(studio: Studio) -> PhotographPanel:
    """Build the panel inside the open gradio context."""
    gr.HTML("<h2>1 · Photograph</h2>")
    sample = gr.HTML(PRESETS[0].sample, html_template=_thumbnails(), js_on_load=CHOOSE, elem_id="sample")
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


def preset_buttons() -> list[Component]:
    """Build one button for each preset inside the open gradio context."""
    with gr.Row(elem_id="presets"):
        return [gr.Button(preset.title, size="sm", min_width=80) for preset in PRESETS]


def connect_photograph(
    page: Component, panel: PhotographPanel, presets: list[Component], shared: Shared, updates: Updates
) -> None:
    """Connect the panel's events: each opens a photograph or changes its mask, and updates the result."""
    studio = shared.studio
    opened = [shared.photograph, panel.problem, panel.marker, panel.label]
    openings: list[tuple[Any, Callable[..., Photograph], list[Component], str]] = [
        (panel.sample.input, lambda _, name: open_sample(name), [panel.sample], "open_sample"),
        (panel.upload.upload, functools.partial(_open_upload, studio), [panel.upload], "open_photograph"),
        (panel.automatic.click, lambda photograph: found_by(photograph, studio.segmenter), [], "find_object"),
        (panel.given.click, own_mask, [], "own_mask"),
        (panel.mask.upload, uploaded_mask, [panel.mask], "upload_mask"),
        (
            panel.box.submit,
            lambda photograph, text: found_by(photograph, studio.segmenter, parse_box(text)),
            [panel.box],
            "find_in_box",
        ),
        (panel.label.input, _labelled, [panel.label], "true_class"),
    ]
    for event, action, inputs, name in openings:
        updates.follow(shared, event(_opening(action), [shared.photograph, *inputs], opened, api_name=name, **HEAVY))
    for button, preset in zip(presets, PRESETS, strict=True):
        event = button.click(
            functools.partial(_open_preset, shared.groups, preset),
            None,
            [*opened, panel.sample, *updates.controls],
            **PRIVATE,
            **HEAVY,
        )
        updates.follow(shared, event)
    # Clear the upload field for the next photograph.
    panel.upload.upload(None, None, panel.upload, js="() => null", **PRIVATE)

    def mark(photograph: Photograph, event: gr.EventData) -> tuple[object, ...]:
        return _marked(studio, photograph, event)

    updates.follow(shared, panel.marker.select(mark, [shared.photograph], opened, **PRIVATE, **HEAVY))
    updates.follow(shared, page.load(_begun, [shared.photograph], opened, **PRIVATE, **LIGHT))


def _thumbnails() -> str:
    """Return the sample photographs as buttons; the template marks the one whose name is the value."""
    shown = []
    for name in sample_names():
        image, _ = read_once(open_sample(name).path)
        picture = figures.tag("img", src=figures.data_address(image, 96), alt=name.replace("_", " "))
        pressed = f"${{value === '{name}'}}"
        shown.append(figures.tag("button", picture, type="button", data_sample=name, aria_pressed=Markup(pressed)))
    return figures.tag("div", *shown, class_="samples", role="group", aria_label="sample photographs")


def _open_upload(studio: Studio, photograph: Photograph, path: str | None) -> Photograph:
    return photograph if path is None else open_upload(path, studio.segmenter)


def _open_preset(shown: Sequence[Group], preset: Preset) -> tuple[object, ...]:
    return (*_begun(open_sample(preset.sample)), preset.sample, *preset_flat(shown, preset))


def _labelled(photograph: Photograph, label: int | None) -> Photograph:
    return replace(photograph, label=None if label is None or label < 0 else int(label))


def _begun(photograph: Photograph) -> tuple[Photograph, object, object, object]:
    label = UNKNOWN if photograph.label is None else photograph.label
    return photograph, figures.message(""), figures.marker(photograph), label


def _opening(action: Callable[..., Photograph]) -> Callable[..., tuple[Photograph, object, object, object]]:
    """Return the action as an event: the new photograph, or the previous one and what was wrong."""

    def event(photograph: Photograph, *given: Any) -> tuple[Photograph, object, object, object]:
        try:
            return _begun(action(photograph, *given))
        except UserError as error:
            return photograph, figures.message(str(error), "problem"), gr.skip(), gr.skip()

    return event


def _marked(studio: Studio, photograph: Photograph, event: gr.EventData) -> tuple[object, ...]:
    mark = {name: getattr(event, name, None) for name in ("box", "paint", "add", "undo")}
    begun = _opening(lambda photograph: marked(photograph, mark, studio.segmenter))(photograph)
    # The stroke is drawn over the old picture, which is shown again if the stroke had no effect.
    return (*begun[:2], figures.marker(begun[0]), begun[3])
