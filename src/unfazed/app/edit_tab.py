"""The Edit tab: gradio components and the functions that they call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import gradio as gr

from unfazed.errors import UserError
from unfazed.labels import imagenet
from unfazed.sources.segment import parse_box

from . import figures
from .controls import Control, Group, chain_from, groups, values_from
from .downloads import Files, write_files
from .photographs import Photograph, found_by, marked, open_sample, open_upload, own_mask, sample_names
from .preview import Shown, preview, render
from .smallest import directions, find_smallest
from .studio import Studio

FIRST_SAMPLE = "koala"
# Heavy work is queued: only one visitor at a time renders or opens a photograph.
LIGHT, HEAVY = 4, 1
UNKNOWN = -1


def edit_tab(page: Any, studio: Studio) -> None:
    """Build the tab inside the open gradio context."""
    shown_groups = groups()
    with gr.Row():
        with gr.Column(scale=4, min_width=300):
            gr.HTML("<h2>1 · Photograph</h2>")
            sample = gr.Dropdown(
                list(sample_names()), value=FIRST_SAMPLE, label="a sample photograph", elem_id="sample"
            )
            upload = gr.File(label="or drop your own photograph (up to 50 MB)", elem_id="upload", height=150)
            problem = gr.HTML(figures.message(""), elem_id="problem")
            script = resources.files(__package__).joinpath("marker.js").read_text(encoding="utf-8")
            marker = gr.HTML(elem_id="marker", js_on_load=script)
            with gr.Row():
                automatic = gr.Button("Find the object", size="sm", elem_id="find-object")
                given = gr.Button("Use the sample's own mask", size="sm")
            with gr.Accordion("More about the object", open=False):
                box = gr.Textbox(label="box around it, in pixels of the photograph: X,Y,W,H", max_lines=1)
                label = gr.Dropdown(
                    [("unknown", UNKNOWN), *((name, index) for index, name in enumerate(imagenet().classes))],
                    value=UNKNOWN,
                    label="its true class in ImageNet",
                    info="marked in the predictions; needed for an adversarial background",
                )
        with gr.Column(scale=4, min_width=300):
            gr.HTML("<h2>2 · Changes</h2>")
            changes = _change_controls(shown_groups)
            seed = gr.Number(0, label="random seed", precision=0, minimum=0, maximum=2**31)
        with gr.Column(scale=6, min_width=320):
            gr.HTML("<h2>3 · Result</h2>")
            pictures = gr.HTML(elem_id="pictures")
            note = gr.HTML(figures.message(""), elem_id="note")
            with gr.Row():
                steps = gr.Slider(4, 100, 20, step=1, label="diffusion steps: more are better and slower", buttons=[])
                rendering = gr.Button("Render with diffusion", variant="primary", elem_id="render")
            with gr.Row():
                downloads = [
                    gr.DownloadButton(
                        f"Download {what}", interactive=False, elem_id=f"download-{what}", size="sm", min_width=80
                    )
                    for what in ("picture", "mask", "record")
                ]
            gr.HTML(
                "<p class='quiet'>The record makes the same bytes again: unfazed edit PHOTO --replay RECORD.json</p>"
            )
            gr.HTML("<h2>4 · Predictions</h2>")
            models = gr.Dropdown(
                list(studio.models), value=[studio.models[0]], multiselect=True, label="models", elem_id="models"
            )
            answers = gr.HTML(elem_id="answers")
            gr.HTML("<h2>5 · The smallest change that changes the prediction</h2>")
            with gr.Row():
                direction = gr.Dropdown(list(directions()), value=next(iter(directions())), label="change to try")
                means = gr.Radio(["paste preview", "diffusion"], value="paste preview", label="rendered by")
            searching = gr.Button("Find the smallest change", elem_id="search")
            found = gr.HTML(elem_id="found")

    photograph = gr.State(open_sample(FIRST_SAMPLE), time_to_live=7200)
    shown = gr.State(None, time_to_live=7200)
    chosen = [photograph, changes.picture, seed, *changes.flat]
    opened = [photograph, problem, marker, label]
    results = [pictures, note, shown, *downloads]

    follow = functools.partial(_previewed, studio, shown_groups)
    say = functools.partial(_answered, studio)
    # While one update is running, only the last of the waiting ones is run.
    light: dict[str, Any] = {"concurrency_limit": LIGHT, "show_progress": "hidden", "trigger_mode": "always_last"}
    heavy: dict[str, Any] = {"concurrency_limit": HEAVY, "concurrency_id": "heavy"}

    def then_follow(event: Any) -> None:
        event.then(follow, chosen, results, api_visibility="private", **light).then(
            say, [photograph, shown, models], answers, api_visibility="private", **light
        )

    openings: list[tuple[Any, Callable[..., Photograph], list[Any], str]] = [
        (sample.input, lambda _, name: open_sample(name), [sample], "open_sample"),
        (upload.upload, functools.partial(_open_upload, studio), [upload], "open_photograph"),
        (automatic.click, lambda one: found_by(one, studio.segmenter), [], "find_object"),
        (given.click, own_mask, [], "own_mask"),
        (box.submit, lambda one, text: found_by(one, studio.segmenter, parse_box(text)), [box], "find_in_box"),
        (label.input, _labelled, [label], "true_class"),
    ]
    for event, action, inputs, name in openings:
        then_follow(event(_opening(action), [photograph, *inputs], opened, api_name=name, **heavy))
    # Clear the upload field for the next photograph.
    upload.upload(None, None, upload, js="() => null", api_visibility="private")

    def mark(photograph: Photograph, event: gr.EventData) -> tuple[Any, ...]:
        return _marked(studio, photograph, event)

    then_follow(marker.select(mark, [photograph], opened, api_visibility="private", **heavy))
    # A switch also changes when its slider is moved; a slider is only moved by the visitor.
    by_hand = [one.input for one, _ in changes.moved]
    moved = gr.on(
        [*(switch.change for switch in changes.switches), *by_hand, changes.picture.change, seed.input],
        follow,
        chosen,
        results,
        api_name="preview",
        **light,
    )
    moved.then(say, [photograph, shown, models], answers, api_name="answers", **light)
    models.input(say, [photograph, shown, models], answers, api_visibility="private", **light)
    for control, switch in changes.moved:
        # Moving a slider also switches its edit on.
        control.input(None, None, switch, js="() => true", api_visibility="private")
    rendering.click(
        functools.partial(_rendered, studio, shown_groups), [*chosen[:1], steps, *chosen[1:]], results,
        api_name="render", show_progress_on=pictures, **heavy,
    ).then(say, [photograph, shown, models], answers, api_visibility="private", **light)  # fmt: skip
    searching.click(
        functools.partial(_searched, studio, shown_groups),
        [photograph, direction, means, models, steps, *chosen[1:]], found,
        api_name="smallest_change", show_progress_on=found, **heavy,
    )  # fmt: skip
    then_follow(page.load(_begun, [photograph], opened, api_visibility="private", **light))


@dataclass(frozen=True, eq=False)
class _Changes:
    """switches: one per edit; moved: (component, the switch of its edit); flat: all of them in the order in which
    `values_from` reads; picture: the upload field for a background's file."""

    switches: list[Any]
    moved: list[tuple[Any, Any]]
    flat: list[Any]
    picture: Any


