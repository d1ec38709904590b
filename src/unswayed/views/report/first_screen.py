"""The first screen: a card for each model, the worst edit, whether the models can be ranked, and the matrix."""

from __future__ import annotations

from typing import Any

import polars as pl
from markupsafe import Markup

from unswayed.evaluation.facts import AVERAGE, ORIGINAL
from unswayed.views.text import interval, listed, percent, points

from .findings import SURE, Findings
from .markup import render
from .verdict import beyond_chance, measure_words, ranking

_CARDS = 6


def first_screen(findings: Findings) -> Markup:
    """Return the cards and the matrix; empty if the predictions contain no edits."""
    if not findings.averages:
        return Markup("")
    rows = [_row(findings, model) for model in findings.models]
    shown = list(findings.averages)
    if len(shown) > _CARDS:
        shown = [*shown[: _CARDS // 2], *shown[-_CARDS // 2 :]]
    left = len(findings.averages) - len(shown)
    raw = any(row["raw"] for row in findings.averages.values())
    return render(
        "first_screen.html",
        cards=_cards(findings, shown),
        more=f"and {left} more models" if left else None,
        measure="raw" if raw else "net of control",
        explanation=_explanation(findings, raw),
        worst=_worst(findings),
        ranking=ranking(findings),
        rows=rows,
        edits=[
            {"name": edit, "meaning": findings.facts.describe(edit), "control": _apart(findings, edit)}
            for edit in [AVERAGE, *findings.edits]
        ],
        caption=f"Points of accuracy lost ({measure_words(findings)}), worst edit first, controls last. Press a cell, "
        "a model or an edit: tables, figures and pictures show only that.",
        white_box=bool(findings.drops["white_box"].any()),
    )


def color(findings: Findings, model: str) -> str:
    """Return a model's color as a variable of the style sheet."""
    place = findings.series.get(model)
    return "var(--quiet)" if place is None else f"var(--series-{place})"


def _apart(findings: Findings, edit: str) -> bool:
    return edit != AVERAGE and findings.kind(edit) == "control"


def _cards(findings: Findings, models: list[str]) -> list[dict[str, Any]]:
    """Return the numbers of each model's card; positions in % of a scale that all cards share."""
    rows = [findings.averages[model] for model in models]
    raws = [row["drop"] for row in rows]
    low = min(0.0, *(row["effect_low"] for row in rows), *raws)
    high = max(1.0, *(row["effect_high"] for row in rows), *raws)

    def at(value: float) -> str:
        return f"{100 * (value - low) / (high - low):.1f}"

    original = dict(findings.drops.filter(kind=ORIGINAL).select("model", "accuracy").iter_rows())
    return [
        {
            "name": model,
            "spec": findings.spec(model),
            "color": color(findings, model),
            "value": points(row["effect"]),
            "interval": interval(row["effect_low"], row["effect_high"]),
            "raw": None if row["raw"] else points(row["drop"]),
            "raw_at": at(row["drop"]),
            "zero": at(0.0),
            "low": at(row["effect_low"]),
            "width": f"{100 * (row['effect_high'] - row['effect_low']) / (high - low):.1f}",
            "at": at(row["effect"]),
            "accuracy": percent(original.get(model)),
        }
        for model, row in zip(models, rows, strict=True)
    ]


def _explanation(findings: Findings, raw: bool) -> str:
    """Return what the numbers and the bars of the cards mean."""
    controls = findings.facts.sorted(findings.drops.filter(kind="control")["edit"].unique().to_list())
    bar = "Bar: 95 % interval; vertical line: 0"
    if raw:
        return f"Points lost: accuracy on the originals minus accuracy on the edited pictures. {bar}."
    return (
        "Net of control: the drop minus what rendering alone costs, measured on pictures that were rendered without a "
        f"change{f' ({listed(controls)})' if controls else ''}. {bar}; gray mark: the raw drop, which includes it."
    )


def _lead(findings: Findings) -> str:
    """Return whether the worst edit is surely worse than the next one; empty if there is no other."""
    gap = findings.lead
    if gap is None:
        return ""
    more = f"{points(gap.points)} points more ({interval(gap.low, gap.high)}, n = {gap.n:,})"
    following = findings.worst["edit"][1]
    if gap.low > 0:
        return f"Surely worse than the next, {following}: {more}."
    return f"Not surely worse than the next, {following}: {more}."


def _worst(findings: Findings) -> dict[str, str] | None:
    """Return the worst edit: its name and meaning, every model's own drop, and how sure the drops are."""
    edit, effect, n = findings.worst.row(0)
    rows = findings.drops.filter((pl.col("edit") == edit) & ~pl.col("white_box"))
    if effect <= 0:
        return {
            "edit": "No edit",
            "meaning": "",
            "losses": "No edit costs accuracy, averaged over models.",
            "sure": "",
            "lead": "",
        }
    order = [row for model in findings.series for row in rows.filter(model=model).iter_rows(named=True)]
    values = ", ".join(f"{row['model']} {points(row['effect'])}" for row in order)
    sure = int((rows["effect_p"] < SURE).sum())
    return {
        "edit": edit,
        "meaning": findings.facts.describe(edit),
        "losses": f"points lost: {values} (n = {n:,})",
        "sure": f"Beyond chance for {sure} of {rows.height} models. In all, {beyond_chance(findings)}"
        if rows.height > 1
        else beyond_chance(findings),
        "lead": _lead(findings),
    }


def _row(findings: Findings, model: str) -> dict[str, Any]:
    rows = {row["edit"]: row for row in findings.drops.filter(model=model).iter_rows(named=True)}
    largest = max(1.0, float(findings.drops.filter(pl.col("kind") != "control")["effect"].abs().max() or 1))  # type: ignore[arg-type]
    cells: list[dict[str, Any] | None] = []
    for edit in [AVERAGE, *findings.edits]:
        row = rows.get(edit)
        if row is None or row["effect"] is None:
            cells.append(None)
            continue
        unsure = row["effect_low"] <= 0 <= row["effect_high"]
        marks = ["worse" if row["effect"] > 0 else "better"]
        marks += [name for name, given in (("hatched", unsure), ("white-box", row["white_box"])) if given]
        what = "drop" if row["raw"] or row["kind"] == "control" else "net drop"
        label = (
            f"{model}, {edit}: {what} {points(row['effect'])} points, 95 % interval "
            f"{interval(row['effect_low'], row['effect_high'])}, n = {row['n']:,}"
            f"{', white-box' if row['white_box'] else ''}"
        )
        cells.append(
            {
                "edit": edit,
                "value": f"{row['effect']:.0f}".replace("-0", "0").replace("-", "−"),
                "share": f"{min(100.0, 100 * abs(row['effect']) / largest):.0f}",
                "marks": " ".join(marks),
                "label": label,
                "control": row["kind"] == "control",
            }
        )
    return {"name": model, "spec": findings.spec(model), "color": color(findings, model), "cells": cells}
