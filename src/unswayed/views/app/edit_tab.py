"""The tabs Edit, Browse and Compare: functions that place components and connect their events."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import gradio as gr

from unswayed.errors import UserError
from unswayed.labels import imagenet
from unswayed.masks import parse_box

from . import figures
from .controls import PRESETS, Preset, preset_flat
from .editor import HEAVY, LIGHT, PRIVATE, Component, Editor, EditorInputs, Updates, data, script
from .films import SearchPanel
from .photographs import (
    Photograph,
    found_by,
    marked,
    open_sample,
    open_upload,
    read_once,
    sample_names,
    uploaded_mask,
)
from .results import Filter, Results
from .studio import Studio

UNKNOWN = -1


def edit_tab(page: Component, studio: Studio) -> None:
    """Build the tab inside the open gradio context: the picture in a column that stays in sight, beside it answers and
    the smallest change, below them the controls."""
    editor = Editor(studio)
    pictures = {name: read_once(open_sample(name).path)[0] for name in sample_names()}
    # The template marks the button whose name is the value.
    thumbnails = figures.drawn("thumbnails", pictures=pictures)
    sample: Component = gr.HTML(
        editor.begin.sample, html_template=thumbnails, js_on_load=script("choose.js"), elem_id="sample"
    )
    with gr.Row():
        with gr.Column(scale=5, min_width=320, elem_id="stage"):
            result_panel(editor)
        with gr.Column(scale=7, min_width=320):
            # The predictions of the chosen models, which are also those of the answer on the picture.
            editor.models.render()
            editor.answers.render()
            SearchPanel(editor)
            editor.compared.render()
            gr.HTML("<h2>Examples</h2>")
            with gr.Row(elem_id="presets"):
                presets = [gr.Button(preset.title, size="sm", min_width=140) for preset in PRESETS]
            with gr.Row():
                with gr.Column(min_width=280):
                    accordions = changes_panel(editor)
                with gr.Column(min_width=280):
                    begun, opened = photograph_panel(page, editor, sample)

    editor.models.input(editor.answered, editor.seen, editor.answers, api_name="answers", **LIGHT)
    editor.models.input(editor.previewed, editor.given, editor.results, **PRIVATE, **LIGHT)

    def preset_opened(preset: Preset) -> Updates:
        sections = (gr.Accordion(open=group.edit in preset.values) for group in editor.groups)
        updates = {**begun(open_sample(preset.sample)), sample: preset.sample}
        values = editor.set_to(preset_flat(editor.groups, preset))
        return {**updates, **values, **dict(zip(accordions, sections, strict=True))}

    for button, preset in zip(presets, PRESETS, strict=True):
        begin = functools.partial(preset_opened, preset)
        editor.follow(button.click(begin, None, [*opened, *accordions], **PRIVATE, **HEAVY))


def result_panel(editor: Editor) -> None:
    """The picture of the stage, the rendering with diffusion, downloads."""
    editor.pictures.render()
    editor.note.render()
    with gr.Row():
        rendering = gr.Button("Render with diffusion", variant="primary", elem_id="render", scale=3)
        cancel = editor.cancel_button("cancel-render")
    working = gr.HTML(elem_id="working")
    with gr.Accordion("Steps and downloads", open=False, elem_id="downloads"):
        editor.steps.render()
        with gr.Row():
            for button in editor.downloads:
                button.render()
        gr.HTML("<p class='quiet'>The record makes the same bytes again: unswayed edit PHOTO --replay RECORD.json</p>")

    models, photograph, *others = editor.given
    given, outputs = [models, photograph, editor.steps, *others], [*editor.results, working, cancel]

    def rendered(
        request: gr.Request, models: Sequence[str], photograph: Photograph, steps: float, *others: Any
    ) -> Iterator[Updates]:
        work = functools.partial(editor.rendered, EditorInputs.of(models, photograph, *others), int(steps))
        canceled = "Canceled after {0.done} of {0.total} passes. The result above is the one from before."
        yield from editor.followed(request, work, working, cancel, "passes", "Loading the network …", canceled)

    rendering.click(rendered, given, outputs, api_name="render", show_progress="hidden", **HEAVY)
    # The picture is settled once nothing new has come for a moment, so that no heat map slows a drag.
    editor.pictures.settled(editor.answered, editor.seen, editor.answers, **PRIVATE, **LIGHT)
    # What a handle wants is read when the event starts: of the events that wait, only the last one is run.
    wanted, latest = gr.Textbox(visible=False), "(...given) => [window.unswayedWanted, ...given.slice(1)]"
    changed = [*editor.flat, *editor.results]
    editor.pictures.input(editor.dragged, [wanted, *editor.given], changed, js=latest, **PRIVATE, **LIGHT)
    editor.pictures.select(editor.reset, editor.given, [editor.seed, *changed], show_progress="hidden", **PRIVATE)


def changes_panel(editor: Editor) -> list[Component]:
    """A switch and the controls of every edit, which handles, chips and presets set as well; return the accordions."""
    gr.HTML("<h2>Changes</h2>")
    accordions: list[Component] = []
    for group, (switch, *controls) in zip(editor.groups, editor.parts, strict=True):
        with gr.Accordion(group.edit.replace("-", " "), open=group.edit in editor.begin.values) as accordion:
            for component in (switch, *controls):
                component.render()
            if group.edit == editor.picture.elem_id:
                editor.picture.render()
        accordions.append(accordion)
    editor.seed.render()

    switched = [*(switch.input for switch, *_ in editor.parts), editor.picture.change, editor.seed.input]
    gr.on(switched, editor.previewed, editor.given, editor.results, api_name="preview", **LIGHT)
    for switch, *controls in editor.parts:
        # Moving a slider also switches its edit on.
        on = f"(...given) => {{ given[{editor.given.index(switch)}] = true; return given; }}"
        for control in controls:
            control.input(editor.previewed, editor.given, editor.results, js=on, **PRIVATE, **LIGHT)
            control.input(None, None, switch, js="() => true", **PRIVATE)
    return accordions


def photograph_panel(
    page: Component, editor: Editor, sample: Component
) -> tuple[Callable[[Photograph], Updates], list[Component]]:
    """An upload, and the mask of its object and its true class; every event opens a photograph or changes it. Return
    the function that shows a photograph, and what is set where one is opened."""
    segmenter, better = editor.studio.segmenter, editor.studio.better
    gr.HTML("<h2>Your own photograph</h2>")
    upload = gr.File(label="drop a photograph (up to 50 MB)", elem_id="upload", height=150)
    problem = gr.HTML(figures.message(""), elem_id="problem")
    with gr.Column(visible=False, elem_id="mask-tools") as tools:
        marker: Component = gr.HTML(elem_id="marker", js_on_load=script("marker.js"))
        with gr.Row():
            automatic = gr.Button("Find the object", size="sm", elem_id="find-object")
            mask = gr.UploadButton("Upload a mask", size="sm", elem_id="upload-mask")
        if better is not None:
            gr.HTML(figures.drawn("better_masks", command=better), elem_id="better-masks")
        with gr.Accordion("More about the object", open=False):
            box = gr.Textbox(label="box around it, in pixels of the photograph: X,Y,W,H", max_lines=1)
            label = gr.Dropdown(
                [("unknown", UNKNOWN), *((name, index) for index, name in enumerate(imagenet().classes))],
                value=UNKNOWN,
                label="its true class in ImageNet",
                info="marked in the predictions; needed for an adversarial background",
            )

    def begun(photograph: Photograph) -> Updates:
        """The photograph, no problem, and its marker, label and tools, which only an uploaded one has."""
        chosen = UNKNOWN if photograph.label is None else photograph.label
        drawn = figures.marker(photograph) if photograph.own else ""
        shown = {editor.photograph: photograph, problem: figures.message(""), marker: drawn, label: chosen}
        return {**shown, tools: gr.Column(visible=photograph.own)}

    def opening(action: Callable[..., Photograph]) -> Callable[..., Updates]:
        """The action as an event: the new photograph, or what was wrong."""

        def event(photograph: Photograph, *given: object) -> Updates:
            try:
                return begun(action(photograph, *given))
            except UserError as error:
                return {problem: figures.message(str(error), "problem")}

        return event

    def mark(photograph: Photograph, event: gr.EventData) -> Updates:
        drawn = {name: getattr(event, name, None) for name in ("box", "paint", "add", "undo")}
        changed = opening(lambda photograph: marked(photograph, drawn, segmenter))(photograph)
        # The stroke is drawn over the old picture, which is shown again if the stroke had no effect.
        return changed if marker in changed else {**changed, marker: figures.marker(photograph)}

    def opened_upload(photograph: Photograph, path: str | None) -> Updates:
        """A new photograph begins without the selection and the changes of the old one."""
        changed = opening(lambda _: open_upload(str(path), segmenter))(photograph)
        return {**changed, sample: "", **editor.set_to(editor.cleared())} if marker in changed else changed

    def labeled(photograph: Photograph, chosen: int | None) -> Photograph:
        return replace(photograph, label=None if chosen is None or chosen < 0 else int(chosen))

    opened = [editor.photograph, problem, marker, label, tools]
    openings: list[tuple[Component, Callable[..., Photograph], list[Component], str]] = [
        (sample.input, lambda _, name: open_sample(name), [sample], "open_sample"),
        (automatic.click, lambda photograph: found_by(photograph, segmenter), [], "find_object"),
        (mask.upload, uploaded_mask, [mask], "upload_mask"),
        (box.submit, lambda shown, text: found_by(shown, segmenter, parse_box(text)), [box], "find_in_box"),
        (label.input, labeled, [label], "true_class"),
    ]
    for event, action, inputs, name in openings:
        editor.follow(event(opening(action), [editor.photograph, *inputs], opened, api_name=name, **HEAVY))
    every = [*opened, sample, *editor.flat]
    uploaded = {"api_name": "open_photograph", **HEAVY}
    editor.follow(upload.upload(opened_upload, [editor.photograph, upload], every, **uploaded))
    # Clear the upload field for the next photograph.
    upload.upload(None, None, upload, js="() => null", **PRIVATE)
    editor.follow(marker.select(mark, [editor.photograph], opened, **PRIVATE, **HEAVY))
    editor.follow(page.load(begun, [editor.photograph], opened, **PRIVATE, **LIGHT))
    return begun, every


ALL = "all"


def browse_tab(tab: Component, studio: Studio, results: Results) -> None:
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
        number = getattr(event, "place", None)
        if flips is None or not isinstance(number, int) or not 0 <= number < len(flips.shown):
            return figures.message("That flip is not in the list.", "problem")
        flip = flips.shown[number]
        warm, note = results.warm_pair(studio, flip)
        return figures.drawn("flip_markup", results=results, flip=flip, warm=warm, note=note)

    # The pictures of the list are only made for visitors who look at them.
    shown = [listing, large]
    tab.select(listed, filters, shown, api_visibility="private", concurrency_limit=2)
    gr.on([component.input for component in filters], listed, filters, shown, api_name="flips", concurrency_limit=2)
    listing.select(opened, filters, large, api_visibility="private", concurrency_limit=2)


def compare_tab(tab: Component, results: Results) -> None:
    """Fill the tab that compares two models on the same photographs."""
    gr.HTML(figures.message(results.note))
    if len(results.models) < 2:
        gr.HTML(figures.message("There is only one model in these predictions: evaluate a second one to compare."))
        return
    with gr.Row():
        first = gr.Dropdown(results.models, value=results.models[0], label="first model", elem_id="first")
        second = gr.Dropdown(results.models, value=results.models[-1], label="second model", elem_id="second")
    problem = gr.HTML(figures.message(""))
    drawn = "<div class='comparison'></div>"
    chart = gr.HTML("null", elem_id="comparison", html_template=drawn, js_on_load=script("compare.js"))

    def compared(first: str, second: str) -> tuple[str, str]:
        try:
            return data(results.comparison(first, second)), figures.message("")
        except UserError as error:
            return "null", figures.message(str(error), "problem")

    shown = [chart, problem]
    tab.select(compared, [first, second], shown, api_visibility="private", concurrency_limit=1)
    gr.on([first.input, second.input], compared, [first, second], shown, api_name="compare", concurrency_limit=1)
