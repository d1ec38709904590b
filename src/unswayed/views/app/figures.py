"""The page's pictures and predictions as HTML, with all text escaped."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from unswayed.analyses.flips import Flip, Flips
from unswayed.sources.pictures import shrunk
from unswayed.views.report.pictures import marked, outlined
from unswayed.views.text import data_address, percent, plural, render

from .photographs import Photograph, doubts
from .results import Results
from .stage import Comparison
from .studio import Answer, FoundObjects, Seen, Step

MARKER_SIDE = 640


def message(text: str, kind: str = "note") -> Markup:
    """Return a message for the visitor, its commands as code; kind: `note`, `warning`, `old` (the result shown is not
    of these settings), or `problem`; screen readers announce the last two at once."""
    return render("figures.html", "message", text=text, kind=kind)


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
    return render("figures.html", "marker", photograph=photograph, drawn=data_address(shown, MARKER_SIDE), **told)


def better_masks(command: str) -> Markup:
    """Return the line that says which command gets a better segmenter than GrabCut."""
    words = "Objects are found by GrabCut. For better masks, run <code>{}</code> and restart this page."
    return Markup(f'<p class="quiet">{words}</p>').format(command)


def answer_bars(model: str, before: Answer, after: Answer, true_class: int | None) -> Markup:
    """Return a model's five most likely classes before and after, as bars with their probabilities."""
    values = {"before": before, "after": after, "true_class": true_class}
    return render("figures.html", "answer_bars", model=model, **values)


def heat_pair(model: str, images: Sequence[np.ndarray], names: Sequence[str]) -> Markup:
    """Return both pictures with the heat maps of their predictions."""
    return render("figures.html", "heat_pair", model=model, images=images, names=names)


def found_pair(model: str, pictures: Sequence[Seen], answers: Sequence[FoundObjects]) -> Markup:
    """Return both pictures with the outline of the object and what a detector or segmenter found, in words below."""
    shown = [
        marked(seen.image, answer.truth.mask, answer.box, answer.region, bool(answer.best))
        for seen, answer in zip(pictures, answers, strict=True)
    ]
    return render("figures.html", "found_pair", model=model, pictures=shown, answers=answers)


def progress(step: Step, unit: str) -> Markup:
    """Return a bar with the steps done and the time left in words."""
    return render("figures.html", "progress", step=step, unit=unit)


def side_by_side(compared: Comparison, said: Mapping[str, Sequence[str]]) -> Markup:
    """Return the pasted, the rendered and the control picture; said: the predictions for each, in lines."""
    return render("figures.html", "side_by_side", compared=vars(compared), said=said)


def flips_list(results: Results, flips: Flips | None) -> Markup:
    """Return the flips as buttons, each with its two pictures and predictions."""
    if flips is None or not flips.shown:
        return Markup('<p role="status">No correct prediction was turned into a wrong one here.</p>')
    right = int(flips.counts["right"].sum())
    words = (
        f"{plural(flips.total, 'flip')} from right to wrong among {right:,} edited pictures whose photograph was "
        f"classified correctly; {len(flips.shown)} are shown, sampled evenly. Click one to enlarge it."
    )
    return render("figures.html", "flips_list", results=results, flips=flips.shown, words=words)


def flip_markup(results: Results, flip: Flip, warm: Sequence[np.ndarray], note: str) -> Markup:
    """Return one flip enlarged: both pictures, both predictions, both heat maps or why there are none."""
    return render("figures.html", "flip_markup", results=results, flip=flip, warm=warm, note=note)
