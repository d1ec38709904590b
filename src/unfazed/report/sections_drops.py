"""The sections about dropped accuracy: table and figure by edit, accuracy against drop, curves, classes."""

from __future__ import annotations

from typing import Any

import polars as pl
from markupsafe import Markup

from unfazed.analyses.drops.conditional import differs
from unfazed.predictions.facts import AVERAGE

from .figures_drops import accuracy_and_drop, curve_figure, drop_figure
from .findings import Findings
from .html_table import Cell, Line, chooser, sortable
from .markup import joined, tag
from .palette import MOST
from .section import Section, figure_block, paragraphs
from .words import axis_label, interval, plural, points

_WORST_CLASSES = 15


def drops_section(findings: Findings) -> Section:
    """Return the drop by edit for every model, with intervals: a figure and a table that sorts and filters."""
    figure = drop_figure(findings.drops, findings.edits, findings.models)
    description = (
        f"Dropped accuracy in points of {plural(len(findings.models), 'model')} under "
        f"{plural(len(findings.edits), 'edit')}, with 95 % intervals; the table below contains every number."
    )
    notes = paragraphs(
        "A drop is the accuracy on the originals minus that on the edited pictures of the same photographs, in points: "
        "5 points are 5 more wrong predictions per hundred pictures. The net drop is relative to the edit's control, "
        "which shows what the rendering alone costs. The true-class probability is the mean probability that the model "
        "assigns to the true class. p is from McNemar's exact test (one run) or a sign-flip test (several runs), with "
        "Holm's correction over the whole table.",
        "White-box marks a model that the adversarial background attacks; it is left out of averages."
        if findings.drops["white_box"].any()
        else None,
        "The drop on valid pictures leaves out those whose measured validity is below 0.5 "
        "(the column `validity` of the manifest)."
        if differs(findings.drops)
        else None,
        "Human accuracy is how often people could tell the object (unfazed review): the ceiling for a model."
        if "human_accuracy" in findings.drops.columns
        else None,
        _crop_words(findings),
    )
    filters = tag(
        "div",
        chooser("model", "Model", findings.models, "all models"),
        chooser("edit", "Edit", _shown_edits(findings), "all edits"),
        tag("output", "", aria_live="polite"),
        class_="filters",
        data_for="drops-table",
        data_noun="rows",
    )
    caption = "Figure 1. Drop by edit, models by average drop."
    body = joined([figure_block(figure, "drops", description, caption), filters, _table(findings), notes])
    tables = {"drops": findings.drops, "crops": findings.flips.counts}
    return Section("drops", "Drop by edit", body, {"drops": figure}, tables)


def _shown_edits(findings: Findings) -> list[str]:
    return ["original", *findings.edits, *([AVERAGE] if AVERAGE in set(findings.drops["edit"]) else [])]


def _table(findings: Findings) -> Markup:
    published = "published" in findings.drops.columns and findings.drops["published"].is_not_null().any()
    headings = ["model", "edit", "n", "accuracy, %", "true-class probability, %", "drop, points", "95 % interval"]
    valid, human = differs(findings.drops), "human_accuracy" in findings.drops.columns
    headings += ["net drop, points", "net 95 % interval", "p (Holm)", *(["published"] if published else [])]
    headings += [*(["drop on valid pictures, points"] if valid else []), *(["human accuracy, %"] if human else [])]
    lines = []
    shown = findings.drops.filter(pl.col("kind") != "source")
    place = {model: number for number, model in enumerate(findings.models)}
    for row in shown.sort(pl.col("model").replace_strict(place), maintain_order=True).iter_rows(named=True):
        cells = [
            Cell(row["model"]),
            Cell(row["edit"], note="white-box" if row["white_box"] else _kind(row)),
            Cell(f"{row['n']:,}", row["n"]),
            Cell(points(100 * row["accuracy"]), row["accuracy"]),
            _percentage(findings.flips.probabilities.get((row["model"], row["edit"]))),
            Cell(points(row["drop"]), row["drop"]),
            Cell(interval(row["low"], row["high"]), row["low"]),
            Cell(points(row["net_drop"]), row["net_drop"]),
            Cell(interval(row["net_low"], row["net_high"]), row["net_low"]),
            Cell(_probability(row["p_holm"]), row["p_holm"]),
        ]
        if published:
            cells.append(Cell(points(row["published"]), row["published"], note=row["published_model"]))
        if valid:
            cells.append(Cell(points(row["valid_drop"]), row["valid_drop"], note=_of_valid(row["valid_n"])))
        if human:
            cells.append(_percentage(row["human_accuracy"]))
        lines.append(Line(cells, {"model": row["model"], "edit": row["edit"]}))
    caption = f"Accuracy and drop of {plural(len(findings.models), 'model')}; click a heading to sort."
    return sortable("drops-table", caption, headings, lines, frozenset(range(2, len(headings))))


def _of_valid(n: int | None) -> str:
    return "" if n is None else f"n = {n:,}"


def _percentage(share: float | None) -> Cell:
    return Cell("–") if share is None else Cell(points(100 * share), share)


def _kind(row: dict[str, Any]) -> str | None:
    if row["kind"] == "control":
        return "control"
    return f"of {row['edits']} edits" if row["kind"] == AVERAGE else None


