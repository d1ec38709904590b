"""The page's pictures and predictions as HTML, with all text escaped."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from unswayed.analyses.flips import Flip, Flips
from unswayed.sources.pictures import shrunk
from unswayed.views.report.pictures import data_address, marked, outlined
from unswayed.views.text import joined, percent, plural, tag

from .photographs import Photograph, doubts
from .results import Results
from .stage import Comparison
from .studio import Answer, Seen, Step

MARKER_SIDE = 640


def message(text: str, kind: str = "note") -> Markup:
    """Return a message for the visitor, its commands as code; kind: `note`, `warning`, `old` (the result shown is not
    of these settings), or `problem`; screen readers announce the last two at once."""
    if not text:
        return tag("div", class_="message")
    # A command scrolls where it is longer than the screen is wide.
    lines = joined(
        tag("code", line, tabindex="0") if line.startswith("unswayed ") else tag("span", line)
        for line in text.splitlines()
    )
    role = "alert" if kind in ("problem", "old") else "status"
    return tag("div", lines, class_=f"message {kind}", role=role)


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
    named = {"box": "box around the object", "add": "add to the mask", "erase": "erase from the mask"}
    tools = [
        tag("button", title, type="button", data_tool=tool, aria_pressed=str(tool == "box").lower())
        for tool, title in named.items()
    ]
    undo = tag("button", "undo", type="button", data_undo=True, disabled=not photograph.earlier)
    size = tag("label", "brush ", tag("input", type="range", min=1, max=20, value=5, data_size=True))
    image = tag("img", src=data_address(shown, MARKER_SIDE), alt=words, draggable="false")
    notes = "; ".join(photograph.notes)
    file = f"{Path(photograph.name).stem}.png"
    address = f"data:image/png;base64,{base64.b64encode(photograph.mask).decode()}"
    link = tag("a", f"Download {file}", href=address, download=file)
    return (
        tag("div", *tools, undo, size, class_="tools", role="group", aria_label="tools that mark the object")
        + tag("div", image, tag("canvas", aria_hidden="true"), class_="marker")
        + (message("\n".join(warned), "warning") if warned else "")
        + tag("p", f"{words}. Mask: {notes}. ", link, class_="quiet")
    )


def better_masks(command: str) -> Markup:
    """Return the line that says which command gets a better segmenter than GrabCut."""
    said = ("Objects are found by GrabCut. For better masks, run ", tag("code", command), " and restart this page.")
    return tag("p", *said, class_="quiet")


def picture(image: np.ndarray, alt: str, caption: object, side: int = 320) -> Markup:
    return tag("figure", tag("img", src=data_address(image, side), alt=alt), tag("figcaption", caption))


def answer_bars(model: str, before: Answer, after: Answer, true_class: int | None) -> Markup:
    """Return a model's five most likely classes before and after, as bars with their probabilities."""
    verdict = tag("p", f"The prediction is the same: {before.names[0]}", class_="held")
    if before.best != after.best:
        changed = f"{before.names[0]} → {after.names[0]}"
        verdict = tag("p", tag("b", "The prediction changed: "), changed, class_="turned")
    sides = [_bars("before", before, true_class), _bars("after", after, true_class)]
    return tag("section", tag("h3", model), verdict, tag("div", *sides, class_="pair"), class_="answers")


def _bars(title: str, answer: Answer, true_class: int | None) -> Markup:
    rows = []
    for index, name, probability in zip(answer.classes, answer.names, answer.probabilities, strict=True):
        true = tag("span", " (true class)", class_="true") if index == true_class else None
        bar = tag("span", tag("span", style=f"width: {100 * probability:.2f}%"), class_="bar", aria_hidden="true")
        share = tag("span", percent(probability), class_="share")
        rows.append(tag("li", tag("span", name, true, class_="name"), bar, share))
    return tag("div", tag("h4", f"top 5 {title}"), tag("ol", *rows, class_="bars"))


def heat_pair(model: str, images: Sequence[np.ndarray], names: Sequence[str]) -> Markup:
    """Return both pictures with the heat maps of their predictions."""
    before = picture(images[0], f"heat map of {model} on the photograph", f"evidence for “{names[0]}” before")
    after = picture(images[1], f"heat map of {model} on the edited picture", f"evidence for “{names[1]}” after")
    return tag("div", before, after, class_="pair")


