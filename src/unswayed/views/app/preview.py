"""The immediate preview of the sliders' values: the photograph and the pasted edit, or why there is none."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unswayed.choices import RendererName
from unswayed.edits import Edit
from unswayed.edits.composition import IDENTITY
from unswayed.edits.recipes import CONTROLS, Item
from unswayed.errors import UserError
from unswayed.rendering.photograph import Edited, Request, compose

from .jobs import Progress
from .photographs import Photograph
from .studio import Studio

NOTHING = "Nothing is changed yet: switch a change on, or move one of the sliders."


@dataclass(frozen=True, eq=False)
class Shown:
    """before, after: (S, S, 3) uint8; edited: what can be downloaded, None if nothing is edited; note: a message for
    the visitor; exact: `after` shows all edits of the chain; placement: of the object, None in a cropped photograph."""

    before: np.ndarray
    after: np.ndarray
    edited: Edited | None = None
    note: str = ""
    exact: bool = True
    placement: np.ndarray | None = field(default_factory=IDENTITY.copy)


def request_of(chain: tuple[Edit, ...], photograph: Photograph, seed: int = 0, steps: int | None = None) -> Request:
    """Return the same request as `unswayed edit` for these choices; steps: of diffusion, None for pasting."""
    renderer: RendererName = "paste" if steps is None else "diffusion"
    return Request(chain, renderer=renderer, steps=steps, seed=seed, label=photograph.label)


@functools.lru_cache(maxsize=64)
def framed(photograph: Photograph) -> np.ndarray:
    """Return the framed photograph before any edit, (S, S, 3) uint8; the array is shared: do not modify."""
    _, layers = compose(request_of((), photograph), photograph.scene)
    return layers.background


def preview(studio: Studio, photograph: Photograph, chain: tuple[Edit, ...], seed: int = 0) -> Shown:
    """Return the paste preview of a chain, without backgrounds that need a network; a note says if one is missing."""
    before = framed(photograph)
    pasted = tuple(edit for edit in chain if not needs_network(edit))
    left_out = [edit for edit in chain if needs_network(edit)]
    waiting = f"Needs the diffusion network ({left_out[0].describe()}): press Render." if left_out else ""
    if not pasted:
        return Shown(before, before, None, waiting or NOTHING, exact=not left_out)
    edited = studio.edit(request_of(pasted, photograph, seed), photograph)
    kept = None if left_out else edited
    return Shown(before, np.asarray(edited.image), kept, waiting, not left_out, edited.placement)


@dataclass(frozen=True, eq=False)
class Compared:
    """The same chain made in two ways, and its control: pictures (S, S, 3) uint8, or why there is none."""

    pasted: np.ndarray | str
    rendered: np.ndarray
    control: np.ndarray | str


def render(
    studio: Studio,
    photograph: Photograph,
    chain: tuple[Edit, ...],
    seed: int = 0,
    steps: int = 20,
    progress: Progress | None = None,
) -> tuple[Shown, Compared]:
    """Return the chain rendered with the diffusion network, with its paste preview and its control beside it.

    progress: called with the passes of the network done and in total, for both rendered pictures.
    """
    if not chain:
        raise UserError(NOTHING)
    if photograph.label is None and any("guide" in edit.needs for edit in chain):
        raise UserError(
            "an adversarial background needs the true label of the photograph",
            allowed="its true class, chosen under “More about the object”, below the photograph",
        )
    control = Item("edit", chain).control
    wanted = [chain] if control is None else [chain, CONTROLS[control].chain]
    requests = [request_of(one, photograph, seed, int(steps)) for one in wanted]
    counts = [studio.passes(request) for request in requests]
    total = sum(counts)

    def counted(place: int) -> Progress | None:
        before = sum(counts[:place])
        return None if progress is None else lambda done, _: progress(before + done, total)

    if progress is not None and total:
        progress(0, total)
    made = [studio.edit(request, photograph, counted(place)) for place, request in enumerate(requests)]
    note = (
        f"Rendered in {counts[0]} diffusion steps." if counts[0] else "This change needs no diffusion: pasted exactly."
    )
    pictures = [np.asarray(one.image) for one in made]
    missing = "This change has no control: it neither removes the object nor generates a background."
    try:
        pasted: np.ndarray | str = np.asarray(studio.edit(request_of(chain, photograph, seed), photograph).image)
    except UserError as error:
        pasted = f"It cannot be pasted: {error.given}."
    compared = Compared(pasted, pictures[0], missing if control is None else pictures[1])
    return Shown(framed(photograph), pictures[0], made[0], note, placement=made[0].placement), compared


def needs_network(edit: Edit) -> bool:
    return "network" in edit.needs


def portable(record: Mapping[str, Any], photograph: Photograph, picture: str | None = None) -> dict[str, Any]:
    """Return the record with only the names of a visitor's own files, not their paths on this server.

    It can be replayed in the folder of those files, with `unswayed edit PHOTO --replay FILE.json`.
    """
    changed = dict(record)
    if photograph.own:
        changed["image"] = {**record["image"], "path": photograph.name}
    if picture is not None:
        name = Path(picture).name
        changed["files"] = {name if path == picture else path: digest for path, digest in record["files"].items()}
        chain = [
            {key: name if value == picture else value for key, value in step.items()}
            for step in record["request"]["chain"]
        ]
        changed["request"] = {**record["request"], "chain": chain}
    return changed
