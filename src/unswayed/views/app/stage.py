"""The stage: the edited picture with the answer written on it, handles on its object, and the changes as chips."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from markupsafe import Markup

from unswayed.edits import Edit
from unswayed.views.text import joined, percent, tag

from .classification import Answer
from .photographs import Photograph
from .placing import place_of
from .preview import Shown

HINT = "Drag the object, its corners or its round handle; with the keyboard, choose a handle and press the arrow keys."


@dataclass(frozen=True)
class Said:
    """The predictions of one model for the photograph and for the edited picture."""

    model: str
    before: Answer
    after: Answer

    @property
    def changed(self) -> bool:
        return self.before.best != self.after.best


def stage(
    photograph: Photograph,
    made: Shown,
    caption: str,
    said: Sequence[Said],
    chain: Sequence[Edit] = (),
    unchanged: Sequence[str] = (),
    seed: int = 0,
    serial: int | None = None,
) -> Markup:
    """Return the whole stage.

    said: of each chosen model; chain: the changes; unchanged: names of the other edits; serial: the number of the
    handle's move that this answers, or None.
    """
    after = address(made.after)
    place = None if made.placement is None else place_of(photograph, made.placement)
    words = tag("div", *_verdicts(said), class_="verdict", role="status")
    picture = tag(
        "div",
        tag("img", src=after, alt=f"{photograph.name}, edited", class_="after", draggable="false"),
        None if place is None else _handles(),
        words,
        class_="canvas",
        data_place=None if place is None else place.to_json(),
        data_serial=serial,
    )
    earlier = [f"{one.before.names[0]} {percent(one.before.probabilities[0], 0)}" for one in said[:1]]
    before = tag(
        "p",
        tag("img", src=address(made.before), alt=f"{photograph.name}, the photograph"),
        tag("span", caption, tag("br"), f"before: {', '.join(earlier) or 'the photograph, framed as a square'}"),
        class_="earlier quiet",
    )
    bar = tag("a", tag("img", src=after, alt=""), tag("span", *_verdicts(said[:1])), href="#stage", class_="glance")
    hint = None if place is None else tag("p", HINT, class_="quiet", id="handles-hint")
    return joined([picture, before, hint, chips(chain, unchanged, seed), bar])


def _verdicts(said: Sequence[Said]) -> list[Markup]:
    """Return one line for each model: its answer, and whether that differs from the answer for the photograph."""
    lines = []
    for one in said:
        was = f"{one.before.names[0]} {percent(one.before.probabilities[0], 0)}"
        compared = f"changed, was {was}" if one.changed else f"unchanged, was {percent(one.before.probabilities[0], 0)}"
        answer = tag("b", f"{one.after.names[0]} {percent(one.after.probabilities[0], 0)}")
        name = tag("span", f"{one.model}: ", class_="model") if len(said) > 1 else None
        mark = tag("span", "≠ " if one.changed else "= ", aria_hidden="true")
        lines.append(tag("span", name, mark, answer, " ", compared, class_="turned" if one.changed else "held"))
    return lines


def _handles() -> Markup:
    """Return the frame around the object and its handles; their places come from the script and `data-place`."""
    sides = tag("polygon", points="")
    lines = tag("svg", sides, sides, viewBox="0 0 1 1", preserveAspectRatio="none", aria_hidden="true")
    corners = [
        tag("button", type="button", class_="grip scale", data_handle="scale", data_corner=corner,
            aria_label="scale the object" if corner == 2 else None, aria_describedby="handles-hint",
            tabindex=None if corner == 2 else "-1", aria_hidden=None if corner == 2 else "true")
        for corner in range(4)
    ]  # fmt: skip
    others = [
        tag("button", sign, type="button", class_=f"grip {handle}", data_handle=handle,
            aria_label=f"{handle} the object", aria_describedby="handles-hint")
        for handle, sign in (("move", "✥"), ("turn", "↻"))
    ]  # fmt: skip
    return joined([lines, others[0], *corners, others[1]])


def chips(chain: Sequence[Edit], unchanged: Sequence[str], seed: int = 0) -> Markup:
    """Return the changes as buttons that reset them, and the names of what is unchanged."""
    named = [(edit.name, f"{edit.name}: {edit.describe()}") for edit in chain]
    if seed:
        named.append(("seed", f"random seed {seed}"))
    shown = [
        tag("button", text, tag("span", " ×", aria_hidden="true"), type="button", class_="chip", data_reset=name,
            title=f"reset {name}", aria_label=f"{text}; reset")
        for name, text in named
    ]  # fmt: skip
    if shown:
        shown.append(tag("button", "reset all", type="button", class_="chip all", data_reset=""))
    rest = f"Unchanged: {', '.join(unchanged)}." if unchanged else "Everything is changed."
    return tag(
        "div",
        tag("div", *shown, class_="chips", role="group", aria_label="changes") if shown else None,
        tag("p", rest, class_="quiet"),
    )


def address(picture: np.ndarray) -> str:
    """Return a picture (H, W, 3) uint8 as a `data:` URL: JPEG, which is encoded in a few milliseconds."""
    encoded = cv2.imencode(".jpg", picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 92])[1]
    return f"data:image/jpeg;base64,{base64.b64encode(encoded.tobytes()).decode()}"