def found_pair(model: str, pictures: Sequence[Seen], answers: Sequence[Any]) -> Markup:
    """Return both pictures with the outline of the object and what a detector or segmenter found, in words below."""
    shown = []
    for when, seen, answer in zip(("before", "after"), pictures, answers, strict=True):
        image = marked(seen.image, answer.truth.mask, answer.box, answer.region, bool(answer.best))
        shown.append(picture(image, f"what {model} found {when}", f"{when}: {answer.best_words}"))
    return tag("section", tag("h3", model), tag("div", *shown, class_="pair"), class_="answers")


def progress(step: Step, unit: str) -> Markup:
    """Return a bar with the steps done and the time left in words."""
    bar = tag("progress", value=step.done, max=max(step.total, 1), aria_label=f"{unit} done")
    return tag("div", bar, tag("span", step.words(unit)), class_="working")


def side_by_side(compared: Comparison, said: Mapping[str, Sequence[str]]) -> Markup:
    """Return the pasted, the rendered and the control picture; said: the predictions for each, in lines."""
    titles = {
        "pasted": "pasted",
        "rendered": "rendered with diffusion",
        "control": "control: the same removal and rendering without the change",
    }
    shown = []
    for name, title in titles.items():
        image = getattr(compared, name)
        lines = [tag("b", title), *(tag("span", line) for line in said.get(name, ()))]
        if isinstance(image, str):
            shown.append(tag("figure", tag("figcaption", *lines, tag("span", image))))
        else:
            shown.append(picture(image.image, title, joined(lines)))
    return tag("section", tag("h3", "Pasted, rendered and control"), tag("div", *shown, class_="trio"))


def flips_list(results: Results, flips: Flips | None) -> Markup:
    """Return the flips as buttons, each with its two pictures and predictions."""
    if flips is None or not flips.shown:
        return tag("p", "No correct prediction was turned into a wrong one here.", role="status")
    right = int(flips.counts["right"].sum())
    words = (
        f"{plural(flips.total, 'flip')} from right to wrong among {right:,} edited pictures whose photograph was "
        f"classified correctly; {len(flips.shown)} are shown, sampled evenly. Click one to enlarge it."
    )
    cards = [tag("li", _flip_button(results, flip, number)) for number, flip in enumerate(flips.shown)]
    return tag("p", words, role="status") + tag("ul", *cards, class_="flips")


def _flip_button(results: Results, flip: Flip, place: int) -> Markup:
    before, after = results.pair(flip)
    pictures: list[object] = [results.why_not_shown(flip)[0]]
    if before is not None and after is not None:
        pictures = [
            tag("img", src=data_address(before, 128), alt=f"photograph {flip.source_id}"),
            tag("img", src=data_address(after, 128), alt=f"the same under {results.words[flip.edit]}"),
        ]
    said = (
        tag("b", results.words[flip.edit]),
        tag("span", flip.model, class_="quiet"),
        tag("span", f"{results.class_name(flip.label)} {percent(flip.before_probability, 0)}"),
        tag("span", f"→ {results.class_name(flip.after)} {percent(flip.after_probability, 0)}"),
    )
    inside = (tag("span", *pictures, class_="thumbs"), tag("span", *said, class_="said"))
    return tag("button", *inside, type="button", data_flip=place)


def flip_markup(results: Results, flip: Flip, warm: Sequence[np.ndarray], note: str) -> Markup:
    """Return one flip enlarged: both pictures, both predictions, both heat maps or why there are none."""
    truth, answer = results.class_name(flip.label), results.class_name(flip.after)
    before, after = results.pair(flip)
    meaning = results.facts.describe(flip.edit)
    what = results.words[flip.edit] + (f" ({meaning})" if meaning else "")
    parts: list[object] = [tag("h2", f"{flip.source_id}: {what}, {flip.model}")]
    if before is not None and after is not None:
        right, wrong = f"{truth}, {percent(flip.before_probability)}", f"{answer}, {percent(flip.after_probability)}"
        photograph = picture(before, f"photograph {flip.source_id}", f"{right}: right")
        edited = picture(after, f"the same under {results.words[flip.edit]}", f"{wrong}: wrong")
        parts.append(tag("div", photograph, edited, class_="pair"))
    if warm:
        parts.append(heat_pair(flip.model, warm, [truth, answer]))
    parts.append(message(note) if note else None)
    if flip.survives is not None:
        inside = f"{percent(flip.survives, 0)} of the object is inside the model's own crop."
        parts.append(tag("p", inside, class_="quiet"))
    return tag("section", *parts, class_="found")
