"""What the panels of the Edit tab share: the components of the controls and of the result, and what updates them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, TypeAlias

import gradio as gr
from markupsafe import Markup

from unswayed.edits import Edit
from unswayed.errors import UserError
from unswayed.labels import imagenet
from unswayed.views.text import joined

from . import figures
from .controls import (
    PRESETS,
    Control,
    Group,
    Value,
    chain_from,
    flat_from,
    groups,
    largest_values,
    moved_to,
    own_values,
    preset_flat,
    values_from,
)
from .photographs import Photograph, open_sample
from .stage import ModelAnswers, StageContent, preview, render, stage, write_files
from .studio import Answer, Canceled, FoundObjects, ObjectPicture, Report, Step, Studio

# gradio gives its components no type that has their events.
Component: TypeAlias = Any
# What an event changes; everything else stays as it is.
Updates: TypeAlias = dict[Component, Any]
# While one update is running, only the last of the waiting ones is run.
LIGHT: dict[str, Any] = {"concurrency_limit": 4, "show_progress": "hidden", "trigger_mode": "always_last"}
# Heavy work is queued: only one visitor at a time renders or opens a photograph.
HEAVY: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "heavy"}
PRIVATE: dict[str, Any] = {"api_visibility": "private"}
STATE_KEPT = 7200  # seconds


def script(name: str) -> str:
    """Return a file of this folder."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def data(value: object) -> str:
    """Return JSON for a script of the page, in which no name can look like markup."""
    return json.dumps(value).replace("<", "\\u003c")


# The inputs of an event as the page sends them: models, photograph, file of a background, seed, values of the controls.
Given: TypeAlias = tuple[Sequence[str], Photograph, str | None, float | None, *tuple[Value, ...]]


@dataclass(frozen=True, eq=False)
class EditorInputs:
    """What a visitor has chosen; picture: the file of a background, or None; flat: the values of the controls."""

    models: Sequence[str]
    photograph: Photograph
    picture: str | None
    seed: int
    flat: Sequence[Value]

    @classmethod
    def of(
        cls, models: Sequence[str], photograph: Photograph, picture: str | None, seed: float | None, *flat: Value
    ) -> EditorInputs:
        """Return the inputs of an event as the page sends them."""
        return cls(models, photograph, picture, int(seed or 0), flat)


