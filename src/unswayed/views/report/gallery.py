"""Single photographs: the gallery of flips with what is to blame, and the explorer of every photograph."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from markupsafe import Markup

from unswayed.analyses.flips import Draw, Flip
from unswayed.evaluation.facts import ORIGINAL
from unswayed.views.text import joined, percent, plural, tag

from .findings import Findings
from .pictures import SIDE, Album, data_address, overlay
from .section import Section, chooser, filtered, paragraphs, render
from .sections import missing_words

LOST, GAINED = "right to wrong", "wrong to right"


def gallery_section(
    findings: Findings, album: Album, heat: dict[Flip, tuple[np.ndarray, np.ndarray]], notes: list[str], draw: Draw
) -> Section:
    """Return the gallery of the chosen flips, each a button that opens it; heat: pictures with their heat maps."""
    flips = findings.flips.shown
    if not flips:
        return Section("flips", "Right to wrong", paragraphs("No edit turned a correct prediction into a wrong one."))
    wanted = [f"{flip.source_id}/original/0" for flip in flips]
    wanted += [flip.control_id for flip in flips if flip.control_id is not None]
    pictures = album.pictures([*wanted, *(flip.sample_id for flip in flips)])
    store = {
        sample: (f"photograph-{number}", data_address(pictures[sample]))
        for number, sample in enumerate(dict.fromkeys(wanted))
        if sample in pictures
    }
    names = {sample: name for sample, (name, _) in store.items()}
    cards = []
    for flip in flips:
        after = data_address(pictures[flip.sample_id]) if flip.sample_id in pictures else None
        cards.append(_card(findings, flip, names, after, heat.get(flip)))
    classes = sorted({findings.class_name(flip.label) for flip in flips})
    filters = filtered(
        "flips-list",
        "flips",
        chooser("change", "Change", sorted({_change(flip) for flip in flips}), "all"),
        chooser("blame", "Blame", sorted({_blame(flip) for flip in flips} - {""}), "all"),
        chooser("near", "Mistake", sorted({_near(flip) for flip in flips} - {""}), "all"),
        chooser("class", "Class", classes, "all classes"),
    )
    total, n, gained = (int(findings.changes[name].sum()) for name in ("flips", "right", "gained"))
    chosen = (
        "sampled evenly over models and edits"
        if draw == "even"
        else "those whose true class lost most probability, at most two of one photograph"
    )
    words = (
        f"{plural(total, 'flip')} from right to wrong among {n:,} edited pictures whose photograph was "
        f"classified correctly, and {gained:,} from wrong to right (n counts each model separately). "
        f"{sum(not flip.gained for flip in flips):,} and {sum(flip.gained for flip in flips):,} are shown: {chosen}. "
        "Press one to enlarge it."
    )
    missing = None if store else missing_words(album)
    items = tag("ul", *cards, id="flips-list", class_="flips")
    body = joined([paragraphs(words, missing, *notes), filters, _store(store.values()), items])
    table = pl.DataFrame([asdict(flip) for flip in flips], infer_schema_length=None)
    return Section("flips", "Right to wrong, and back", body, tables={"flips": table})


def _change(flip: Flip) -> str:
    return GAINED if flip.gained else LOST


def _blame(flip: Flip) -> str:
    """Return what is to blame for a flip: the change itself, or the rendering, which the control shows."""
    if flip.gained or flip.control_correct is None:
        return ""
    return "the change: control right" if flip.control_correct else "the rendering: control wrong already"


def _near(flip: Flip) -> str:
    if flip.gained or flip.same_superclass is None:
        return ""
    return "same superclass" if flip.same_superclass else "other superclass"


def _store(photographs: Iterable[tuple[str, str]]) -> Markup:
    """Return every photograph once, hidden, for the cards to refer to, because many flips share one."""
    images = [tag("image", id=name, href=address, width=SIDE, height=SIDE) for name, address in photographs]
    return tag("svg", tag("defs", *images), class_="store", width=0, height=0, aria_hidden="true")


def _card(
    findings: Findings,
    flip: Flip,
    store: dict[str, str],
    after: str | None,
    heat: tuple[np.ndarray, np.ndarray] | None,
) -> Markup:
    before, answer = findings.class_name(flip.before), findings.class_name(flip.after)
    photograph = store.get(f"{flip.source_id}/original/0", "")
    pictures = [
        _referred(photograph, f"photograph {flip.source_id}", "before"),
        tag("img", src=after, alt=f"the same under {flip.edit}", width=128, height=128, class_="after"),
    ]
    badges = [
        tag("span", text, class_=f"badge {kind}")
        for text, kind in (
            (GAINED if flip.gained else "", "gained"),
            ("control wrong already" if flip.control_correct is False and not flip.gained else "", "blamed"),
            ("same superclass" if _near(flip) == "same superclass" else "", "near"),
        )
        if text
    ]
    caption = tag(
        "span",
        tag("b", flip.edit),
        tag("span", flip.model, class_="quiet"),
        tag("span", f"{before} {percent(flip.before_probability, 0)}"),
        tag("span", f"→ {answer} {percent(flip.after_probability, 0)}"),
        tag("span", *badges, class_="badges"),
        class_="said",
    )
    shown = tag("span", *pictures, class_="pair") if photograph and after else None
    opener = tag("button", shown, caption, type="button", class_="flip", aria_haspopup="dialog")
    return tag(
        "li",
        opener,
        tag("template", _opened(findings, flip, store if after else {}, heat)),
        data_key=f"{flip.model}/{flip.sample_id}",
        data_model=flip.model,
        data_edit=flip.edit,
        data_class=findings.class_name(flip.label),
        data_change=_change(flip),
        data_blame=_blame(flip),
        data_near=_near(flip),
    )


def _opened(
    findings: Findings, flip: Flip, store: dict[str, str], heat: tuple[np.ndarray, np.ndarray] | None
) -> Markup:
    """Return the content of the dialog; store: the stored pictures, empty if there are none. The edited picture is
    copied from the button, so that the page contains it only once."""
    truth, before, answer = (findings.class_name(label) for label in (flip.label, flip.before, flip.after))
    shown = []
    if store:
        photograph = _referred(store[f"{flip.source_id}/original/0"], f"photograph {flip.source_id}")
        shown.append(tag("figure", photograph, tag("figcaption", "photograph")))
        if flip.control_id is not None and flip.control_id in store:
            picture = _referred(store[flip.control_id], f"control {flip.control}")
            shown.append(tag("figure", picture, tag("figcaption", f"control: {flip.control}")))
        shown.append(_picture(flip.edit, f"the same under {flip.edit}", copy="after"))
        if heat is not None:
            shown.append(_picture(f"evidence for “{before}”", "heat map on the photograph", data_address(heat[0])))
            shown.append(_picture(f"evidence for “{answer}”", "heat map on the edited picture", data_address(heat[1])))
    still, meaning = flip.after_true_probability, findings.meanings.get(flip.edit, "")
    control = None
    if flip.control_answer is not None and flip.control_probability is not None:
        control = _answer(
            findings.class_name(flip.control_answer), flip.control_probability, flip.control_correct is True
        )
    facts = [
        ("Model", flip.model),
        ("Edit", joined([flip.edit, f" ({meaning})" if meaning else None])),
        ("True class", truth),
        ("Before", _answer(before, flip.before_probability, not flip.gained)),
        ("In the control", control),
        ("After", _answer(answer, flip.after_probability, flip.gained)),
        ("True class after", None if still is None else joined([_bar(still), f"{truth}, {percent(still)}"])),
        ("To blame", _blame(flip) or None),
        ("Kind of mistake", _near(flip) or None),
        ("Object inside the model's crop", None if flip.survives is None else percent(flip.survives, 0)),
    ]
    listing = tag("dl", *(joined([tag("dt", key), tag("dd", value)]) for key, value in facts if value is not None))
    return joined([tag("h3", f"{flip.source_id}, {flip.edit}"), tag("div", *shown, class_="four"), listing])


def _answer(name: str, share: float, right: bool) -> Markup:
    return joined([_bar(share), f"{name}, {percent(share)}: {'right' if right else 'wrong'}"])


def _referred(name: str, words: str, kind: str | None = None) -> Markup:
    use = tag("use", href=f"#{name}")
    return tag("svg", use, role="img", aria_label=words, viewBox=f"0 0 {SIDE} {SIDE}", class_=kind)


def _picture(caption: str, words: str, address: str | None = None, copy: str | None = None) -> Markup:
    image = tag("img", src=address, alt=words, data_copy=copy, width=256, height=256)
    return tag("figure", image, tag("figcaption", caption))


def _bar(share: float) -> Markup:
    return tag("span", tag("span", style=f"width: {100 * share:.1f}%"), class_="bar", aria_hidden="true")


@dataclass(eq=False)
class PicturePair:
    """A photograph and its edit, (H, W, 3) uint8 each, that one model classified; the label is the true one."""

    model: str
    source_id: str
    edit: str
    label: int
    before: np.ndarray
    after: np.ndarray


HeatMaps = tuple[np.ndarray, np.ndarray]
# Such as `evaluation.heat.explain_pairs`: (pairs, cards by model, progress) -> heat maps in order, notes.
Explain = Callable[
    [Sequence[PicturePair], Mapping[str, Mapping[str, Any]], Callable[[], None]],
    tuple[list[HeatMaps | None], list[str]],
]


def heat_maps_of_flips(
    findings: Findings, album: Album, flips: Sequence[Flip], explain: Explain | None, progress: Callable[[], None]
) -> tuple[dict[Flip, HeatMaps], list[str]]:
    """Return the photograph and the edited picture of each flip with the heat maps of the predictions, and notes."""
    if explain is None or not flips:
        return {}, []
    pairs: dict[Flip, PicturePair] = {}
    for flip in flips:
        before, after = f"{flip.source_id}/original/0", flip.sample_id
        pictures = album.pictures((before, after))
        if len(pictures) == 2:
            pairs[flip] = PicturePair(
                flip.model, flip.source_id, flip.edit, flip.label, pictures[before], pictures[after]
            )
    maps, notes = explain(list(pairs.values()), findings.facts.cards, progress)
    heat = {}
    for (flip, pair), both in zip(pairs.items(), maps, strict=True):
        if both is not None:
            heat[flip] = overlay(pair.before, both[0]), overlay(pair.after, both[1])
    return heat, notes


# Predictions in the page: about eight bytes each. With more, photographs are drawn at random.
_PREDICTIONS = 120_000
# Bytes of the pictures in the page, which has at most eight million of all kinds.
_BUDGET = 3_400_000
_SIDE = 112
_WIDEST = 140  # pictures side by side in one file: WebP allows 16,383 pixels


def explorer_section(findings: Findings, data: dict[str, Any], shown: int) -> Section | None:
    """Return the scatter that the page's script draws from `data`; None without probabilities; shown: photographs."""
    if "points" not in data:
        return None
    body = render(
        "sections.html",
        "explorer",
        models=findings.models,
        edits=findings.edits,
        total=findings.answers["source_id"].n_unique(),
        shown=len(data["photographs"]),
        pictures=shown,
    )
    return Section("explorer", "Every photograph", body)


