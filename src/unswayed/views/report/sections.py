"""The sections about drops by edit, curves, what the edits do, how answers change, and drops by superclass."""

from __future__ import annotations

import polars as pl
from markupsafe import Markup

from unswayed.analyses.drops.outcomes import TOO_FEW_TO_RANK
from unswayed.analyses.statistics import is_certain
from unswayed.evaluation.facts import AVERAGE
from unswayed.views.tables import Cell, Column, Row, Table
from unswayed.views.text import interval, joined, listed, percent, plural, points, render, sample_size

from .figures_drops import accuracy_and_drop, axis_label, curve_figure, drop_figure, level_words
from .findings import LEAST_OF_GROUP, Findings
from .pictures import THUMBNAIL, Album
from .section import MOST, Section, figure_block, interval_column, matrix_cell, paragraphs

_SCENES = 6


def drops_section(findings: Findings) -> Section:
    """Return the drop by edit for every model, with intervals: a figure and a table that sorts and filters."""
    figure, narrow = (drop_figure(findings, small) for small in (False, True))
    description = (
        f"Points of accuracy lost by {plural(len(findings.series), 'model')} under "
        f"{plural(len(findings.edits), 'edit')}, net of the control, with 95 % intervals; the table below contains "
        "every number."
    )
    caption = "Drop net of the control by edit, grouped by attribute, the worst first; controls last."
    if len(findings.models) > MOST:
        caption += f" The {MOST // 2} models that drop least and the {MOST // 2} that drop most."
    body = joined(figure_block(figure, "drops", caption, narrow, description), _table(findings), _notes(findings))
    tables = {"drops": findings.drops, "crops": findings.flips.counts}
    if findings.framing.height:
        tables["framing"] = findings.framing
    return Section("drops", "Drop by edit", body, {"drops": figure, "drops-narrow": narrow}, tables)


def _notes(findings: Findings) -> Markup:
    drops, framing = findings.drops, findings.framing.head(MOST).iter_rows(named=True)
    costs = [f"{row['model']} {points(row['drop'])} ({interval(row['low'], row['high'])})" for row in framing]
    return paragraphs(
        "A drop is the accuracy on the originals minus that on the edited pictures of the same photographs, in points: "
        "5 points are 5 more wrong predictions per hundred pictures. The net drop is measured against the edit's "
        "control instead, which is rendered in the same way without the change; an edit that renders nothing else "
        "needs no control. p is from McNemar's exact test (one run) or a sign-flip test (several runs) of the net "
        "drop, with Holm's correction over all edits; an average is tested by itself. An interval is of its row alone: "
        "where it leaves out 0 but p is 0.05 or more, the drop may be chance among so many edits.",
        "A raw drop stands in for a net drop where the control was not evaluated." if drops["raw"].any() else None,
        "White-box marks a model that the adversarial background attacks; the edit is left out of the averages of all "
        "models."
        if drops["white_box"].any()
        else None,
        "The drop on valid pictures leaves out those whose measured validity is below 0.5 "
        "(the column `validity` of the manifest)."
        if findings.has_valid
        else None,
        "Human accuracy is how often people could tell the object (unswayed review): the ceiling for a model."
        if "human_accuracy" in drops.columns
        else None,
        f"Framing the source files as squares (source to original) costs {', '.join(costs)} points." if costs else None,
        _crop_words(findings),
    )