def _change_controls(shown: Sequence[Group]) -> _Changes:
    """Build the components of every edit."""
    changes = _Changes([], [], [], None)
    for group in shown:
        with gr.Accordion(group.edit, open=group.edit == "size"):
            switch = gr.Checkbox(False, label=f"change: {group.edit}", info=group.explains, elem_id=f"on-{group.edit}")
            components = []
            for control in group.controls:
                components.append(_component(control))
                if control.word is not None:
                    components.append(gr.Checkbox(False, label=f"{control.edit} {control.parameter}: {control.word}"))
            if group.file is not None and changes.picture is None:
                picture = gr.File(label=f"the file of '{group.file}'", height=150, elem_id=group.edit)
                changes = replace(changes, picture=picture)
        changes.switches.append(switch)
        changes.moved.extend((one, switch) for one in components)
        changes.flat.extend([switch, *components])
    return changes


def _component(control: Control) -> Any:
    label, name = f"{control.edit}: {control.parameter}", f"{control.edit}-{control.parameter}"
    if control.choices:
        return gr.Dropdown(list(control.choices), value=control.first, label=label, info=control.explains, elem_id=name)
    return gr.Slider(
        control.low, control.high, control.first, step=control.step, label=label, info=control.explains, elem_id=name,
        buttons=[],
    )  # fmt: skip