def page_data(findings: Findings) -> dict[str, Any]:
    """Return what the page's script reads: names, counts of flips, and the predictions for every photograph."""
    flips = findings.flips.counts.select("model", "edit", "flips", "controlled", "control_wrong", "gained")
    data: dict[str, Any] = {
        "models": findings.models,
        "edits": findings.edits,
        "places": findings.series,
        "counts": {f"{row[0]}\n{row[1]}": row[2:] for row in flips.iter_rows()},
    }
    if "true_probability" in findings.answers.columns and findings.edits:
        data |= _points(findings)
    return data


def _points(findings: Findings) -> dict[str, Any]:
    """Return the predictions: for each model and edit the true class's probability in thousandths and the answer."""
    edits = [ORIGINAL, *findings.edits]
    names = pl.col("model", "edit", "source_id")
    shown = pl.col("edit").cast(pl.String).is_in(edits) & (pl.col("run") == 0)
    known = shown & pl.all_horizontal(pl.col("true_probability", "label").is_not_null())
    rows = findings.answers.select(names, "run", "label", "predicted", "true_probability").filter(known)
    # Names become text once few photographs are left: as text, the names of all predictions take a gigabyte.
    originals = rows.filter(pl.col("edit") == ORIGINAL)["source_id"].unique().cast(pl.String)
    ids = np.array(originals.sort().to_list())
    most = max(50, _PREDICTIONS // (len(findings.models) * len(edits)))
    if len(ids) > most:
        ids = np.sort(np.random.default_rng(0).choice(ids, most, replace=False))
    place = pl.Series(ids).cast(pl.String)
    rows = rows.filter(pl.col("source_id").cast(pl.String).is_in(place.implode())).with_columns(names.cast(pl.String))
    number = {source_id: index for index, source_id in enumerate(ids.tolist())}
    points: dict[str, list[list[int | None]]] = {}
    for (model, edit), part in rows.group_by("model", "edit", maintain_order=True):
        probability: list[int | None] = [None] * len(ids)
        answer: list[int | None] = [None] * len(ids)
        for source, share, predicted in part.select("source_id", "true_probability", "predicted").iter_rows():
            probability[number[source]], answer[number[source]] = round(1000 * share), predicted
        points[f"{model}\n{edit}"] = [probability, answer]
    labels = dict(rows.unique("source_id").select("source_id", "label").iter_rows())
    used = {label for _, answer in points.values() for label in answer if label is not None} | set(labels.values())
    return {
        "photographs": [[source_id, labels[source_id]] for source_id in ids.tolist()],
        "classes": {str(label): findings.class_name(label) for label in sorted(used)},
        "controls": findings.controls,
        "points": points,
    }


def pictures_of(findings: Findings, album: Album, data: dict[str, Any]) -> dict[int, str]:
    """Return one picture for each photograph, by its number in `data`: the original and all edits side by side.

    The photographs with the largest losses of probability come first, until the budget is used up.
    """
    if "points" not in data or album.root is None:
        return {}
    loss = np.zeros(len(data["photographs"]))
    for key, (after, _) in data["points"].items():
        before = data["points"].get(f"{key.partition(chr(10))[0]}\n{ORIGINAL}")
        if before is not None:
            shares = zip(before[0], after, strict=True)
            loss += [0 if None in pair else max(0, pair[0] - pair[1]) for pair in shares]
    strips: dict[int, str] = {}
    spent = 0
    for number in np.argsort(-loss, kind="stable").tolist():
        strip = _strip(album, data["photographs"][number][0], [ORIGINAL, *findings.edits][:_WIDEST])
        if strip is None:
            continue
        spent += len(strip)
        if spent > _BUDGET:
            break
        strips[number] = strip
    return strips


def _strip(album: Album, source_id: str, edits: list[str]) -> str | None:
    """Return the pictures of one photograph side by side as a `data:` URL; missing ones are left white."""
    from PIL import Image

    strip = np.full((_SIDE, _SIDE * len(edits), 3), 255, np.uint8)
    places = {f"{source_id}/{edit}/0": number * _SIDE for number, edit in enumerate(edits)}
    pictures = album.pictures(places)
    for sample_id, picture in pictures.items():
        small = Image.fromarray(picture).resize((_SIDE, _SIDE), Image.Resampling.BOX)
        strip[:, places[sample_id] : places[sample_id] + _SIDE] = np.asarray(small)
    return data_address(strip, strip.shape[1], quality=45) if pictures else None


def as_script(data: dict[str, Any]) -> Markup:
    """Return the data as JSON for a script element: no `<` can end the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))