def _table(findings: Findings) -> Markup:
    drops = findings.drops
    order = {model: number for number, model in enumerate(findings.models)}
    rank = {edit: number for number, edit in enumerate(["original", AVERAGE, *findings.edits])}
    shown = drops.filter(pl.col("kind") != "source").sort(
        pl.col("model").replace_strict(order), pl.col("edit").replace_strict(rank, default=len(rank))
    )
    has_effect = ~pl.col("kind").is_in(["control", "original"])  # the others have no drop net of a control
    effects = [pl.when(has_effect).then(name).alias(name) for name in ("effect", "effect_low", "effect_high")]
    probabilities = [findings.flips.probabilities.get(key) for key in shown.select("model", "edit").iter_rows()]
    shown = shown.with_columns(*effects, true_probability=pl.Series(probabilities, dtype=pl.Float64))

    def edit(row: Row) -> Cell:
        averaged = f"of {row['edits']} edits" if row["kind"] == AVERAGE else None
        note = "control" if row["kind"] == "control" else averaged
        return Cell(findings.words[row["edit"]], note="white-box" if row["white_box"] else note, title=row["edit"])

    def valid_drop(row: Row) -> Cell:
        return Cell(row["valid_drop"], note=None if row["valid_n"] is None else f"n = {row['valid_n']:,}")

    columns = [
        Column("model", lambda row: Cell(row["model"], title=findings.spec(row["model"]))),
        Column("edit", edit),
        Column("n"),
        Column("net drop, points", lambda row: Cell(row["effect"], note="raw" if row["raw"] else None), 1, True),
        interval_column("95 % interval", "effect_low", "effect_high"),
        Column("p (Holm)", "effect_p"),
        Column("raw drop, points", lambda row: Cell(row["drop"], faint=True), 1, True),
        interval_column("raw 95 % interval", "low", "high", faint=True),
        Column("accuracy, %", 100 * pl.col("accuracy"), 1),
        Column("true-class probability, %", 100 * pl.col("true_probability"), 1),
    ]
    if "published" in drops.columns and drops["published"].is_not_null().any():
        columns.append(Column("published", lambda row: Cell(row["published"], note=row["published_model"]), 1, True))
    if findings.has_valid:
        columns.append(Column("drop on valid pictures, points", valid_drop, 1, True))
    if "human_accuracy" in drops.columns:
        columns.append(Column("human accuracy, %", 100 * pl.col("human_accuracy"), 1))
    caption = f"Drop and accuracy of {plural(len(findings.models), 'model')}; press a heading to sort."
    return Table(shown, columns, caption).html("drops-table", data=("model", "edit"))