class Editor:
    """The components that several panels use, and the functions of their events; a panel renders its components.

    photograph: the state with the visitor's `Photograph`; shown: the state with the pictures (before, after), or None;
    parts: of each edit its switch and its controls; flat: all of them in the order in which `values_from` reads them;
    picture: the file of a background; given: the inputs of a preview, results: its outputs; seen: the inputs of the
    predictions; begin: what is shown first.
    """

    def __init__(self, studio: Studio) -> None:
        self.studio, self.groups = studio, groups()
        self.begin = next((preset for preset in PRESETS if studio.knows(open_sample(preset.sample))), PRESETS[0])
        first, models = open_sample(self.begin.sample), list(studio.models)
        ends, values = largest_values(first), iter(preset_flat(self.groups, self.begin))
        self.parts = [_components(group, values, ends) for group in self.groups]
        self.flat: list[Component] = [component for part in self.parts for component in part]
        name, parameter = next((group.edit, group.file) for group in self.groups if group.file is not None)
        self.picture: Component = gr.File(label=f"the file of '{parameter}'", height=150, elem_id=name, render=False)
        self.seed: Component = gr.Number(0, label="random seed", precision=0, minimum=0, maximum=2**31, render=False)
        self.photograph: Component = gr.State(first, time_to_live=STATE_KEPT)
        self.shown: Component = gr.State(None, time_to_live=STATE_KEPT)
        self.models: Component = gr.Dropdown(
            models, value=models[:1], multiselect=True, label="models", elem_id="models", render=False
        )
        self.answers: Component = gr.HTML(elem_id="answers", render=False)
        self.pictures: Component = gr.HTML(elem_id="pictures", js_on_load=script("stage.js"), render=False)
        self.note: Component = gr.HTML(figures.message(""), elem_id="note", render=False)
        self.compared: Component = gr.HTML(elem_id="compared", render=False)
        self.steps: Component = gr.Slider(
            4, 100, 20, step=1, label="diffusion steps", info="more are better and slower", buttons=[], render=False
        )
        self.downloads: list[Component] = [
            gr.DownloadButton(
                f"Download {what}", interactive=False, elem_id=f"download-{what}", size="sm", min_width=80, render=False
            )
            for what in ("picture", "mask", "record")
        ]
        self.given = [self.models, self.photograph, self.picture, self.seed, *self.flat]
        self.seen = [self.photograph, self.shown, self.models]
        self.results = [self.pictures, self.note, self.shown, self.compared, *self.downloads]

    def cleared(self) -> list[Value]:
        """Return the values of the controls that change nothing."""
        return flat_from(self.groups, [None] * len(self.flat), {group.edit: None for group in self.groups}, {})

    def follow(self, event: Component) -> None:
        """Update the controls and the result after `event`, which changed the photograph."""
        event.then(self.begun, self.given, [*self.flat, *self.results], **PRIVATE, **LIGHT)

    def chain(self, asked: EditorInputs) -> tuple[Edit, ...]:
        """Return the edits that are switched on."""
        return chain_from(values_from(self.groups, asked.flat), asked.picture)

    def previewed(self, *given: *Given) -> Updates:
        """Return the paste preview for the inputs `given`, as `results`."""
        return self._preview(EditorInputs.of(*given))

    def _preview(self, asked: EditorInputs, serial: int | None = None) -> Updates:
        try:
            chain = self.chain(asked)
            made = preview(self.studio, asked.photograph, chain, asked.seed)
        except UserError as error:
            return self.nothing(error)
        return self._results(asked, chain, made, "after: paste preview" if made.edited else "after", serial=serial)

    def _results(
        self,
        asked: EditorInputs,
        chain: tuple[Edit, ...],
        made: StageContent,
        caption: str,
        beside: str = "",
        serial: int | None = None,
    ) -> Updates:
        files = [None] * 3 if made.edited is None else write_files(made.edited, asked.photograph, asked.picture)
        said = []
        for name in asked.models:
            with suppress(UserError):  # a model that cannot be opened is named with the predictions
                said.append(ModelAnswers(name, *self.studio.answers(name, (made.before, made.after))))
        markup = stage(asked.photograph, made, caption, said, chain, asked.seed, serial)
        shown = {self.pictures: markup, self.note: figures.message(made.note), self.shown: (made.before, made.after)}
        return {**shown, self.compared: beside, **self._files(files)}

    def nothing(self, error: UserError) -> Updates:
        """Return the results that leave the pictures as they are and say what was wrong."""
        return {self.note: figures.message(f"Not updated: {error}", "old"), **self._files([None] * 3)}

    def _files(self, paths: Sequence[str | None]) -> Updates:
        buttons = zip(self.downloads, paths, strict=True)
        return {button: gr.DownloadButton(value=path, interactive=path is not None) for button, path in buttons}

    def _changed(self, asked: EditorInputs, values: Mapping[str, Mapping[str, Value] | None]) -> EditorInputs:
        """Return what is asked with some edits switched on or off, which then start at the object's own values."""
        return replace(asked, flat=flat_from(self.groups, asked.flat, values, own_values(asked.photograph)))

    def begun(self, *given: *Given) -> Updates:
        """Return the controls and the result for another photograph; what is unchanged starts at its object's values.

        A logarithmic slider ends where the frame ends.
        """
        asked = EditorInputs.of(*given)
        switched = values_from(self.groups, asked.flat)
        changed = self._changed(asked, {group.edit: None for group in self.groups if group.edit not in switched})
        ends, keys = largest_values(asked.photograph), [key for group in self.groups for key in group.keys]
        logs = {control.key: control for group in self.groups for control in group.controls if control.log}
        updates = [
            gr.HTML(value=value, **_ends(logs[key], ends)) if key in logs else value
            for key, value in zip(keys, changed.flat, strict=True)
        ]
        return {**self.set_to(updates), **self._preview(changed)}

    def set_to(self, flat: Sequence[object]) -> Updates:
        """Return the controls with these values."""
        return dict(zip(self.flat, flat, strict=True))

    def dragged(self, wanted: str, *given: *Given) -> Updates:
        """Return the controls and the result with the object where a handle was moved to."""
        asked = EditorInputs.of(*given)
        try:
            values, serial = moved_to(asked.photograph, values_from(self.groups, asked.flat), wanted)
        except UserError as error:
            return self.nothing(error)
        changed = self._changed(asked, values)
        parts = zip(self.flat, changed.flat, asked.flat, strict=True)
        return {**{part: new for part, new, old in parts if new != old}, **self._preview(changed, serial)}

    def reset(self, event: gr.EventData, *given: *Given) -> Updates:
        """Return the seed, the controls and the result without the change of a chip, or without any for `reset all`."""
        asked, name = EditorInputs.of(*given), str(getattr(event, "edit", ""))
        changed = self._changed(asked, {group.edit: None for group in self.groups if name in ("", group.edit)})
        if name in ("", "seed"):
            changed = replace(changed, seed=0)
        return {self.seed: changed.seed, **self.set_to(changed.flat), **self._preview(changed)}

    def answered(
        self, photograph: Photograph, shown: tuple[ObjectPicture, ObjectPicture] | None, models: Sequence[str]
    ) -> str:
        """Return the predictions of the models for both pictures that are shown."""
        if shown is None or not models:
            return figures.message("" if shown is None else "Choose a model to see its predictions.")
        parts = []
        for name in models:
            try:
                answers = self.studio.answers(name, shown)
                objects = [answer for answer in answers if isinstance(answer, FoundObjects)]
                if objects:
                    parts.append(figures.found_pair(name, shown, objects))
                    continue
                before, after = (answer for answer in answers if isinstance(answer, Answer))
                truth = photograph.label if self.studio.model(name).labels == imagenet() else None
                warm = self.studio.heat(name, [picture.image for picture in shown], [before.best, after.best])
            except UserError as error:
                parts.append(figures.message(f"{name}: {error}", "problem"))
                continue
            parts.append(figures.drawn("answer_bars", model=name, before=before, after=after, true_class=truth))
            maps = figures.drawn("heat_pair", model=name, images=warm, names=[before.names[0], after.names[0]])
            parts.append(Markup("<details><summary>Where the model looks</summary>{}</details>").format(maps))
        return joined(*parts)

    def rendered(self, asked: EditorInputs, steps: int, report: Report) -> Updates:
        """Return the changes rendered with diffusion, their preview and their control: `results`."""
        try:
            chain = self.chain(asked)
            made, compared = render(self.studio, asked.photograph, chain, asked.seed, steps, report)
            images = {name: image for name, image in compared.items() if not isinstance(image, str)}
            said: dict[str, list[str]] = {name: [] for name in images}
            for model in asked.models:
                with suppress(UserError):  # the predictions below say why
                    answers = self.studio.answers(model, list(images.values()))
                    for name, answer in zip(images, answers, strict=True):
                        said[name].append(f"{model}: {answer.best_words}")
            beside = figures.drawn("side_by_side", compared=compared, said=said)
            return self._results(asked, chain, made, "after: rendered with diffusion", beside)
        except UserError as error:
            return self.nothing(error)

    def followed(
        self,
        request: gr.Request,
        work: Callable[[Report], Updates],
        line: Component,
        cancel: Component,
        unit: str,
        begins: str = "Searching …",
        canceled: str = "Canceled.",
        seen: Callable[[Step], Updates] = lambda _: {},
    ) -> Iterator[Updates]:
        """Yield the progress of a visitor's job in a line with a Cancel button, then what it changes.

        canceled: what is said of the last step of a canceled job; seen: what else a step changes.
        """
        last, note = Step(0, 0, 0.0), ""

        def told(step: Step) -> Updates:
            nonlocal last
            last = step
            return {line: figures.drawn("progress", step=step, unit=unit), **shown, **seen(step)}

        shown = {cancel: gr.Button(visible=True)}
        yield {line: figures.message(begins), **shown}
        try:
            changed = yield from self.studio.jobs.followed(str(request.session_hash), work, told)
        except Canceled:
            changed, note = {}, canceled.format(last)
        yield {line: figures.message(note), cancel: gr.Button(visible=False), **changed}

    def cancel(self, request: gr.Request) -> None:
        """Stop the visitor's job."""
        self.studio.jobs.cancel(str(request.session_hash))

    def cancel_button(self, name: str) -> Component:
        """Build a button that stops the visitor's job; it does not wait in the queue behind that job."""
        button = gr.Button("Cancel", variant="stop", visible=False, elem_id=name, min_width=80)
        button.click(self.cancel, None, None, queue=False, show_progress="hidden", **PRIVATE)
        return button


