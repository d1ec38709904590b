"""The gallery of right-to-wrong flips: photograph and edited picture side by side, filtered, opened in a dialog."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import numpy as np
import polars as pl
from markupsafe import Markup

from .findings import Findings
from .flips import Flip
from .gallery_pictures import SIDE, Album, data_address
from .html_table import chooser
from .markup import joined, tag
from .section import Section, paragraphs
from .words import percent, plural


def gallery_section(
    findings: Findings, album: Album, heat: dict[Flip, tuple[np.ndarray, np.ndarray]], notes: list[str]
) -> Section:
    """Return the gallery of sampled flips, each a button that opens it; heat: pictures with their heat maps."""
    flips = findings.flips
    table = pl.DataFrame([asdict(flip) for flip in flips.shown]) if flips.shown else pl.DataFrame()
    if not flips.shown:
        return Section("flips", "Right to wrong", paragraphs("No edit turned a correct prediction into a wrong one."))
    photographs = {
        source_id: (f"photograph-{number}", data_address(picture))
        for number, source_id in enumerate(dict.fromkeys(flip.source_id for flip in flips.shown))
        if (picture := album.picture(f"{source_id}/original/0")) is not None
    }
    cards = []
    for flip in flips.shown:
        picture = album.picture(flip.sample_id)
        after = None if picture is None else data_address(picture)
        cards.append(_card(findings, flip, photographs.get(flip.source_id, ("", ""))[0], after, heat.get(flip)))
    names = [findings.class_name(label) for label in dict.fromkeys(flip.label for flip in flips.shown)]
    filters = tag(
        "div",
        chooser("model", "Model", [m for m in findings.models if any(f.model == m for f in flips.shown)], "all models"),
        chooser("edit", "Edit", [e for e in findings.edits if any(f.edit == e for f in flips.shown)], "all edits"),
        chooser("class", "Class", sorted(set(names)), "all classes"),
        tag("output", "", aria_live="polite"),
        class_="filters",
        data_for="flips-list",
        data_noun="flips",
    )
    n = int(flips.counts["right"].sum())
    words = (
        f"{plural(flips.total, 'flip')} from right to wrong among {n:,} edited pictures whose photograph was "
        f"classified correctly (n counts each model separately); {len(flips.shown):,} are shown, sampled evenly over "
        "models and edits. Click one to enlarge it, with heat maps of what the model looked at."
    )
    missing = None if album.root else "The benchmark's pictures are not available: use --benchmark BENCH to show them."
    items = tag("ul", *cards, id="flips-list", class_="flips")
    body = joined([paragraphs(words, missing, *notes), filters, _store(photographs.values()), items])
    return Section("flips", "Right to wrong", body, tables={"flips": table})


def _store(photographs: Iterable[tuple[str, str]]) -> Markup:
    """Return every photograph once, hidden, for the cards to refer to, because many flips share one."""
    images = [tag("image", id=name, href=address, width=SIDE, height=SIDE) for name, address in photographs]
    return tag("svg", tag("defs", *images), class_="store", width=0, height=0, aria_hidden="true")


def _card(
    findings: Findings, flip: Flip, before: str, after: str | None, heat: tuple[np.ndarray, np.ndarray] | None
) -> Markup:
    truth, answer = findings.class_name(flip.label), findings.class_name(flip.after)
    pictures = [
        _referred(before, flip, "before"),
        tag("img", src=after, alt=f"the same under {flip.edit}", width=128, height=128, class_="after"),
    ]
    caption = tag(
        "span",
        tag("b", flip.edit),
        tag("span", flip.model, class_="quiet"),
        tag("span", f"{truth} {percent(flip.before_probability, 0)}"),
        tag("span", f"→ {answer} {percent(flip.after_probability, 0)}"),
        class_="said",
    )
    shown = tag("span", *(pictures if before and after else ["no pictures available"]), class_="pair")
    opener = tag("button", shown, caption, type="button", class_="flip", aria_haspopup="dialog")
    return tag(
        "li",
        opener,
        tag("template", _opened(findings, flip, before if after else "", heat)),
        data_model=flip.model,
        data_edit=flip.edit,
        data_class=truth,
    )


def _opened(findings: Findings, flip: Flip, before: str, heat: tuple[np.ndarray, np.ndarray] | None) -> Markup:
    """Return the content of the dialog; before: the stored photograph, empty if there are no pictures. The edited
    picture is copied from the button, so that the page contains it only once."""
    truth, answer = findings.class_name(flip.label), findings.class_name(flip.after)
    shown = []
    if before:
        shown.append(tag("figure", _referred(before, flip), tag("figcaption", "photograph")))
        if heat is not None:
            shown.append(_picture(f"evidence for “{truth}”", "heat map on the photograph", data_address(heat[0])))
        shown.append(_picture(flip.edit, f"the same under {flip.edit}", copy="after"))
        if heat is not None:
            shown.append(_picture(f"evidence for “{answer}”", "heat map on the edited picture", data_address(heat[1])))
    still, meaning = flip.after_true_probability, findings.facts.describe(flip.edit)
    facts = [
        ("Model", flip.model),
        ("Edit", joined([flip.edit, f" ({meaning})" if meaning else None])),
        ("Photograph", flip.source_id),
        ("Before", joined([_bar(flip.before_probability), f"{truth}, {percent(flip.before_probability)}: right"])),
        ("After", joined([_bar(flip.after_probability), f"{answer}, {percent(flip.after_probability)}: wrong"])),
        ("True class after", None if still is None else joined([_bar(still), f"{truth}, {percent(still)}"])),
        ("Object inside the model's crop", None if flip.survives is None else percent(flip.survives, 0)),
    ]
    listing = tag("dl", *(joined([tag("dt", key), tag("dd", value)]) for key, value in facts if value is not None))
    return joined([tag("h3", f"{flip.source_id}, {flip.edit}"), tag("div", *shown, class_="four"), listing])


def _referred(name: str, flip: Flip, kind: str | None = None) -> Markup:
    """Return a reference to the stored photograph."""
    use = tag("use", href=f"#{name}")
    return tag(
        "svg", use, role="img", aria_label=f"photograph {flip.source_id}", viewBox=f"0 0 {SIDE} {SIDE}", class_=kind
    )


def _picture(caption: str, words: str, address: str | None = None, copy: str | None = None) -> Markup:
    image = tag("img", src=address, alt=words, data_copy=copy, width=256, height=256)
    return tag("figure", image, tag("figcaption", caption))


def _bar(share: float) -> Markup:
    return tag("span", tag("span", style=f"width: {100 * share:.1f}%"), class_="bar", aria_hidden="true")
