"""The panel of the changes: a switch and the controls of every edit, which handles, chips and presets set as well."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import gradio as gr

from unswayed.errors import UserError

from .controls import Control, Group, Value, flat_from, largest_values, moved_to, own_values, values_from, wanted_serial
from .photographs import Photograph
from .result_panel import LIGHT, PRIVATE, Component, Shared, Updates, nothing, previewed
from .studio import Studio

Starts = dict[tuple[str, str], float]
# The slider of a range with a logarithmic scale; gradio has only linear ones.
LOG_SLIDER = """<div class="log">
  <label><span>${label}</span>
    <input type="number" min="${low}" max="${high}" step="any" value="${Number(value)}"></label>
  <p class="quiet">${explains}</p>
  <div class="ends"><span>${low}</span>
    <input type="range" min="0" max="1000" step="any" aria-label="${label}" aria-valuetext="${Number(value)}"
      value="${1000 * Math.log(Math.max(low, Number(value)) / low) / Math.log(high / low)}"><span>${high}</span></div>
</div>"""


@dataclass(frozen=True, eq=False)
class ChangesPanel:
    """switches: one per edit; moved: (component, the switch of its edit); flat: all of them in the order in which
    `values_from` reads; picture: the upload field for a background's file; seed: of random draws."""

    switches: list[Component]
    moved: list[tuple[Component, Component]]
    flat: list[Component]
    picture: Component = None
    seed: Component = None


def changes_panel(shown: Sequence[Group], photograph: Photograph, flat: Sequence[Value]) -> ChangesPanel:
    """Build the components of every edit inside the open gradio context; flat: their first values."""
    gr.HTML("<h2>2 · Changes</h2>")
    changes = ChangesPanel([], [], [])
    ends, values = largest_values(photograph), iter(flat)
    for group in shown:
        with gr.Accordion(group.edit, open=group.edit == "size"):
            label = f"change: {group.edit}"
            switch = gr.Checkbox(bool(next(values)), label=label, info=group.explains, elem_id=f"on-{group.edit}")
            components = []
            for control in group.controls:
                components.append(_component(control, next(values), ends.get(control.key)))
                if control.word is not None:
                    words = f"{control.edit} {control.parameter}: {control.word}"
                    components.append(gr.Checkbox(bool(next(values)), label=words))
            if group.file is not None and changes.picture is None:
                picture = gr.File(label=f"the file of '{group.file}'", height=150, elem_id=group.edit)
                changes = replace(changes, picture=picture)
        changes.switches.append(switch)
        changes.moved.extend((component, switch) for component in components)
        changes.flat.extend([switch, *components])
    seed = gr.Number(0, label="random seed", precision=0, minimum=0, maximum=2**31)
    return replace(changes, seed=seed)


def _component(control: Control, start: Any, end: float | None) -> Any:
    label, name = f"{control.edit}: {control.parameter}", f"{control.edit}-{control.parameter}"
    if control.choices:
        return gr.Dropdown(list(control.choices), value=start, label=label, info=control.explains, elem_id=name)
    if control.log:
        script = resources.files(__package__).joinpath("log_slider.js").read_text(encoding="utf-8")
        return gr.HTML(
            start, html_template=LOG_SLIDER, js_on_load=script, elem_id=name, label=label, **_ends(control, end)
        )
    return gr.Slider(
        control.low, control.high, start, step=control.step, label=label, info=control.explains, elem_id=name,
        buttons=[],
    )  # fmt: skip


def _ends(control: Control, end: float | None) -> dict[str, Any]:
    return {"low": control.low, "high": control.high if end is None else end, "explains": control.explains}


def connect_changes(panel: ChangesPanel, stage: Component, shared: Shared, updates: Updates) -> None:
    """Connect the events of the controls, and of the handles and chips on the stage, which set the same controls."""
    given = [shared.models, *shared.chosen]
    first = len(given) - len(panel.flat)
    gr.on(
        [*(switch.input for switch in panel.switches), panel.picture.change, panel.seed.input],
        updates.preview,
        given,
        updates.results,
        api_name="preview",
        **LIGHT,
    )
    for control, switch in panel.moved:
        # Moving a slider also switches its edit on.
        place = first + panel.flat.index(switch)
        on = f"(...given) => {{ given[{place}] = true; return given; }}"
        control.input(updates.preview, given, updates.results, js=on, **PRIVATE, **LIGHT)
        control.input(None, None, switch, js="() => true", **PRIVATE)
    # What a handle wants is read when the event starts: of the events that wait, only the last one is run.
    wanted = gr.Textbox(visible=False)
    outputs = [*panel.flat, *updates.results]
    stage.input(
        functools.partial(_dragged, shared.studio, shared.groups), [wanted, *given], outputs,
        js="(...given) => [window.unswayedWanted, ...given.slice(1)]", **PRIVATE, **LIGHT,
    )  # fmt: skip

    def reset(event: gr.EventData, *values: Any) -> tuple[object, ...]:
        return _reset(shared.studio, shared.groups, str(getattr(event, "edit", "")), *values)

    stage.select(reset, given, [panel.seed, *outputs], show_progress="hidden", **PRIVATE)


def begun(
    studio: Studio,
    shown: Sequence[Group],
    models: Sequence[str],
    photograph: Photograph,
    picture: str | None,
    seed: float,
    *flat: Value,
) -> tuple[object, ...]:
    """Return the controls and the result for another photograph; what is unchanged starts at its object's values."""
    own = {group.edit: None for group in shown if group.edit not in values_from(shown, flat)}
    changed = flat_from(shown, flat, own, own_values(photograph))
    ends = largest_values(photograph)
    return (
        *_updates(shown, changed, ends),
        *previewed(studio, shown, models, photograph, picture, seed, *changed),
    )


def _updates(shown: Sequence[Group], flat: Sequence[Value], ends: Starts) -> list[Component]:
    """Return the values as updates of the components; a logarithmic slider ends where the frame ends."""
    controls: list[Control | None] = []
    for group in shown:
        controls.append(None)
        for control in group.controls:
            controls += [control] if control.word is None else [control, None]
    return [
        gr.HTML(value=value, **_ends(control, ends.get(control.key))) if control is not None and control.log else value
        for control, value in zip(controls, flat, strict=True)
    ]


def _dragged(
    studio: Studio,
    shown: Sequence[Group],
    wanted: str,
    models: Sequence[str],
    photograph: Photograph,
    picture: str | None,
    seed: float,
    *flat: Value,
) -> tuple[object, ...]:
    """Return the controls and the result with the object where a handle was moved to."""
    try:
        values = moved_to(photograph, values_from(shown, flat), wanted)
    except UserError as error:
        return (*(gr.skip() for _ in flat), *nothing(error))
    changed = flat_from(shown, flat, values, own_values(photograph))
    result = previewed(studio, shown, models, photograph, picture, seed, *changed, serial=wanted_serial(wanted))
    return (*(new if new != old else gr.skip() for new, old in zip(changed, flat, strict=True)), *result)


def _reset(
    studio: Studio,
    shown: Sequence[Group],
    name: str,
    models: Sequence[str],
    photograph: Photograph,
    picture: str | None,
    seed: float,
    *flat: Value,
) -> tuple[object, ...]:
    """Return the seed, the controls and the result without the change `name`, or without any if it is empty."""
    seed = 0 if name in ("", "seed") else seed
    off = {group.edit: None for group in shown if name in ("", group.edit)}
    changed = flat_from(shown, flat, off, own_values(photograph))
    return (seed, *changed, *previewed(studio, shown, models, photograph, picture, seed, *changed))
