"""The sections about dropped accuracy: figure and table by edit, accuracy against drop, curves, what the edits do."""

from __future__ import annotations

from typing import Any

import polars as pl
from markupsafe import Markup

from unswayed.analyses.drops.drop import differs
from unswayed.analyses.drops.outcomes import TOO_FEW_TO_RANK
from unswayed.edits import edit_named_in
from unswayed.evaluation.facts import AVERAGE
from unswayed.views.text import interval, joined, plural, points, probability, tag

from .figures_drops import accuracy_and_drop, axis_label, curve_figure, drop_figure
from .findings import Findings
from .gallery_pictures import THUMBNAIL, Album, data_address
from .html_table import Cell, Line, filtered, sortable
from .palette import MOST
from .section import Section, figure_block, paragraphs

_SCENES = 6


def drops_section(findings: Findings) -> Section:
    """Return the drop by edit for every model, with intervals: a figure and a table that sorts and filters."""
    groups = _groups(findings)
    figure, narrow = (drop_figure(findings.drops, groups, findings.series, narrow=small) for small in (False, True))
    description = (
        f"Points of accuracy lost by {plural(len(findings.series), 'model')} under "
        f"{plural(len(findings.edits), 'edit')}, net of the control, with 95 % intervals; the table below contains "
        "every number."
    )
    caption = "Drop net of the control by edit, grouped by attribute, the worst first; controls last."
    if len(findings.models) > MOST:
        caption += f" The {MOST // 2} models that drop least and the {MOST // 2} that drop most."
    body = joined(
        [
            figure_block(figure, "drops", description, caption, narrow),
            filtered("drops-table", "rows"),
            _table(findings),
            _notes(findings),
        ]
    )
    tables = {"drops": findings.drops, "crops": findings.flips.counts}
    if findings.framing.height:
        tables["framing"] = findings.framing
    return Section("drops", "Drop by edit", body, {"drops": figure, "drops-narrow": narrow}, tables)


def _groups(findings: Findings) -> list[list[str]]:
    """Return the average, the edits of each attribute and the controls; the attribute with the worst edit first."""
    groups: dict[str, list[str]] = {}
    for edit in findings.edits:
        named = edit_named_in(edit)
        attribute = edit if named is None else named.name
        groups.setdefault("control" if findings.kind(edit) == "control" else attribute, []).append(edit)
    return [*([[AVERAGE]] if findings.averages else []), *groups.values()]


def _notes(findings: Findings) -> Markup:
    drops = findings.drops
    return paragraphs(
        "A drop is the accuracy on the originals minus that on the edited pictures of the same photographs, in points: "
        "5 points are 5 more wrong predictions per hundred pictures. The net drop is measured against the edit's "
        "control instead, which is rendered in the same way without the change; an edit that renders nothing else "
        "needs no control. p is from McNemar's exact test (one run) or a sign-flip test (several runs) of the net "
        "drop, with Holm's correction over the whole table.",
        "A raw drop stands in for a net drop where the control was not evaluated." if drops["raw"].any() else None,
        "White-box marks a model that the adversarial background attacks; the edit is left out of the averages of all "
        "models."
        if drops["white_box"].any()
        else None,
        "The drop on valid pictures leaves out those whose measured validity is below 0.5 "
        "(the column `validity` of the manifest)."
        if differs(drops)
        else None,
        "Human accuracy is how often people could tell the object (unswayed review): the ceiling for a model."
        if "human_accuracy" in drops.columns
        else None,
        _framing_words(findings),
        _crop_words(findings),
    )


def _framing_words(findings: Findings) -> str | None:
    if findings.framing.is_empty():
        return None
    parts = [
        f"{row['model']} {points(row['drop'])} ({interval(row['low'], row['high'])})"
        for row in findings.framing.head(MOST).iter_rows(named=True)
    ]
    return f"Framing the source files as squares (source to original) costs {', '.join(parts)} points."


