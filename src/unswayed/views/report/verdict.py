"""The first screen: the verdict in sentences, a card for each model, the worst edit, and the matrix of drops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
from markupsafe import Markup

from unswayed.analyses.drops.outcomes import TOO_FEW_TO_RANK, weight_of_one
from unswayed.evaluation.facts import AVERAGE, ORIGINAL
from unswayed.views.text import interval, listed, percent, plural, points

from .findings import SURE, Findings
from .section import matrix_cell, render

_NAMED = 3


@dataclass(frozen=True)
class Ranking:
    """Whether the models can be ranked: a short answer, and a sentence with the reason."""

    answer: str
    reason: str


def verdict(findings: Findings) -> list[str]:
    """Return three sentences: how much the edits cost, which costs most, and what can and cannot be concluded."""
    if not findings.averages:
        return [_without_edits(findings)]
    ranked, n = ranking(findings), max(row["n"] for row in findings.averages.values())
    reason = ranked.reason if ranked else _small(n)
    return [_how_much(findings), _which(findings), f"{beyond_chance(findings)} {reason}".strip()]


def measure_words(findings: Findings) -> str:
    """Return the name of the averages' measure: the net drop, or the raw drop where a control is missing."""
    if not any(row["raw"] for row in findings.averages.values()):
        return "drop net of the control"
    return f"raw drop, because {_missing_control(findings) or 'a control was not evaluated'}"


def _missing_control(findings: Findings) -> str | None:
    """Return which control the benchmark lacks and why, as far as its manifest records it."""
    manifest = findings.facts.manifest
    if manifest is None or not {"status", "reason"} <= set(manifest.columns):
        return None
    rows = manifest.filter(pl.col("edit").is_in(list(findings.facts.controls.values())))
    absent = rows.filter((pl.col("status") == "ok").any().over("edit").not_()).drop_nulls("reason")
    if absent.is_empty():
        return None
    edit, reason = absent.select("edit", "reason").row(0)
    return f"the control {edit} could not be made: {str(reason).partition(':')[0]}"


def _how_much(findings: Findings) -> str:
    averages = findings.averages
    names = list(averages)
    n, edits = max(row["n"] for row in averages.values()), max(row["edits"] for row in averages.values())
    over = f"over {plural(edits, 'edit')} of {plural(n, 'photograph')} (95 % intervals; {measure_words(findings)})"
    chosen = names if len(names) <= _NAMED else [names[0], names[-1]]
    parts = [f"{name} loses {_with_interval(averages[name])}" for name in chosen]
    rest = "" if chosen == names else f", the least and the most of {plural(len(names), 'model')}"
    return f"On average {listed(parts)} points of accuracy{rest}, {over}."


def _which(findings: Findings) -> str:
    worst = findings.worst.row(0, named=True)
    if worst["effect"] <= 0:
        return f"No edit costs accuracy, averaged over models (n = {worst['n']:,}){_controls(findings)}."
    rows = findings.drops.filter((pl.col("edit") == worst["edit"]) & ~pl.col("white_box")).sort("effect")
    shown = [rows.row(0, named=True), *([rows.row(-1, named=True)] if rows.height > 1 else [])]
    parts = [f"{row['model']} loses {_with_interval(row)}" for row in shown]
    size = f"n = {worst['n']:,}"
    return f"The largest drop is that of {worst['edit']}: {listed(parts)} points ({size}){_controls(findings)}."


def _controls(findings: Findings) -> str:
    """Return what the rendering alone costs, if there are controls."""
    controls = findings.drops.filter(pl.col("kind") == "control")
    if controls.is_empty():
        return ""
    means = controls.group_by("edit").agg(pl.col("drop").mean()).sort("edit")
    parts = [f"{points(drop)} ({edit})" for edit, drop in means.iter_rows()]
    return f"; rendering alone, without a change, costs {listed(parts)} points, averaged over models"


def beyond_chance(findings: Findings) -> str:
    """Return the sentence that counts the drops that are significant, net of their controls."""
    tested = findings.drops.filter((pl.col("kind") == "edit") & ~pl.col("white_box")).drop_nulls("effect_p")
    sure = int((tested["effect_p"] < SURE).sum())
    what = "net drop" if not tested["raw"].any() else "raw drop" if tested["raw"].all() else "drop"
    return (
        f"{sure} of {plural(tested.height, what)} {'is' if sure == 1 else 'are'} beyond chance "
        "(5 %, Holm's correction)."
    )


