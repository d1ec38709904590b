"""The page's pictures and predictions as HTML, with all text escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from unfazed.report.figures_sensitivity import outlined
from unfazed.report.flips import Flip, Flips
from unfazed.report.gallery_pictures import data_address
from unfazed.report.markup import joined, tag
from unfazed.report.words import percent, plural
from unfazed.sources.pictures import shrunk

from .classification import Answer
from .photographs import Photograph
from .results import Results
from .smallest import Found

MARKER_SIDE = 640


def message(text: str, kind: str = "note") -> Markup:
    """Return a message for the visitor; kind: `note`, or `problem`, which screen readers announce at once."""
    if not text:
        return tag("div", class_="message")
    lines = joined([tag("span", line) for line in text.splitlines()])
    role = "alert" if kind == "problem" else "status"
    return tag("div", lines, class_=f"message {kind}", role=role)


def marker(photograph: Photograph) -> Markup:
    """Return the photograph with its object outlined and the rest dimmed, with the tools that change the mask."""
    scene = shrunk(photograph.scene, MARKER_SIDE)
    share = (0.45 + 0.55 * scene.mask)[..., None]
    dimmed = np.clip(scene.image * share, 0, 255).astype(np.uint8)
    shown = outlined(dimmed, scene.mask, (255, 214, 10))
    words = f"{photograph.name}; the object, {percent(scene.pixel_rate, 0)} of the picture, is outlined"
    tools = [
        tag("button", title, type="button", data_tool=tool, aria_pressed=str(tool == "box").lower())
        for tool, title in (
            ("box", "box around the object"),
            ("add", "add to the mask"),
            ("erase", "erase from the mask"),
        )
    ]
    size = tag("label", "brush ", tag("input", type="range", min=1, max=20, value=5, data_size=True))
    image = tag("img", src=data_address(shown, MARKER_SIDE), alt=words, draggable="false")
    notes = "; ".join(photograph.notes) or "the mask that came with the photograph"
    file = f"{Path(photograph.name).stem}.png"
    address = f"data:image/png;base64,{base64.b64encode(photograph.mask).decode()}"
    link = tag("a", f"Download {file}", href=address, download=file)
    return joined(
        [
            tag("div", *tools, size, class_="tools", role="group", aria_label="tools that mark the object"),
            tag("div", image, tag("canvas", aria_hidden="true"), class_="marker"),
            tag("p", f"{words}. Mask: {notes}. ", link, class_="quiet"),
        ]
    )


def picture(image: np.ndarray, alt: str, caption: object, side: int = 320) -> Markup:
    return tag("figure", tag("img", src=data_address(image, side), alt=alt), tag("figcaption", caption))


def pair(before: np.ndarray, after: np.ndarray, name: str, caption: str) -> Markup:
    """Return the photograph and the edited picture, side by side."""
    return tag(
        "div",
        picture(before, f"{name}, the photograph", "before: the photograph, framed as a square"),
        picture(after, f"{name}, edited", caption),
        class_="pair",
    )


def answer_bars(model: str, before: Answer, after: Answer, true_class: int | None) -> Markup:
    """Return a model's five most likely classes before and after, as bars with their probabilities."""
    turned = before.best != after.best
    verdict = (
        tag("p", tag("b", "The prediction changed: "), f"{before.names[0]} → {after.names[0]}", class_="turned")
        if turned
        else tag("p", f"The prediction is the same: {before.names[0]}", class_="held")
    )
    return tag(
        "section",
        tag("h3", model),
        verdict,
        tag("div", _bars("before", before, true_class), _bars("after", after, true_class), class_="pair"),
        class_="answers",
    )


def _bars(title: str, answer: Answer, true_class: int | None) -> Markup:
    rows = []
    for index, name, probability in zip(answer.classes, answer.names, answer.probabilities, strict=True):
        shown = joined([name, tag("span", " (true class)", class_="true") if index == true_class else None])
        bar = tag("span", tag("span", style=f"width: {100 * probability:.2f}%"), class_="bar", aria_hidden="true")
        rows.append(
            tag("li", tag("span", shown, class_="name"), bar, tag("span", percent(probability), class_="share"))
        )
    return tag("div", tag("h4", f"top 5 {title}"), tag("ol", *rows, class_="bars"))


def heat_pair(model: str, images: Sequence[np.ndarray], names: Sequence[str]) -> Markup:
    """Return both pictures with the heat maps of their predictions."""
    return tag(
        "div",
        picture(images[0], f"heat map of {model} on the photograph", f"evidence for “{names[0]}” before"),
        picture(images[1], f"heat map of {model} on the edited picture", f"evidence for “{names[1]}” after"),
        class_="pair",
    )


def found_markup(found: Found, model: str) -> Markup:
    """Return the result of a search: its sentence, the picture at the change, and every level that was tried."""
    rows = [
        tag(
            "tr",
            tag("td", f"{level:.3g}", class_="number"),
            tag("td", name, class_=None if name == found.before else "turned"),
        )
        for level, name in found.tried
    ]
    head = tag("tr", tag("th", found.direction.range.unit, scope="col"), tag("th", "answer", scope="col"))
    caption = tag("caption", f"{found.direction.change.name}: every level tried")
    table = tag("table", caption, tag("thead", head), tag("tbody", *rows))
    said = tag("p", tag("b", f"{model}: "), found.sentence)
    turn = None
    if found.picture is not None:
        turn = picture(
            found.picture,
            "the picture at which the prediction changes",
            f"at {found.level:.3g} {found.direction.range.unit}",
        )
    shown = tag("div", turn, table if rows else None, class_="pair")
    return tag("section", said, shown, class_="found", role="status")


def flips_list(results: Results, flips: Flips | None) -> Markup:
    """Return the flips as buttons, each with its two pictures and predictions."""
    if flips is None or not flips.shown:
        return tag("p", "No correct prediction was turned into a wrong one here.", role="status")
    right = int(flips.counts["right"].sum())
    words = (
        f"{plural(flips.total, 'flip')} from right to wrong among {right:,} edited pictures whose photograph was "
        f"classified correctly; {len(flips.shown)} are shown, sampled evenly. Click one to enlarge it."
    )
    cards = [tag("li", _flip_button(results, flip, place)) for place, flip in enumerate(flips.shown)]
    return joined([tag("p", words, role="status"), tag("ul", *cards, class_="flips")])


def _flip_button(results: Results, flip: Flip, place: int) -> Markup:
    before, after = results.pair(flip)
    pictures: list[object] = ["no pictures available"]
    if before is not None and after is not None:
        pictures = [
            tag("img", src=data_address(before, 128), alt=f"photograph {flip.source_id}"),
            tag("img", src=data_address(after, 128), alt=f"the same under {flip.edit}"),
        ]
    said = (
        tag("b", flip.edit),
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
    what = f"{flip.edit} ({meaning})" if meaning else flip.edit
    shown: list[object] = []
    if before is not None and after is not None:
        shown.append(
            tag(
                "div",
                picture(before, f"photograph {flip.source_id}", f"{truth}, {percent(flip.before_probability)}: right"),
                picture(after, f"the same under {flip.edit}", f"{answer}, {percent(flip.after_probability)}: wrong"),
                class_="pair",
            )
        )
    if warm:
        shown.append(heat_pair(flip.model, warm, [truth, answer]))
    survives = None
    if flip.survives is not None:
        survives = tag(
            "p", f"{percent(flip.survives, 0)} of the object is inside the model's own crop.", class_="quiet"
        )
    title = tag("h2", f"{flip.source_id}: {what}, {flip.model}")
    return tag("section", title, *shown, message(note) if note else None, survives, class_="found")