def _components(group: Group, values: Iterator[object], ends: Mapping[tuple[str, str], float]) -> list[Component]:
    """Return the switch of an edit and its controls with these first values; they are not placed yet."""
    components: list[Component] = [
        gr.Checkbox(
            bool(next(values)),
            label=f"change {group.edit}",
            info=group.explains,
            elem_id=f"on-{group.edit}",
            render=False,
        )
    ]
    for control in group.controls:
        named: dict[str, Any] = {
            "value": next(values),
            "label": control.label,
            "elem_id": f"{control.edit}-{control.parameter}",
            "render": False,
        }
        if control.choices:
            components.append(gr.Dropdown(list(control.choices), info=control.explains, **named))
        elif control.text:
            components.append(gr.Textbox(info=control.explains, max_lines=2, **named))
        elif control.log:
            template, code = script("log_slider.html"), script("log_slider.js")
            components.append(gr.HTML(html_template=template, js_on_load=code, **named, **_ends(control, ends)))
        else:
            low, high, step = map(control.on_page, (control.low, control.high, control.step))
            components.append(gr.Slider(low, high, step=step, info=control.explains, buttons=[], **named))
        if control.word is not None:
            words = f"{control.label.removesuffix(', %')}: {control.word}"
            components.append(gr.Checkbox(bool(next(values)), label=words, render=False))
    return components


def _ends(control: Control, ends: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """Return what the template of a logarithmic slider reads beside its value."""
    high = ends.get(control.key, control.high)
    return {"low": control.on_page(control.low), "high": control.on_page(high), "explains": control.explains}
