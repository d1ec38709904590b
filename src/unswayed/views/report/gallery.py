"""Single photographs: the gallery of flips with what is to blame, and the explorer of every photograph."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
import polars as pl
from markupsafe import Markup

from unswayed.analyses.flips import Draw, Flip
from unswayed.evaluation.facts import ORIGINAL
from unswayed.evaluation.predictions import HeatMaps, PicturePair, each_model
from unswayed.files.whole import Json
from unswayed.labels import words_of
from unswayed.views.text import data_address, joined, percent, plural, render

from .findings import Findings
from .pictures import SIDE, marked, overlay, picture_sheet
from .section import Section, figure_bytes, paragraphs, short
from .sections import missing_words


def gallery_section(findings: Findings, heat: Mapping[Flip, HeatMaps], notes: list[str], draw: Draw) -> Section:
    """Return the gallery of the chosen flips, each a button that opens it; heat: pictures with their heat maps."""
    flips = findings.flips.shown
    if not flips:
        return Section("flips", "Right to wrong", paragraphs("No edit turned a correct prediction into a wrong one."))
    shown = [(flip, sample) for flip in flips for sample in (_before(flip), flip.control_id) if sample is not None]
    plain = findings.album.pictures([*(sample for _, sample in shown), *(flip.sample_id for flip in flips)])
    pictures = plain | _marked(findings, plain, flips)
    wanted = [_key(findings, flip, sample) for flip, sample in shown]
    # Every photograph is in the page once, hidden, for the cards to refer to, because many flips share one.
    store = {
        sample: f"photograph-{number}" for number, sample in enumerate(dict.fromkeys(wanted)) if sample in pictures
    }
    cards = [_card(findings, flip, store, pictures, heat.get(flip)) for flip in flips]
    total, n, gained = (int(findings.changes[name].sum()) for name in ("flips", "right", "gained"))
    chosen = (
        "sampled evenly over models and edits"
        if draw == "even"
        else "those whose true class lost most probability, at most two of one photograph"
    )
    words = (
        f"{plural(total, 'flip')} from right to wrong among {n:,} edited pictures whose photograph the "
        f"model got right, and {gained:,} from wrong to right (counted for each model). "
        f"{sum(not flip.gained for flip in flips):,} and {sum(flip.gained for flip in flips):,} are shown: {chosen}. "
        "Press one to enlarge it."
    )
    missing = None if store else missing_words(findings.album)
    stored = {name: pictures[sample] for sample, name in store.items()}
    items = render("sections.html", "gallery", cards=cards, store=stored, side=SIDE)
    body = joined(paragraphs(words, missing, *notes), items)
    table = pl.DataFrame([asdict(flip) for flip in flips], infer_schema_length=None)
    return Section("flips", "Right to wrong, and back", body, tables={"flips": table})


def _blame(flip: Flip) -> str:
    """Return what is to blame for a flip: the change itself, or the rendering, which the control shows.

    Reinsertion covers the filled area again, so that it cannot tell that area from the change.
    """
    if flip.gained or flip.control_correct is None:
        return ""
    change = "the change or the filled area" if flip.control == "reinsertion" else "the change"
    return f"{change}: control right" if flip.control_correct else "the rendering: control wrong already"


def _before(flip: Flip) -> str:
    return f"{flip.source_id}/original/0"


def _key(findings: Findings, flip: Flip, sample: str) -> str:
    """Return the name of a picture: models that find something have it with their marks."""
    return sample if findings.tasks[flip.model] not in ("detect", "segment") else f"{sample} for {flip.model}"


def _marked(findings: Findings, plain: Mapping[str, np.ndarray], flips: Sequence[Flip]) -> dict[str, np.ndarray]:
    """Return the pictures of flips with the boxes and masks of the detectors and segmenters, by their names."""
    from unswayed.sources.coco import run_length_mask

    wanted = {
        (flip.model, sample): _key(findings, flip, sample)
        for flip in flips
        for sample in (_before(flip), flip.control_id or "", flip.sample_id)
        if sample in plain and _key(findings, flip, sample) != sample
    }
    stored = {str(findings.facts.cards[model].get("model", model)): model for model, _ in wanted}
    marks = {}
    columns = ("model", "sample_id", "correct", "box", "mask")
    for name, rows in each_model(findings.predictions, columns, models=list(stored)) if stored else ():
        samples = [sample for model, sample in wanted if model == stored[name]]
        for _, sample, right, box, runs in rows.filter(pl.col("sample_id").is_in(samples)).iter_rows():
            picture = plain[sample]
            region = None if runs is None else run_length_mask(runs, *picture.shape[:2]) > 0
            drawn = marked(picture, findings.album.mask(sample), box, region, bool(right))
            marks[wanted[stored[name], sample]] = drawn
    return marks


def _card(
    findings: Findings, flip: Flip, store: Mapping[str, str], pictures: Mapping[str, np.ndarray], heat: HeatMaps | None
) -> Json:
    """Return what the card of a flip and its dialog show; store: the names of the stored pictures."""
    words, near = words_of(findings.tasks[flip.model]), ""
    if not flip.gained and flip.same_superclass is not None:
        near = "same superclass" if flip.same_superclass else "other superclass"
    labels = {"class": flip.label, "before": flip.before, "answer": flip.after, "control_answer": flip.control_answer}
    meaning = findings.meanings.get(flip.edit, "")
    return {
        "flip": flip,
        "right": words.right,
        "wrong": words.wrong,
        "spec": findings.spec(flip.model),
        "edit": findings.words[flip.edit],
        "meaning": f" ({meaning})" if meaning else "",
        "control_words": findings.words.get(flip.control or "", flip.control),
        **{name: None if label is None else findings.facts.class_name(label) for name, label in labels.items()},
        "change": f"{words.wrong} to {words.right}" if flip.gained else f"{words.right} to {words.wrong}",
        "blame": _blame(flip),
        "near": near,
        "photograph": store.get(_key(findings, flip, _before(flip))),
        "control": store.get(_key(findings, flip, flip.control_id or "")),
        "edited": pictures.get(_key(findings, flip, flip.sample_id)),
        "heat": heat or (),
    }


MOST_TOGETHER, MOST_MODELS = 3, 6  # flips and models side by side


def flips_of_every_model(findings: Findings) -> list[list[Flip]]:
    """Return a few flips as every model saw the same two pictures; first those on which about half were wrong."""
    models = findings.models[:MOST_MODELS]
    lost = {flip.source_id: flip for flip in reversed(findings.flips.shown) if not flip.gained}
    together = []
    for flip in reversed(lost.values()) if len(models) > 1 else ():
        ours = (pl.col("source_id") == flip.source_id) & pl.col("edit").cast(pl.String).is_in([flip.edit, ORIGINAL])
        rows = findings.answers.filter(ours & pl.col("run").is_in([0, flip.run])).sort("run")
        answers = rows.select(pl.col("model", "edit").cast(pl.String), "predicted", "probability")
        seen = answers.rows_by_key(["model", "edit"], unique=True)
        if all((model, edit) in seen for model in models for edit in (flip.edit, ORIGINAL)):
            views = []
            for model in models:
                (before, sure), (after, still) = seen[model, ORIGINAL], seen[model, flip.edit]
                said = {"before": before, "before_probability": sure, "after": after, "after_probability": still}
                views.append(replace(flip, model=model, **said))
            together.append(views)
    wrong = [sum(view.after != view.label for view in views) for views in together]
    order = np.argsort([abs(count - len(models) / 2) for count in wrong], kind="stable")[:MOST_TOGETHER]
    return [together[index] for index in order]


def models_section(
    findings: Findings, together: Sequence[Sequence[Flip]], heat: Mapping[Flip, HeatMaps]
) -> Section | None:
    """Return a few flips under every model side by side, with the heat maps that there are; None without pictures."""
    from PIL import Image

    rows = []
    for views in zip(*together, strict=True):
        pictures: list[np.ndarray] = []
        texts: list[str] = []
        for flip in views:
            samples = _before(flip), flip.sample_id
            plain = findings.album.pictures(samples)
            if len(plain) < 2:
                return None
            pictures += heat.get(flip, [plain[sample] for sample in samples])
            for label, share in ((flip.before, flip.before_probability), (flip.after, flip.after_probability)):
                mark = "right" if label == flip.label else "wrong"
                texts.append(f"{short(findings.facts.class_name(label))}, {percent(share)}\n{mark}")
        rows.append((pictures, texts))
    if not rows:
        return None
    shown = "; ".join(
        f"{findings.facts.class_name(views[0].label)}, {findings.words[views[0].edit]}" for views in together
    )
    figure = picture_sheet(rows, [short(view.model) for view in together[0]])
    caption = f"Before and after: {shown}. The same pictures for every model, those on which they disagree most."
    drawn = np.asarray(Image.open(io.BytesIO(figure_bytes(figure, "png"))).convert("RGB"))
    body = render("sections.html", "whole_picture", picture=drawn, side=drawn.shape[1], caption=caption)
    return Section("models", "One picture, several models", body, {"models": figure})


Explanation = tuple[list[HeatMaps | None], list[str]]  # heat maps in order, notes
# Such as `evaluation.heat.explain_pairs`: (pairs, cards by model, progress) -> heat maps and notes.
Explain = Callable[[Sequence[PicturePair], Mapping[str, Json], Callable[[], None]], Explanation]


def heat_maps_of_flips(
    findings: Findings,
    most: int,
    together: Sequence[Sequence[Flip]],
    explain: Explain | None,
    progress: Callable[[], None],
) -> tuple[dict[Flip, HeatMaps], list[str]]:
    """Return the photograph and the edited picture of some flips with the heat maps of the predictions, and notes.

    most: of the flips that are shown, evenly spaced; together: more of them, unless `most` is 0.
    """
    if explain is None or not most:
        return {}, []
    shown = findings.flips.shown
    count = min(most, len(shown))
    flips = [shown[index * len(shown) // count] for index in range(count)]
    pairs: dict[Flip, PicturePair] = {}
    for flip in dict.fromkeys([*flips, *(view for views in together for view in views)]):
        before, after = _before(flip), flip.sample_id
        pictures = findings.album.pictures((before, after))
        if len(pictures) == 2:
            pairs[flip] = PicturePair(
                flip.model, flip.source_id, flip.edit, flip.label, pictures[before], pictures[after]
            )
    maps, notes = explain(list(pairs.values()), findings.facts.cards, progress) if pairs else ([], [])
    drawn = zip(pairs.items(), maps, strict=True)
    heat = {flip: (overlay(pair.before, two[0]), overlay(pair.after, two[1])) for (flip, pair), two in drawn if two}
    return heat, notes


# Predictions in the page: about eight bytes each. With more, photographs are drawn at random.
_PREDICTIONS = 120_000
# Bytes of the pictures in the page, which has at most eight million of all kinds.
_BUDGET = 3_400_000
_SIDE = 112
_IN_PLACE = 8  # flips below the matrix, as in page.js
_WIDEST = 140  # pictures side by side in one file: WebP allows 16,383 pixels


def explorer_section(findings: Findings, data: Json, shown: int) -> Section | None:
    """Return the scatter that the page's script draws from `data`; None without probabilities; shown: photographs."""
    if "points" not in data:
        return None
    total, numbers = findings.answers["source_id"].n_unique(), len(data["photographs"])
    body = render("sections.html", "explorer", findings=findings, total=total, shown=numbers, pictures=shown)
    return Section("explorer", "Every photograph", body)