def _table(findings: Findings) -> Markup:
    drops = findings.drops
    published = "published" in drops.columns and drops["published"].is_not_null().any()
    valid, human = differs(drops), "human_accuracy" in drops.columns
    headings = ["model", "edit", "n", "net drop, points", "95 % interval", "p (Holm)", "raw drop, points"]
    headings += ["raw 95 % interval", "accuracy, %", "true-class probability, %", *(["published"] if published else [])]
    headings += [*(["drop on valid pictures, points"] if valid else []), *(["human accuracy, %"] if human else [])]
    order = {model: number for number, model in enumerate(findings.models)}
    place = {edit: number for number, edit in enumerate(["original", AVERAGE, *findings.edits])}
    shown = drops.filter(pl.col("kind") != "source").sort(
        pl.col("model").replace_strict(order), pl.col("edit").replace_strict(place, default=len(place))
    )
    lines = []
    for row in shown.iter_rows(named=True):
        lacks = row["kind"] in ("control", "original")
        cells = [
            Cell(row["model"], title=findings.spec(row["model"])),
            Cell(row["edit"], note="white-box" if row["white_box"] else _kind(row)),
            Cell(f"{row['n']:,}", row["n"]),
            Cell("–") if lacks else Cell(points(row["effect"]), row["effect"], note="raw" if row["raw"] else None),
            Cell("–") if lacks else Cell(interval(row["effect_low"], row["effect_high"]), row["effect_low"]),
            Cell(probability(row["effect_p"]), row["effect_p"]),
            Cell(points(row["drop"]), row["drop"], faint=True),
            Cell(interval(row["low"], row["high"]), row["low"], faint=True),
            Cell(points(100 * row["accuracy"]), row["accuracy"]),
            _percentage(findings.flips.probabilities.get((row["model"], row["edit"]))),
        ]
        if published:
            cells.append(Cell(points(row["published"]), row["published"], note=row["published_model"]))
        if valid:
            cells.append(Cell(points(row["valid_drop"]), row["valid_drop"], note=_of_valid(row["valid_n"])))
        if human:
            cells.append(_percentage(row["human_accuracy"]))
        lines.append(Line(cells, {"model": row["model"], "edit": row["edit"]}))
    caption = f"Drop and accuracy of {plural(len(findings.models), 'model')}; press a heading to sort."
    return sortable("drops-table", caption, headings, lines, frozenset(range(2, len(headings))))


def _of_valid(n: int | None) -> str:
    return "" if n is None else f"n = {n:,}"


def _percentage(share: float | None) -> Cell:
    return Cell("–") if share is None else Cell(points(100 * share), share)


def _kind(row: dict[str, Any]) -> str | None:
    if row["kind"] == "control":
        return "control"
    return f"of {row['edits']} edits" if row["kind"] == AVERAGE else None


def _crop_words(findings: Findings) -> str | None:
    """Return a sentence about objects that the models' own crops cut off; such flips are not caused by the edit."""
    counts = findings.flips.counts
    seen, cut = int(counts["seen"].sum()), int(counts["cut"].sum())
    if not seen:
        return "It is not known how much of the object the models' own crops keep: the predictions have no masks."
    if not cut:
        return f"No model's crop cuts off more than half of an object in {seen:,} edited pictures."
    sums = counts.group_by("edit").agg(pl.col("cut").sum(), pl.col("seen").sum())
    worst = sums.sort("cut", "edit", descending=[True, False])
    edit, edit_cut, edit_seen = worst.row(0)
    flips, cut_flips = int(counts["flips"].sum()), int(counts["cut_flips"].sum())
    return (
        f"Objects cut off: in {cut:,} of {seen:,} edited pictures (n counts each model separately) the model's own "
        f"resize and crop leave less than half of the object, most often under {edit} ({edit_cut:,} of {edit_seen:,}); "
        f"{cut_flips:,} of {flips:,} right-to-wrong flips are of this kind."
    )


def accuracy_section(findings: Findings) -> Section | None:
    """Return the section about original accuracy against average drop; None without averages."""
    rows = findings.drops.filter(pl.col("kind") == AVERAGE)
    if rows.is_empty():
        return None
    tables = {
        "averages": rows.select("model", "edits", "n", "effect", "effect_low", "effect_high", "drop", "low", "high")
    }
    title = "Accuracy against drop"
    if int(rows["n"].max()) < TOO_FEW_TO_RANK:  # type: ignore[arg-type]
        words = (
            f"With fewer than {TOO_FEW_TO_RANK} photographs a scatter of models would show chance, so there is none."
        )
        return Section("accuracy", title, paragraphs(words), tables=tables)
    figure, narrow = (
        accuracy_and_drop(findings.drops, findings.models, findings.series, small) for small in (False, True)
    )
    named = "; gray: the models between them" if len(findings.models) > MOST else ""
    caption = f"Accuracy on the originals against the average drop net of the control, one point per model{named}."
    body = figure_block(
        figure, "accuracy", f"{caption} With 95 % intervals.", f"{caption} Bars: 95 % intervals.", narrow
    )
    return Section("accuracy", title, body, {"accuracy-against-drop": figure}, tables)