def _probability(value: float | None) -> str:
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _crop_words(findings: Findings) -> str | None:
    """Return a sentence about objects that the models' own crops cut off; such flips are not caused by the edit."""
    counts = findings.flips.counts
    seen, cut = int(counts["seen"].sum()), int(counts["cut"].sum())
    if not seen:
        return "It is not known how much of the object the models' own crops keep: the predictions have no masks."
    if not cut:
        return f"No model's crop cuts off more than half of an object in {seen:,} edited pictures."
    worst = counts.group_by("edit").agg(pl.col("cut").sum(), pl.col("seen").sum()).sort("cut", descending=True)
    edit, edit_cut, edit_seen = worst.row(0)
    flips, cut_flips = int(counts["flips"].sum()), int(counts["cut_flips"].sum())
    return (
        f"Objects cut off: in {cut:,} of {seen:,} edited pictures (n counts each model separately) the model's own "
        f"resize and crop leave less than half of the object, most often under {edit} ({edit_cut:,} of {edit_seen:,}); "
        f"{cut_flips:,} of {flips:,} right-to-wrong flips are of this kind."
    )


def accuracy_section(findings: Findings) -> Section:
    """Return the section about original accuracy against average drop."""
    rows = findings.drops.filter(pl.col("kind") == AVERAGE)
    if rows.is_empty():
        return Section("accuracy", "Accuracy against drop", paragraphs("No edit was averaged, so there is no drop."))
    figure = accuracy_and_drop(findings.drops, findings.models)
    named = (
        f"; the {MOST // 2} that drop least and the {MOST // 2} that drop most are named"
        if len(findings.models) > MOST
        else ""
    )
    caption = f"Figure 2. Accuracy on the originals against average drop, one point per model{named}."
    description = "Accuracy on the originals in percent against average drop in points, with 95 % intervals."
    body = joined([figure_block(figure, "accuracy", description, caption)])
    table = rows.select("model", "edits", "n", "drop", "low", "high")
    return Section("accuracy", "Accuracy against drop", body, {"accuracy-against-drop": figure}, {"averages": table})


def curves_section(findings: Findings) -> Section | None:
    """Return the section about sweeps, with the level at which half of the accuracy is lost; None without sweeps."""
    attributes = findings.curves["attribute"].unique(maintain_order=True).to_list()
    if not attributes:
        return None
    figures, blocks = {}, []
    for number, attribute in enumerate(attributes):
        figure = curve_figure(findings.curves, attribute, findings.models)
        part = findings.curves.filter(pl.col("attribute") == attribute)
        n = sorted(set(part["n"].to_list()))
        caption = (
            f"Accuracy along {attribute} ({axis_label(attribute)}), {part['level'].n_unique()} levels, "
            f"n = {n[0]:,}{'' if len(n) == 1 else f' to {n[-1]:,}'} per level; bands: 95 % intervals."
        )
        if len(findings.models) > MOST:
            caption += f" The {MOST} models that drop least."
        blocks.append(figure_block(figure, f"curve-{number}", caption, caption))
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


def classes_section(findings: Findings) -> Section:
    """Return the section about the classes with the largest drops."""
    table = findings.classes
    if table.is_empty():
        return Section(
            "classes", "Worst classes", paragraphs("There is no drop by class, because no edit was averaged.")
        )
    fewest = int(table["n"].max())  # type: ignore[arg-type]
    lines = [
        Line(
            [
                Cell(row["class"]),
                Cell(f"{row['n']:,}", row["n"]),
                Cell(points(row["drop"]), row["drop"]),
                Cell(points(row["shrunk"]), row["shrunk"]),
                Cell(interval(row["least"], row["most"]), row["most"]),
                Cell(row["worst_model"]),
            ]
        )
        for row in table.head(_WORST_CLASSES).iter_rows(named=True)
    ]
    headings = ["class", "photographs, n", "drop, points", "shrunk, points", "range over models", "worst model"]
    honest = (
        "No class has more than two photographs: this is a list of hard photographs, not of hard classes."
        if fewest <= 2
        else None
    )
    explains = (
        "The drop is averaged over edits and models. Sorted by the shrunk drop: each class is shrunk toward the "
        "model's own average (empirical Bayes), so that a class of three pictures does not come first by chance."
    )
    caption = f"The {min(_WORST_CLASSES, table.height)} worst of {table.height:,} classes."
    body = joined(
        [sortable("classes-table", caption, headings, lines, frozenset({1, 2, 3, 4})), paragraphs(honest, explains)]
    )
    return Section("classes", "Worst classes", body, tables={"classes": table})


def edits_table(findings: Findings, thumbnails: dict[str, list[tuple[str, str]]]) -> Markup:
    """Return the table of the edits: name, description and pictures (URL, alternative text) of the same scenes."""
    if not thumbnails:
        return joined([])
    rows = [
        tag(
            "tr",
            tag("th", edit, tag("small", findings.facts.describe(edit)), scope="row"),
            *(
                tag("td", tag("img", src=address, alt=words, width=104, height=104) if address else "–")
                for address, words in pictures
            ),
        )
        for edit, pictures in thumbnails.items()
    ]
    caption = "What the edits do: the first scenes of the benchmark. A dash: this edit was not possible for this scene."
    table = tag("table", tag("caption", tag("span", caption)), tag("tbody", *rows), class_="sheet")
    return tag("div", table, class_="scroll sheet-scroll", tabindex=0, role="region", aria_label=caption)
