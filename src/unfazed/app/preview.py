"""The immediate preview of the sliders' values: the photograph and the pasted edit, or why there is none."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unfazed.benchmark.photograph import Edited, Request, compose
from unfazed.choices import RendererName
from unfazed.edits import Edit
from unfazed.errors import UserError

from .photographs import Photograph
from .studio import Progress, Studio

NOTHING = "Nothing is changed yet: switch a change on, or move one of the sliders."


@dataclass(frozen=True, eq=False)
class Shown:
    """before, after: (S, S, 3) uint8; edited: what can be downloaded, None if nothing is edited; note: a message for
    the visitor; exact: `after` shows all edits of the chain."""

    before: np.ndarray
    after: np.ndarray
    edited: Edited | None = None
    note: str = ""
    exact: bool = True


def request_of(chain: tuple[Edit, ...], photograph: Photograph, seed: int = 0, steps: int | None = None) -> Request:
    """Return the same request as `unfazed edit` for these choices; steps: of diffusion, None for pasting."""
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
    return Shown(before, np.asarray(edited.image), None if left_out else edited, waiting, exact=not left_out)


def render(
    studio: Studio,
    photograph: Photograph,
    chain: tuple[Edit, ...],
    seed: int = 0,
    steps: int = 20,
    progress: Progress | None = None,
) -> Shown:
    """Return the chain rendered with the diffusion network."""
    if not chain:
        raise UserError(NOTHING)
    request = request_of(chain, photograph, seed, int(steps))
    edited = studio.edit(request, photograph, progress)
    passes = edited.record["measures"].get("passes")
    note = "This change needs no diffusion: pasted exactly." if not passes else f"Rendered in {passes} diffusion steps."
    return Shown(framed(photograph), np.asarray(edited.image), edited, note)


def needs_network(edit: Edit) -> bool:
    return "network" in edit.needs


def portable(record: Mapping[str, Any], photograph: Photograph, picture: str | None = None) -> dict[str, Any]:
    """Return the record with only the names of a visitor's own files, not their paths on this server.

    It can be replayed in the folder of those files, with `unfazed edit PHOTO --replay FILE.json`.
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
