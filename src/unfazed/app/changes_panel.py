"""The panel of the changes: a switch and the controls of every edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from .controls import Control, Group
from .events import LIGHT, PRIVATE, Shared, Updates


@dataclass(frozen=True, eq=False)
class ChangesPanel:
    """switches: one per edit; moved: (component, the switch of its edit); flat: all of them in the order in which
    `values_from` reads; picture: the upload field for a background's file; seed: of random draws."""

    switches: list[Any]
    moved: list[tuple[Any, Any]]
    flat: list[Any]
    picture: Any = None
    seed: Any = None


def changes_panel(shown: Sequence[Group]) -> ChangesPanel:
    """Build the components of every edit inside the open gradio context."""
    gr.HTML("<h2>2 · Changes</h2>")
    changes = ChangesPanel([], [], [])
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
    seed = gr.Number(0, label="random seed", precision=0, minimum=0, maximum=2**31)
    return replace(changes, seed=seed)


def connect_changes(panel: ChangesPanel, shared: Shared, updates: Updates) -> None:
    """Connect the panel's events: every change updates the result and the predictions."""
    # A switch also changes when its slider is moved; a slider is only moved by the visitor.
    by_hand = [one.input for one, _ in panel.moved]
    moved = gr.on(
        [*(switch.change for switch in panel.switches), *by_hand, panel.picture.change, panel.seed.input],
        updates.preview,
        shared.chosen,
        updates.results,
        api_name="preview",
        **LIGHT,
    )
    updates.answered(shared, moved, api_name="answers")
    for control, switch in panel.moved:
        # Moving a slider also switches its edit on.
        control.input(None, None, switch, js="() => true", **PRIVATE)


def _component(control: Control) -> Any:
    label, name = f"{control.edit}: {control.parameter}", f"{control.edit}-{control.parameter}"
    if control.choices:
        return gr.Dropdown(list(control.choices), value=control.first, label=label, info=control.explains, elem_id=name)
    return gr.Slider(
        control.low, control.high, control.first, step=control.step, label=label, info=control.explains, elem_id=name,
        buttons=[],
    )  # fmt: skip
