"""The stage: the edited picture with the answer written on it, handles on its object, the changes as chips, and the
files to download."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import cv2
import numpy as np
from markupsafe import Markup

from unswayed.edits import Edit
from unswayed.edits.composition import IDENTITY
from unswayed.edits.recipes import CONTROLS, Item
from unswayed.errors import UserError
from unswayed.evaluation.fragility import Strip, gif
from unswayed.files.whole import make_folder, write_bytes
from unswayed.rendering.photograph import EditedPhotograph, Request, compose
from unswayed.sources.source import slug
from unswayed.views.text import number
from unswayed.views.text import render as filled

from .controls import SIDE, own_box, place_of
from .photographs import Photograph
from .studio import Answer, FoundObjects, ObjectPicture, Progress, Studio, remembered_removal

NOTHING = "Nothing is changed yet: drag the object, a corner or the round handle, or move a slider."


@dataclass(frozen=True, eq=False)
class StageContent:
    """edited: what can be downloaded, None if nothing is edited; note: a message for the visitor; placement: of the
    object, None in a cropped photograph."""

    before: ObjectPicture
    after: ObjectPicture
    edited: EditedPhotograph | None = None
    note: str = ""
    placement: np.ndarray | None = field(default_factory=IDENTITY.copy)


def request_of(
    chain: tuple[Edit, ...],
    photograph: Photograph,
    seed: int = 0,
    steps: int | None = None,
    renderer: str = "diffusion",
) -> Request:
    """Return the same request as `unswayed edit` for these choices; steps: of the renderer, None for pasting.

    A visitor's photograph is previewed with patches, which take a tenth of a second instead of several; for the
    sample, what the network fills in is stored.
    """
    renderer = "paste" if steps is None else renderer
    removal = "patches" if photograph.own and steps is None else "diffusion"
    return Request(chain, renderer=renderer, steps=steps, seed=seed, label=photograph.label, removal=removal)


@functools.lru_cache(maxsize=64)
def framed(photograph: Photograph) -> ObjectPicture:
    """Return the framed photograph before any edit; its arrays are shared: do not modify."""
    _, layers = compose(request_of((), photograph), photograph.scene)
    return ObjectPicture(layers.background, layers.mask, photograph.label)


def seen(edited: EditedPhotograph, photograph: Photograph) -> ObjectPicture:
    return ObjectPicture(np.asarray(edited.image), np.asarray(edited.mask, np.float32) / 255, photograph.label)


def preview(studio: Studio, photograph: Photograph, chain: tuple[Edit, ...], seed: int = 0) -> StageContent:
    """Return the paste preview of a chain, without backgrounds that need a network; a note says if one is missing."""
    before = framed(photograph)
    pasted = tuple(edit for edit in chain if not needs_network(edit))
    left_out = next((edit for edit in chain if needs_network(edit)), None)
    waiting = "" if left_out is None else f"Needs the diffusion network ({left_out.describe()}): press Render."
    if not pasted:
        return StageContent(before, before, None, waiting)
    edited = studio.edit(request_of(pasted, photograph, seed), photograph)
    kept = edited if left_out is None else None
    return StageContent(before, seen(edited, photograph), kept, waiting, edited.placement)


# The same chain `pasted` and `rendered`, and its `control`: pictures, or why there is none.
Comparison: TypeAlias = dict[str, ObjectPicture | str]


def render(
    studio: Studio,
    photograph: Photograph,
    chain: tuple[Edit, ...],
    seed: int = 0,
    steps: int = 20,
    progress: Progress | None = None,
) -> tuple[StageContent, Comparison]:
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
    requests = [request_of(edits, photograph, seed, int(steps), studio.renderer) for edits in wanted]
    counts = [studio.passes(request) for request in requests]
    total = sum(counts)

    def counted(number: int) -> Progress | None:
        before = sum(counts[:number])
        return None if progress is None else lambda done, _: progress(before + done, total)

    if progress is not None and total:
        progress(0, total)
    made = [studio.edit(request, photograph, counted(number)) for number, request in enumerate(requests)]
    note = "This change needs no diffusion: pasted exactly."
    if counts[0]:
        note = f"Rendered in {counts[0]} diffusion steps."
    picture, *others = (seen(edited, photograph) for edited in made)
    missing = "This change has no control: it neither removes the object nor generates a background."
    try:
        pasted: ObjectPicture | str = seen(studio.edit(request_of(chain, photograph, seed), photograph), photograph)
    except UserError as error:
        pasted = f"It cannot be pasted: {error.given}."
    compared: Comparison = {"pasted": pasted, "rendered": picture, "control": others[0] if others else missing}
    return StageContent(framed(photograph), picture, made[0], note, made[0].placement), compared


def needs_network(edit: Edit) -> bool:
    return "network" in edit.needs


FOLDER = "UNSWAYED_APP_FILES"


def write_gif(strip: Strip, photograph: Photograph) -> str:
    """Write a filmstrip as ID-CHANGE.gif to a folder named after its content; return the path."""
    data = gif(strip)
    folder = make_folder(Path(os.environ[FOLDER]) / "made" / hashlib.sha256(data).hexdigest()[:16])
    path = folder / f"{photograph.id}-{slug(strip.direction.name)}.gif"
    write_bytes(path, data)
    return str(path)


def write_files(edited: EditedPhotograph, photograph: Photograph, picture: str | None = None) -> list[str]:
    """Write ID-edited.png, .mask.png and .json to a folder named after their content; return the paths.

    The record has only the names of a visitor's own files, not their paths on this server. It can be replayed in the
    folder of those files, with `unswayed edit PHOTO --replay FILE.json`.
    """
    record = dict(edited.record)
    if photograph.own:
        record["image"] = {**record["image"], "path": photograph.name}
    if picture is not None:
        name, request = Path(picture).name, record["request"]
        record["files"] = {name if path == picture else path: digest for path, digest in record["files"].items()}
        chain = [{key: name if value == picture else value for key, value in step.items()} for step in request["chain"]]
        record["request"] = {**request, "chain": chain}
    out = Path(os.environ[FOLDER]) / "made" / record["picture_sha256"][:16] / f"{photograph.id}-edited.png"
    return [str(path) for path in replace(edited, record=record).save(out)]


PLACED = ("size", "position", "direction")


@dataclass(frozen=True)
class ModelAnswers:
    """The predictions of one model for the photograph and for the edited picture."""

    model: str
    before: Answer | FoundObjects
    after: Answer | FoundObjects


def stage(
    photograph: Photograph,
    made: StageContent,
    caption: str,
    said: Sequence[ModelAnswers],
    chain: Sequence[Edit] = (),
    seed: int = 0,
    serial: int | None = None,
) -> Markup:
    """Return the whole stage.

    said: of each chosen model; chain: the changes; serial: the number of the handle's move that this
    answers, or None.
    """
    outline = None if made.placement is None else place_of(photograph, made.placement)
    changes = [(edit.name, _words(edit)) for edit in chain]
    return filled(
        "figures.html",
        "stage",
        name=photograph.name,
        before=address(made.before.image),
        after=address(made.after.image),
        caption=caption,
        said=said,
        boxes=[_boxes(told.after) or "" for told in said if isinstance(told.after, FoundObjects)],
        outline=outline,
        serial=serial,
        side=SIDE,
        layers=None if outline is None else _moving(photograph, tuple(chain), seed),
        changes=[*changes, ("seed", f"random seed {seed}")] if seed else changes,
        nothing=NOTHING,
    )


def _moving(photograph: Photograph, chain: tuple[Edit, ...], seed: int) -> dict[str, object] | None:
    """Return the layers from which the page draws the object while it is moved; None if it cannot be cut out."""
    others = tuple(edit for edit in chain if edit.name not in PLACED and not needs_network(edit))
    try:
        background, cutout = _layers(photograph, others, seed)
    except UserError:
        return None
    return {"background": background, "object": cutout, "box": own_box(photograph)}


@functools.lru_cache(maxsize=16)
def _layers(photograph: Photograph, others: tuple[Edit, ...], seed: int) -> tuple[str, str]:
    """Return the background without the object and the cut-out object where it was, as `data:` URLs."""
    chain = (*others, *CONTROLS["reinsertion"].chain)
    request = request_of(chain, photograph, seed)
    _, layers = compose(request, photograph.scene, remembered_removal(request.removal))
    cutout = np.dstack([layers.object[..., ::-1], np.round(255 * layers.alpha).astype(np.uint8)])
    encoded = base64.b64encode(cv2.imencode(".png", cutout)[1].tobytes()).decode()
    return address(layers.background), f"data:image/png;base64,{encoded}"


def _boxes(answer: FoundObjects) -> Markup | None:
    """Return the object's exact box, and what was found with its words, to lie over the picture."""
    if answer.best is None or answer.truth.box is None or answer.truth.mask is None:
        return None
    lines = ""
    if answer.region is not None:
        contours, _ = cv2.findContours(answer.region.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
        lines = "".join("M" + "L".join(f"{x},{y}" for [[x, y]] in contour.tolist()) + "Z" for contour in contours)
    exact, marked = ([round(float(side), 1) for side in box or ()] for box in (answer.truth.box, answer.box))
    kind, size = "right" if answer.best else "wrong", answer.truth.mask.shape[::-1]
    drawn = {"exact": exact, "marked": marked, "lines": lines, "kind": kind, "size": size}
    return filled("figures.html", "boxes", words=answer.best_words, beside=answer.box or answer.truth.box, **drawn)


def _words(edit: Edit) -> str:
    """Return a change in words.

    >>> from unswayed.edits.size import Size
    >>> _words(Size(rate=0.03))
    'object size 3 %'
    """
    rate = getattr(edit, "rate", None)
    if edit.name != "size" or not isinstance(rate, int | float):
        return edit.describe()
    return f"object size {number(100 * rate, '.2g' if rate < 0.1 else '.3g')} %"


def address(picture: np.ndarray) -> str:
    """Return a picture (H, W, 3) uint8 as a `data:` URL: JPEG, which is encoded in a few milliseconds."""
    encoded = cv2.imencode(".jpg", picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 92])[1]
    return f"data:image/jpeg;base64,{base64.b64encode(encoded.tobytes()).decode()}"
