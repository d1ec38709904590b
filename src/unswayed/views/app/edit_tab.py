"""The Edit tab: a function for each panel that places its components and connects their events."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gradio as gr
from markupsafe import Markup

from unswayed.errors import UserError
from unswayed.labels import imagenet
from unswayed.masks.settings import parse_box

from . import figures
from .controls import PRESETS, Preset, preset_flat
from .editor import HEAVY, LIGHT, PRIVATE, Component, Editor, script
from .films import search_panel
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
from .studio import Studio

UNKNOWN = -1
# A press on a thumbnail chooses its photograph; the component's value is the name.
CHOOSE = """
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-sample]");
  if (button) { props.value = button.dataset.sample; trigger("input"); }
});
"""


def edit_tab(page: Component, studio: Studio) -> None:
    """Build the tab inside the open gradio context: the result in a column that stays in sight, the rest beside it."""
    editor = Editor(studio)
    with gr.Row():
        with gr.Column(scale=5, min_width=320, elem_id="stage"):
            with gr.Row(elem_id="presets"):
                presets = [gr.Button(preset.title, size="sm", min_width=80) for preset in PRESETS]
            result_panel(editor)
        with gr.Column(scale=7, min_width=320):
            with gr.Row():
                with gr.Column(min_width=280):
                    photograph_panel(page, editor, presets)
                with gr.Column(min_width=280):
                    changes_panel(editor)
            editor.compared.render()
            answers_panel(editor)
            search_panel(editor)


def result_panel(editor: Editor) -> None:
    """The picture of the stage, the rendering with diffusion, downloads."""
    editor.pictures.render()
    editor.note.render()
    with gr.Row():
        editor.steps.render()
        rendering = gr.Button("Render with diffusion", variant="primary", elem_id="render")
        cancel = editor.cancel_button("cancel-render")
    working = gr.HTML(elem_id="working")
    with gr.Row():
        for button in editor.downloads:
            button.render()
    gr.HTML("<p class='quiet'>The record makes the same bytes again: unswayed edit PHOTO --replay RECORD.json</p>")

    models, photograph, *others = editor.given
    given, outputs = [models, photograph, editor.steps, *others], [*editor.results, working, cancel]
    rendering.click(editor.rendered, given, outputs, api_name="render", show_progress="hidden", **HEAVY)
    # The picture is settled once nothing new has come for a moment, so that no heat map slows a drag.
    seen = [editor.photograph, editor.shown, editor.models]
    editor.pictures.settled(editor.answered, seen, editor.answers, **PRIVATE, **LIGHT)
    # What a handle wants is read when the event starts: of the events that wait, only the last one is run.
    wanted, latest = gr.Textbox(visible=False), "(...given) => [window.unswayedWanted, ...given.slice(1)]"
    changed = [*editor.flat, *editor.results]
    editor.pictures.input(editor.dragged, [wanted, *editor.given], changed, js=latest, **PRIVATE, **LIGHT)
    editor.pictures.select(editor.reset, editor.given, [editor.seed, *changed], show_progress="hidden", **PRIVATE)


def changes_panel(editor: Editor) -> None:
    """A switch and the controls of every edit, which handles, chips and presets set as well."""
    gr.HTML("<h2>2 · Changes</h2>")
    moved: list[tuple[Component, Component]] = []
    for group, (switch, *controls) in zip(editor.groups, editor.parts, strict=True):
        with gr.Accordion(group.edit, open=group.edit == "size"):
            for component in (switch, *controls):
                component.render()
            if group.edit == editor.picture.elem_id:
                editor.picture.render()
        moved += [(control, switch) for control in controls]
    editor.seed.render()

    switched = [*(switch.input for switch, *_ in editor.parts), editor.picture.change, editor.seed.input]
    gr.on(switched, editor.previewed, editor.given, editor.results, api_name="preview", **LIGHT)
    for control, switch in moved:
        # Moving a slider also switches its edit on.
        on = f"(...given) => {{ given[{editor.given.index(switch)}] = true; return given; }}"
        control.input(editor.previewed, editor.given, editor.results, js=on, **PRIVATE, **LIGHT)
        control.input(None, None, switch, js="() => true", **PRIVATE)


def answers_panel(editor: Editor) -> None:
    """The predictions of the chosen models, which are also those of the answer on the picture."""
    gr.HTML("<h2>3 · Predictions</h2>")
    editor.models.render()
    editor.answers.render()
    seen = [editor.photograph, editor.shown, editor.models]
    editor.models.input(editor.answered, seen, editor.answers, api_name="answers", **LIGHT)
    editor.models.input(editor.previewed, editor.given, editor.results, **PRIVATE, **LIGHT)


def photograph_panel(page: Component, editor: Editor, presets: list[Component]) -> None:
    """A sample or an upload, the mask of its object, its true class; every event opens a photograph or changes it."""
    segmenter, better = editor.studio.segmenter, editor.studio.better
    gr.HTML("<h2>1 · Photograph</h2>")
    sample: Component = gr.HTML(PRESETS[0].sample, html_template=_thumbnails(), js_on_load=CHOOSE, elem_id="sample")
    upload = gr.File(label="or drop your own photograph (up to 50 MB)", elem_id="upload", height=150)
    problem = gr.HTML(figures.message(""), elem_id="problem")
    marker: Component = gr.HTML(elem_id="marker", js_on_load=script("marker.js"))
    with gr.Row():
        automatic = gr.Button("Find the object", size="sm", elem_id="find-object")
        given = gr.Button("Use the sample's own mask", size="sm", elem_id="own-mask")
        mask = gr.UploadButton("Upload a mask", size="sm", elem_id="upload-mask")
    if better is not None:
        gr.HTML(figures.better_masks(better), elem_id="better-masks")
    with gr.Accordion("More about the object", open=False):
        box = gr.Textbox(label="box around it, in pixels of the photograph: X,Y,W,H", max_lines=1)
        label = gr.Dropdown(
            [("unknown", UNKNOWN), *((name, index) for index, name in enumerate(imagenet().classes))],
            value=UNKNOWN,
            label="its true class in ImageNet",
            info="marked in the predictions; needed for an adversarial background",
        )

    def opened_upload(photograph: Photograph, path: str | None) -> Photograph:
        return photograph if path is None else open_upload(path, segmenter)

    def labeled(photograph: Photograph, chosen: int | None) -> Photograph:
        return replace(photograph, label=None if chosen is None or chosen < 0 else int(chosen))

    def mark(photograph: Photograph, event: gr.EventData) -> tuple[object, ...]:
        drawn = {name: getattr(event, name, None) for name in ("box", "paint", "add", "undo")}
        begun = _opening(lambda photograph: marked(photograph, drawn, segmenter))(photograph)
        # The stroke is drawn over the old picture, which is shown again if the stroke had no effect.
        return (*begun[:2], figures.marker(begun[0]), begun[3])

    opened = [editor.photograph, problem, marker, label]
    openings: list[tuple[Any, Callable[..., Photograph], list[Component], str]] = [
        (sample.input, lambda _, name: open_sample(name), [sample], "open_sample"),
        (upload.upload, opened_upload, [upload], "open_photograph"),
        (automatic.click, lambda photograph: found_by(photograph, segmenter), [], "find_object"),
        (given.click, own_mask, [], "own_mask"),
        (mask.upload, uploaded_mask, [mask], "upload_mask"),
        (box.submit, lambda shown, text: found_by(shown, segmenter, parse_box(text)), [box], "find_in_box"),
        (label.input, labeled, [label], "true_class"),
    ]
    for event, action, inputs, name in openings:
        editor.follow(event(_opening(action), [editor.photograph, *inputs], opened, api_name=name, **HEAVY))
    for button, preset in zip(presets, PRESETS, strict=True):
        begin = functools.partial(_open_preset, editor, preset)
        editor.follow(button.click(begin, None, [*opened, sample, *editor.flat], **PRIVATE, **HEAVY))
    # Clear the upload field for the next photograph.
    upload.upload(None, None, upload, js="() => null", **PRIVATE)
    editor.follow(marker.select(mark, [editor.photograph], opened, **PRIVATE, **HEAVY))
    editor.follow(page.load(_begun, [editor.photograph], opened, **PRIVATE, **LIGHT))


def _thumbnails() -> str:
    """Return the sample photographs as buttons; the template marks the one whose name is the value."""
    shown = []
    for name in sample_names():
        image, _ = read_once(open_sample(name).path)
        picture = figures.tag("img", src=figures.data_address(image, 96), alt=name.replace("_", " "))
        pressed = Markup(f"${{value === '{name}'}}")
        shown.append(figures.tag("button", picture, type="button", data_sample=name, aria_pressed=pressed))
    return figures.tag("div", *shown, class_="samples", role="group", aria_label="sample photographs")


def _open_preset(editor: Editor, preset: Preset) -> tuple[object, ...]:
    return (*_begun(open_sample(preset.sample)), preset.sample, *preset_flat(editor.groups, preset))


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