def page_data(findings: Findings) -> Json:
    """Return what the page's script reads: names, counts of flips, and the predictions for every photograph."""
    flips = findings.flips.counts.select("model", "edit", "flips", "controlled", "control_wrong", "gained")
    data: dict[str, object] = {
        "models": findings.models,
        "edits": findings.edits,
        "words": findings.words,
        "places": findings.series,
        "counts": {f"{row[0]}\n{row[1]}": row[2:] for row in flips.iter_rows()},
    }
    if "true_probability" in findings.answers.columns and findings.edits:
        data |= _points(findings)
    return data


def _points(findings: Findings) -> dict[str, object]:
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
    drawn = pl.Series(ids).cast(pl.String)
    rows = rows.filter(pl.col("source_id").cast(pl.String).is_in(drawn.implode())).with_columns(names.cast(pl.String))
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
        "classes": {str(label): findings.facts.class_name(label) for label in sorted(used)},
        "controls": findings.controls,
        "points": points,
    }


def pictures_of(findings: Findings, data: Json) -> dict[int, str]:
    """Return one picture for each photograph, by its number in `data`: the original and all edits side by side.

    First come the flips that a pressed cell of the matrix shows, then the photographs with the largest losses of
    probability, until the budget is used up.
    """
    if "points" not in data or findings.album.root is None:
        return {}
    labels = np.array([label for _, label in data["photographs"]])
    loss, leading = np.zeros(len(labels)), np.zeros(len(labels), bool)
    for key, (after, answers) in data["points"].items():
        before = data["points"].get(f"{key.partition(chr(10))[0]}\n{ORIGINAL}")
        if before is not None:
            shares = zip(before[0], after, strict=True)
            lost = np.array([-1 if None in pair else max(0, pair[0] - pair[1]) for pair in shares])
            loss += np.maximum(lost, 0)
            flipped = np.flatnonzero((np.array(before[1]) == labels) & (np.array(answers) != labels) & (lost >= 0))
            leading[flipped[np.argsort(-lost[flipped], kind="stable")[:_IN_PLACE]]] = True
    strips: dict[int, str] = {}
    spent = 0
    for number in np.lexsort((-loss, ~leading)).tolist():
        strip = _strip(findings, data["photographs"][number][0], [ORIGINAL, *findings.edits][:_WIDEST])
        if strip is None:
            continue
        spent += len(strip)
        if spent > _BUDGET:
            break
        strips[number] = strip
    return strips


def _strip(findings: Findings, source_id: str, edits: list[str]) -> str | None:
    """Return the pictures of one photograph side by side as a `data:` URL; missing ones are left white."""
    from PIL import Image

    strip = np.full((_SIDE, _SIDE * len(edits), 3), 255, np.uint8)
    places = {f"{source_id}/{edit}/0": number * _SIDE for number, edit in enumerate(edits)}
    pictures = findings.album.pictures(places)
    for sample_id, picture in pictures.items():
        small = Image.fromarray(picture).resize((_SIDE, _SIDE), Image.Resampling.BOX)
        strip[:, places[sample_id] : places[sample_id] + _SIDE] = np.asarray(small)
    return data_address(strip, strip.shape[1], quality=45) if pictures else None


def as_script(data: dict[str, object]) -> Markup:
    """Return the data as JSON for a script element: no `<` can end the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))
