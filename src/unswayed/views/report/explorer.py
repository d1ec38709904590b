"""The explorer: every photograph's probability of the true class before and after an edit, and its pictures."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
from markupsafe import Markup

from unswayed.evaluation.facts import ORIGINAL

from .findings import Findings
from .pictures import Album, data_address
from .section import Section, render

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
        "explorer.html",
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