def _crop_words(findings: Findings) -> str | None:
    """Return a sentence about objects that the models' own crops cut off; such flips are not caused by the edit."""
    counts = findings.flips.counts
    seen, cut = int(counts["seen"].sum()), int(counts["cut"].sum())
    if not seen:
        unknown = "It is not known how much of the object the models' own crops keep: the predictions have no masks."
        return unknown if "classify" in findings.tasks.values() else None  # other models take whole pictures
    if not cut:
        return f"No model's crop cuts off more than half of an object in {seen:,} edited pictures."
    sums = counts.group_by("edit").agg(pl.col("cut").sum(), pl.col("seen").sum())
    worst = sums.sort("cut", "edit", descending=[True, False])
    edit, edit_cut, edit_seen = worst.row(0)
    flips, cut_flips = int(counts["flips"].sum()), int(counts["cut_flips"].sum())
    return (
        f"Objects cut off: in {cut:,} of {seen:,} edited pictures (counted for each model) the model's own "
        f"resize and crop leave less than half of the object, most often where it is “{findings.words[edit]}” "
        f"({edit_cut:,} of {edit_seen:,}); {cut_flips:,} of {flips:,} right-to-wrong flips are of this kind."
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
    if max(rows["n"]) < TOO_FEW_TO_RANK:
        words = f"With fewer than {TOO_FEW_TO_RANK} photographs a scatter would show chance, so there is none."
        return Section("accuracy", title, paragraphs(words), tables=tables)
    figure, narrow = (accuracy_and_drop(findings, small) for small in (False, True))
    named = "; gray: the models between them" if len(findings.models) > MOST else ""
    net = "" if rows["raw"].any() else " net of the control"
    caption = f"Accuracy on the originals against the average drop{net}, one point per model{named}."
    body = figure_block(figure, "accuracy", f"{caption} Bars: 95 % intervals.", narrow)
    return Section("accuracy", title, body, {"accuracy-against-drop": figure}, tables)


def curves_section(findings: Findings) -> Section | None:
    """Return the section about sweeps, with the level at which half of the accuracy is lost; None without sweeps."""
    if findings.sweeps is None or findings.sweeps[0].is_empty():
        return None
    curves, fits, thresholds = findings.sweeps
    figures, blocks = {}, []
    for number, attribute in enumerate(curves["attribute"].unique(maintain_order=True)):
        figure, narrow = (curve_figure(curves, attribute, findings, small) for small in (False, True))
        part = curves.filter(pl.col("attribute") == attribute)
        caption = (
            f"Accuracy along {attribute} ({axis_label(attribute)}), {part['level'].n_unique()} levels, "
            f"{sample_size(part['n'])} per level; bars: 95 % intervals."
        )
        if len(findings.models) > MOST:
            caption += f" The {MOST // 2} models that drop least and the {MOST // 2} that drop most."
        blocks.append(figure_block(figure, f"curve-{number}", caption, narrow))
        figures[f"curve-{attribute}"] = figure
    attribute_column = Column("attribute", lambda row: f"{row['attribute']} {row['side']}".strip())
    between = Column("95 % interval", _between, number=True)
    if fits.height:
        caption = (
            "The level at which accuracy is midway between floor and ceiling of its fitted curve; a dash: it is "
            "outside the levels of the sweep, or accuracy is flat, or the ceiling was not reached."
        )
        columns = [Column("model"), attribute_column, Column("n"), _level("halfway level", "halfway"), between]
        blocks.append(Table(fits, columns, caption).html("fits-table"))
    else:
        blocks.append(paragraphs("Too few levels for a fitted curve (five are needed)."))
    shown = thresholds.with_columns(pl.col("target").str.replace("^drop", "raw drop"))
    met = shown.filter(pl.col("threshold").is_not_null())
    caption = "The hardest level of each attribute at which the target is still met, by isotonic regression."
    columns = [Column("model"), attribute_column, Column("target"), _level("met down to", "threshold"), between]
    blocks += [Table(met, columns, caption).html("thresholds-table")] if met.height else []
    others = shown.filter(pl.col("threshold").is_null()).group_by("target", "attribute", "met", maintain_order=True)
    blocks.append(
        paragraphs(
            *(
                f"{target[0].upper()}{target[1:]}: met {where} of {attribute} by {listed(models)}."
                for target, attribute, where, models in others.agg("model").iter_rows()
            )
        )
    )
    tables = {"curves": curves, "fits": fits, "thresholds": thresholds}
    return Section("curves", "Curves", joined(*blocks), figures, tables)


def _level(heading: str, name: str) -> Column:
    def cell(row: Row) -> Cell:
        level = row[name]
        return Cell(None if level is None else level_words(row["attribute"], level), sort=level)

    return Column(heading, cell, number=True)


def _between(row: Row) -> str:
    low, high = (None if row[end] is None else level_words(row["attribute"], row[end]) for end in ("low", "high"))
    return "–" if low is None and high is None else f"{low or 'below'} to {high or 'above'}"


def edits_section(findings: Findings) -> Section | None:
    """Return the table of the edits: name, description and pictures of the same scenes; None without a benchmark."""
    album = findings.album
    scenes = album.scenes(_SCENES)
    if not scenes:
        return None
    edits = ["original", *findings.edits]
    pictures = album.pictures([f"{scene}/{edit}/0" for scene in scenes for edit in edits])
    if not pictures:
        return Section("edits", "What the edits do", paragraphs(missing_words(album)))
    shown = {"edits": edits, "scenes": scenes, "pictures": pictures, "side": THUMBNAIL}
    body = render("sections.html", "sheet", findings=findings, **shown)
    return Section("edits", "What the edits do", body)


def missing_words(album: Album) -> str:
    """Return the sentence that says why there are no pictures."""
    if album.root is None:
        return "The benchmark's pictures are not available: use --benchmark BENCH to show them."
    return f"The benchmark's pictures are missing: {album.root} has their list, but not the files."


_PAIRS = 15

# What an edit can do to an answer, by the names of the style sheet and the script.
KINDS = {
    "kept": "stays right",
    "lost": "right → wrong",
    "blamed": "right → wrong, wrong in the control already",
    "gained": "wrong → right",
    "wrong": "stays wrong",
}


def answers_section(findings: Findings) -> Section | None:
    """Return how the answers change under each edit, the frequent mistakes, and calibration; None without edits."""
    counts = findings.flips.counts
    if counts.is_empty():
        return None
    rank = {name: number for number, name in enumerate(findings.models)}
    order = {edit: number for number, edit in enumerate(findings.edits)}
    counts = counts.sort(pl.col("model").replace_strict(rank), pl.col("edit").replace_strict(order, default=len(order)))
    right = findings.drops.select("model", "edit", "accuracy")
    calibrated = (
        counts.join(right, on=["model", "edit"], maintain_order="left")
        .drop_nulls(["accuracy", "confidence"])
        .with_columns(gap=100 * (pl.col("confidence") - pl.col("accuracy")))
    )
    model = Column("model", lambda row: Cell(row["model"], title=findings.spec(row["model"])))
    edit = Column("edit", lambda row: Cell(findings.words.get(row["edit"], row["edit"]), title=row["edit"]))
    changes = [model, edit, Column("n"), *_CHANGES]
    gaps = [
        model,
        edit,
        Column("accuracy, %", 100 * pl.col("accuracy"), 1),
        Column("confidence, %", 100 * pl.col("confidence"), 1),
        Column("gap, points", "gap", "+.1f"),
        Column("calibration error, %", 100 * pl.col("calibration_error"), 1),
    ]
    shares = counts.with_columns(**{f"{kind}_share": count / _ALL for kind, count in _SHARES.items()})
    names = pl.col("label", "predicted").map_elements(findings.facts.class_name, return_dtype=pl.String)
    mistakes = findings.flips.answers.with_columns(names).rename({"label": "class", "predicted": "answer"})
    frequent = (
        f"The {min(_PAIRS, mistakes.height)} most frequent of {mistakes.height:,} pairs, over all models and edits."
    )
    body = [
        paragraphs(_blame_words(findings)),
        render("sections.html", "kinds_legend", kinds=KINDS),
        Table(shares, changes, "How the answers change.").html("answers-table", data=("model", "edit")),
        Markup("<h3>Most frequent mistakes</h3>"),
        Table(mistakes.head(_PAIRS), _MISTAKES, frequent).html("mistakes-table"),
        Markup("<h3>Calibration under each edit</h3>"),
        paragraphs(
            "The gap is the mean confidence minus the accuracy: positive if the model is too sure. The calibration "
            "error is the mean distance of both over 15 bins of confidence."
        ),
        Table(calibrated, gaps, "Confidence and accuracy, in %.").html("calibration-table", data=("model", "edit")),
    ]
    tables = {"answers": counts, "mistakes": mistakes}
    return Section("answers", "How the answers change", joined(*body), tables=tables)


def _blame_words(findings: Findings) -> str:
    counts = findings.changes
    flips, controlled, wrong, near, gained = (
        int(counts[name].sum()) for name in ("flips", "controlled", "control_wrong", "near", "gained")
    )
    words = f"{plural(flips, 'prediction')} turn from right to wrong and {gained:,} from wrong to right."
    if controlled:
        words += f" {percent(wrong / controlled, 0)} of the first, where a control exists, are wrong in the control "
        words += "already: the rendering is to blame for them, not the change."
    if flips and "superclass" in findings.groups.columns:
        words += f" {percent(near / flips, 0)} of the wrong answers are in the superclass of the true class."
    return words


_ALL = pl.max_horizontal("n", 1)
_SHARES = {
    "kept": pl.col("right") - pl.col("flips"),
    "lost": pl.col("flips") - pl.col("control_wrong"),
    "blamed": pl.col("control_wrong"),
    "gained": pl.col("gained"),
    "wrong": pl.col("n") - pl.col("right") - pl.col("gained"),
}
_CHANGES = [
    Column(
        "answers", lambda row: render("sections.html", "stack", shares={kind: row[f"{kind}_share"] for kind in KINDS})
    ),
    Column("stay right, %", 100 * pl.col("kept_share"), 1),
    Column("right → wrong, %", 100 * pl.col("flips") / _ALL, 1),
    Column(
        "of these, control wrong too, %",
        100 * pl.when(pl.col("controlled") > 0).then(pl.col("control_wrong") / pl.col("controlled")),
        1,
    ),
    Column("wrong → right, %", 100 * pl.col("gained_share"), 1),
    Column("stay wrong, %", 100 * pl.col("wrong_share"), 1),
]
_MISTAKES = [
    Column("true class", "class"),
    Column("answer under the edit", "answer"),
    Column("flips"),
    Column("of these, control wrong too", "control_wrong"),
]


def groups_section(findings: Findings) -> Section | None:
    """Return the drops by superclass (by class if the classes are not ImageNet's) and edit, averaged over models; None
    if no group has enough photographs."""
    table = findings.groups
    kind = table.columns[0]
    if table.is_empty():
        return None
    names = table.group_by(kind).agg(pl.col("n").max()).sort("n", kind, descending=[True, False])
    edits = [edit for edit in findings.edits if edit in set(table["edit"])]
    largest = max(1.0, *table["drop"].abs())
    cells = {}
    for row in table.iter_rows(named=True):
        label = f"{points(row['drop'])} points, {interval(row['low'], row['high'])}, n = {row['n']:,}"
        certain = is_certain(row["low"], row["high"], row["p_holm"])
        cells[row[kind], row["edit"]] = matrix_cell(row["edit"], row["drop"], certain, largest, label)
    words = (
        f"Points of accuracy lost net of the control, averaged over models, for every {kind} with at least "
        f"{LEAST_OF_GROUP} photographs; hatched: may be chance (sign-flip test, Holm's correction over all cells)."
    )
    shown = {"kind": kind, "edits": edits, "words": findings.words, "names": names.rows(), "cells": cells}
    body = joined(paragraphs(words), render("sections.html", "groups", **shown))
    return Section("groups", f"Drop by {kind}", body, tables={"groups": table})