def ranking(findings: Findings) -> Ranking | None:
    """Return whether the models can be ranked by their average drops; None for one model."""
    rivals = findings.rivals
    if rivals.is_empty() or not findings.averages:
        return None
    best, n = findings.models[0], max(row["n"] for row in findings.averages.values())
    apart = rivals.filter(pl.col("p_holm") < SURE)
    alike = rivals.filter(~pl.col("model").is_in(apart["model"].to_list()))
    if n < TOO_FEW_TO_RANK:
        return Ranking(f"No: n = {n} is too few", _small(n))
    if alike.is_empty():
        next_best = rivals.sort("gap").row(0, named=True)
        return Ranking(
            f"Yes: {best} is steadiest",
            f"{best} drops less than every other model; the next, {next_best['model']}, loses "
            f"{points(next_best['gap'])} points more ({interval(next_best['low'], next_best['high'])}).",
        )
    close = ", ".join(
        f"{row['model']} {points(row['gap'], signed=True)} ({interval(row['low'], row['high'])})"
        for row in alike.sort("gap").head(_NAMED).iter_rows(named=True)
    )
    unsure = f"{best} drops least, but it is not certain that it drops less than the next: {close} points."
    if apart.is_empty():
        return Ranking("No: the differences may be chance", unsure)
    steady = listed([best, *alike["model"].to_list()])
    others = listed(apart["model"].to_list()) if apart.height <= _NAMED else f"the other {apart.height} models"
    return Ranking(f"Partly: {steady} cannot be told apart", f"{unsure} It drops less than {others}.")


def _small(n: int) -> str:
    """Return what a small number of photographs means; empty if it is not small."""
    if n >= TOO_FEW_TO_RANK:
        return ""
    demonstration = f"n = {n} is small ({weight_of_one(n)}): a demonstration, not a ranking of models."
    return demonstration if n > 1 else f"n = 1: {weight_of_one(n)}."


def _without_edits(findings: Findings) -> str:
    rows = findings.drops.filter(pl.col("edit") == ORIGINAL)
    parts = [
        f"{row['model']} {percent(row['accuracy'])} ({percent(row['accuracy_low'])} to {percent(row['accuracy_high'])})"
        for row in rows.iter_rows(named=True)
    ]
    return (
        f"These predictions contain no edited pictures, so there is no drop; accuracy on "
        f"{plural(max(rows['n'], default=0), 'photograph')}: {listed(parts)}."
    )


def _with_interval(row: dict[str, Any]) -> str:
    return f"{points(row['effect'])} ({interval(row['effect_low'], row['effect_high'])})"


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
        "sections.html",
        "first_screen",
        cards=_cards(findings, shown),
        more=f"and {left} more models" if left else None,
        measure="raw" if raw else "net of control",
        explanation=_explanation(findings, raw),
        worst=_worst(findings),
        ranking=ranking(findings),
        rows=rows,
        edits=[
            {"name": edit, "meaning": findings.meanings.get(edit, ""), "control": findings.kinds.get(edit) == "control"}
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
    controls = [edit for edit in findings.edits if findings.kinds[edit] == "control"]
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
    return f"{'Surely' if gap.low > 0 else 'Not surely'} worse than the next, {following}: {more}."


def _worst(findings: Findings) -> dict[str, str] | None:
    """Return the worst edit: its name and meaning, every model's own drop, and how sure the drops are."""
    edit, effect, n = findings.worst.row(0)
    rows = findings.drops.filter((pl.col("edit") == edit) & ~pl.col("white_box"))
    if effect <= 0:
        nothing = "No edit costs accuracy, averaged over models."
        return {"edit": "No edit", "meaning": "", "losses": nothing, "sure": "", "lead": ""}
    order = [row for model in findings.series for row in rows.filter(model=model).iter_rows(named=True)]
    values = ", ".join(f"{row['model']} {points(row['effect'])}" for row in order)
    sure = int((rows["effect_p"] < SURE).sum())
    return {
        "edit": edit,
        "meaning": findings.meanings[edit],
        "losses": f"points lost: {values} (n = {n:,})",
        "sure": f"Beyond chance for {sure} of {rows.height} models. In all, {beyond_chance(findings)}"
        if rows.height > 1
        else beyond_chance(findings),
        "lead": _lead(findings),
    }


def _row(findings: Findings, model: str) -> dict[str, Any]:
    rows = {row["edit"]: row for row in findings.drops.filter(model=model).iter_rows(named=True)}
    largest = max(1.0, *findings.drops.filter(pl.col("kind") != "control")["effect"].drop_nulls().abs())
    cells: list[dict[str, Any] | None] = []
    for edit in [AVERAGE, *findings.edits]:
        row = rows.get(edit)
        if row is None or row["effect"] is None:
            cells.append(None)
            continue
        control, white_box = row["kind"] == "control", row["white_box"]
        label = (
            f"{model}, {edit}: {'drop' if row['raw'] or control else 'net drop'} {points(row['effect'])} points, "
            f"95 % interval {interval(row['effect_low'], row['effect_high'])}, n = {row['n']:,}"
            f"{', white-box' if white_box else ''}"
        )
        cell = matrix_cell(edit, row["effect"], (row["effect_low"], row["effect_high"]), largest, label)
        marks = f"{cell['marks']} white-box" if white_box else cell["marks"]
        cells.append({**cell, "marks": marks, "control": control})
    return {"name": model, "spec": findings.spec(model), "color": color(findings, model), "cells": cells}