def _open_upload(studio: Studio, photograph: Photograph, path: str | None) -> Photograph:
    return photograph if path is None else open_upload(path, studio.segmenter)


def _labelled(photograph: Photograph, label: int | None) -> Photograph:
    return replace(photograph, label=None if label is None or label < 0 else int(label))


def _begun(photograph: Photograph) -> tuple[Any, ...]:
    return photograph, figures.message(""), figures.marker(photograph), _label(photograph)


def _opening(action: Callable[..., Photograph]) -> Callable[..., tuple[Any, ...]]:
    """Return the action as an event: the new photograph, or the previous one and what was wrong."""

    def event(photograph: Photograph, *given: Any) -> tuple[Any, ...]:
        try:
            return _begun(action(photograph, *given))
        except UserError as error:
            return photograph, figures.message(str(error), "problem"), gr.skip(), gr.skip()

    return event


def _marked(studio: Studio, photograph: Photograph, event: gr.EventData) -> tuple[Any, ...]:
    mark = {name: getattr(event, name, None) for name in ("box", "paint", "add")}
    begun = _opening(lambda one: marked(one, mark, studio.segmenter))(photograph)
    # The stroke is drawn over the old picture, which is shown again if the stroke had no effect.
    return (*begun[:2], figures.marker(begun[0]), begun[3])


def _label(photograph: Photograph) -> int:
    return UNKNOWN if photograph.label is None else photograph.label


def _chain(shown: Sequence[Group], picture: str | None, flat: Sequence[Any]) -> tuple[Any, ...]:
    return chain_from(values_from(shown, flat), picture)


def _previewed(
    studio: Studio, shown: Sequence[Group], photograph: Photograph, picture: str | None, seed: float, *flat: Any
) -> tuple[Any, ...]:
    try:
        made = preview(studio, photograph, _chain(shown, picture, flat), int(seed or 0))
    except UserError as error:
        return _nothing(error)
    caption = "after: paste preview" if made.edited else "after"
    return _results(photograph, picture, made, caption)


def _rendered(
    studio: Studio,
    shown: Sequence[Group],
    photograph: Photograph,
    steps: float,
    picture: str | None,
    seed: float,
    *flat: Any,
    progress: Any = gr.Progress(),
) -> tuple[Any, ...]:
    progress(0, desc="loading the network")
    try:
        chain = _chain(shown, picture, flat)
        made = render(
            studio, photograph, chain, int(seed or 0), int(steps), lambda done, all: progress((done, all), unit="steps")
        )
    except UserError as error:
        return _nothing(error)
    return _results(photograph, picture, made, "after: rendered with diffusion")


def _results(photograph: Photograph, picture: str | None, made: Shown, caption: str) -> tuple[Any, ...]:
    files: Files | None = None if made.edited is None else write_files(made.edited, photograph, picture)
    buttons = [gr.DownloadButton(value=path, interactive=path is not None) for path in (files or (None, None, None))]
    pictures = figures.pair(made.before, made.after, photograph.name, caption)
    return pictures, figures.message(made.note), (made.before, made.after), *buttons


def _nothing(error: UserError) -> tuple[Any, ...]:
    closed = [gr.DownloadButton(value=None, interactive=False) for _ in range(3)]
    return gr.skip(), figures.message(str(error), "problem"), gr.skip(), *closed


def _answered(studio: Studio, photograph: Photograph, shown: Any, models: Sequence[str]) -> str:
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


def _searched(
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
    try:
        if not models:
            raise UserError("no model is chosen", allowed="one of the list of models")
        found = find_smallest(
            studio,
            models[0],
            photograph,
            directions()[direction],
            _chain(shown, picture, flat),
            seed=int(seed or 0),
            steps=int(steps) if means == "diffusion" else None,
            progress=lambda done, all: progress((done, all), unit="levels"),
        )
    except UserError as error:
        return figures.message(str(error), "problem")
    return figures.found_markup(found, models[0])
