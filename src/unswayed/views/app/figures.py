"""The page's pictures and predictions as HTML, with all text escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from markupsafe import Markup

from unswayed.analyses.flips import Flips
from unswayed.sources.pictures import shrunk
from unswayed.views.report.pictures import marked, outlined
from unswayed.views.text import data_address, percent, plural, render

from .photographs import Photograph, doubts
from .results import Results
from .studio import FoundObjects, ObjectPicture

MARKER_SIDE = 640
drawn = partial(render, "figures.html")  # a macro of the template, filled with the values


def message(text: str, kind: str = "note") -> Markup:
    """Return a message for the visitor, its commands as code; kind: `note`, `warning`, `old` (the result shown is not
    of these settings), or `problem`; screen readers announce the last two at once."""
    return drawn("message", text=text, kind=kind)


def marker(photograph: Photograph) -> Markup:
    """Return the photograph with its object outlined and the rest dimmed, with the tools that change the mask."""
    scene = shrunk(photograph.scene, MARKER_SIDE)
    share = (0.45 + 0.55 * scene.mask)[..., None]
    dimmed = np.clip(scene.image * share, 0, 255).astype(np.uint8)
    shown = outlined(dimmed, scene.mask, (255, 214, 10))
    warned = doubts(photograph.scene)
    if warned:
        warned = (*warned, "Draw a box around the object, mend the mask with the brush, or upload a mask.")
    covered = percent(scene.pixel_rate, 0 if scene.pixel_rate >= 0.01 else 1)
    words = f"{photograph.name}; the object, {covered} of the picture, is outlined"
    mask = f"data:image/png;base64,{base64.b64encode(photograph.mask).decode()}"
    told = {"words": words, "doubts": warned, "mask": mask, "file": f"{Path(photograph.name).stem}.png"}
    return drawn("marker", photograph=photograph, drawn=data_address(shown, MARKER_SIDE), **told)


def found_pair(model: str, pictures: Sequence[ObjectPicture], answers: Sequence[FoundObjects]) -> Markup:
    """Return both pictures with the outline of the object and what a detector or segmenter found, in words below."""
    shown = [
        marked(seen.image, answer.truth.mask, answer.box, answer.region, bool(answer.best))
        for seen, answer in zip(pictures, answers, strict=True)
    ]
    return drawn("found_pair", model=model, pictures=shown, answers=answers)


def flips_list(results: Results, flips: Flips | None) -> Markup:
    """Return the flips as buttons, each with its two pictures and predictions."""
    if flips is None or not flips.shown:
        return Markup('<p role="status">No correct prediction was turned into a wrong one here.</p>')
    right = int(flips.counts["right"].sum())
    words = (
        f"{plural(flips.total, 'flip')} from right to wrong among {right:,} edited pictures whose photograph was "
        f"classified correctly; {len(flips.shown)} are shown, sampled evenly. Click one to enlarge it."
    )
    return drawn("flips_list", results=results, flips=flips.shown, words=words)