def curves_section(findings: Findings) -> Section | None:
    """Return the section about sweeps, with the level at which half of the accuracy is lost; None without sweeps."""
    attributes = findings.curves["attribute"].unique(maintain_order=True).to_list()
    if not attributes:
        return None
    figures, blocks = {}, []
    for number, attribute in enumerate(attributes):
        figure, narrow = (curve_figure(findings.curves, attribute, findings.series, small) for small in (False, True))
        part = findings.curves.filter(pl.col("attribute") == attribute)
        n = sorted(set(part["n"].to_list()))
        caption = (
            f"Accuracy along {attribute} ({axis_label(attribute)}), {part['level'].n_unique()} levels, "
            f"n = {n[0]:,}{'' if len(n) == 1 else f' to {n[-1]:,}'} per level; bars: 95 % intervals."
        )
        if len(findings.models) > MOST:
            caption += f" The {MOST // 2} models that drop least and the {MOST // 2} that drop most."
        blocks.append(figure_block(figure, f"curve-{number}", caption, caption, narrow))
        figures[f"curve-{attribute}"] = figure
    lines = [
        Line(
            [
                Cell(row["model"]),
                Cell(f"{row['attribute']} {row['side']}".strip()),
                Cell(f"{row['n']:,}", row["n"]),
                Cell("–" if row["halfway"] is None else f"{row['halfway']:.3g}", row["halfway"]),
                Cell(_between(row["low"], row["high"])),
            ]
        )
        for row in findings.fits.iter_rows(named=True)
    ]
    if lines:
        headings = ["model", "attribute", "n", "halfway level", "95 % interval"]
        caption = (
            "The level at which accuracy is midway between floor and ceiling of its fitted curve; a dash: it is "
            "outside the levels of the sweep, or accuracy is flat, or the ceiling was not reached."
        )
        blocks.append(sortable("fits-table", caption, headings, lines, frozenset({2, 3, 4})))
    else:
        blocks.append(paragraphs("Too few levels for a fitted curve (five are needed)."))
    wanted = [
        Line(
            [
                Cell(row["model"]),
                Cell(f"{row['attribute']} {row['side']}".strip()),
                Cell(row["target"]),
                Cell(row["met"] if row["threshold"] is None else f"{row['threshold']:.3g}", row["threshold"]),
                Cell(_between(row["low"], row["high"])),
            ]
        )
        for row in findings.thresholds.iter_rows(named=True)
    ]
    caption = "The hardest level of each attribute at which the target is still met, by isotonic regression."
    headings = ["model", "attribute", "target", "met down to", "95 % interval"]
    blocks.append(sortable("thresholds-table", caption, headings, wanted, frozenset({3, 4})))
    tables = {"curves": findings.curves, "fits": findings.fits, "thresholds": findings.thresholds}
    return Section("curves", "Curves", joined(blocks), figures, tables)


def _between(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "–"
    return f"{'below' if low is None else f'{low:.3g}'} to {'above' if high is None else f'{high:.3g}'}"


def edits_section(findings: Findings, album: Album) -> Section | None:
    """Return the table of the edits: name, description and pictures of the same scenes; None without a benchmark."""
    scenes = album.scenes(_SCENES)
    if not scenes:
        return None
    there = {
        scene: {edit: album.picture(f"{scene}/{edit}/0") for edit in ["original", *findings.edits]} for scene in scenes
    }
    if all(one is None for pictures in there.values() for one in pictures.values()):
        return Section("edits", "What the edits do", paragraphs(missing_words(album)))
    rows = [
        tag(
            "tr",
            tag("th", edit, tag("small", findings.facts.describe(edit)), scope="row"),
            *(tag("td", _thumbnail(album, there[scene][edit], scene, edit)) for scene in scenes),
        )
        for edit in ["original", *findings.edits]
    ]
    caption = "What the edits do: the first scenes of the benchmark, the worst edit first."
    table = tag("table", tag("caption", tag("span", caption)), tag("tbody", *rows), class_="sheet")
    body = tag("div", table, class_="scroll sheet-scroll", tabindex=0, role="region", aria_label=caption)
    return Section("edits", "What the edits do", body)


def missing_words(album: Album) -> str:
    """Return the sentence that says why there are no pictures."""
    if album.root is None:
        return "The benchmark's pictures are not available: use --benchmark BENCH to show them."
    return f"The benchmark's pictures are missing: {album.root} has their list, but not the files."


def _thumbnail(album: Album, picture: Any, scene: str, edit: str) -> object:
    if picture is None:
        return tag("small", album.gone.get(f"{scene}/{edit}/0", "not possible"))
    address = data_address(picture, THUMBNAIL)
    return tag("img", src=address, alt=f"{scene}, {edit}", width=THUMBNAIL, height=THUMBNAIL)
