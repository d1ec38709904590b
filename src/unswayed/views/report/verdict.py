"""The first screen: the verdict in one line, a forest plot of the models, what hurts most, and the matrix of drops."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import polars as pl
from markupsafe import Markup

from unswayed.analyses.drops.outcomes import TOO_FEW_TO_RANK, weight_of_one
from unswayed.analyses.statistics import certain_rows
from unswayed.evaluation.facts import AVERAGE, ORIGINAL
from unswayed.labels import words_of
from unswayed.views.text import interval, listed, number, percent, plural, points, render

from .findings import Findings
from .section import matrix_cell

_NAMED = 3
_IN_PLOT = 12  # models
_STEPS = (0.5, 1, 2, 5, 10, 20, 50)  # points between the ticks of the plot's axis


@dataclass(frozen=True)
class Answer:
    """A short answer to a question about the results, and a sentence with the reason."""

    answer: str
    reason: str


def verdict(findings: Findings) -> list[str]:
    """Return sentences: what was found about each attribute, how much the models lose, what hurts most, whether that is
    sure, and whether the models can be ranked."""
    if not findings.averages:
        return [_without_edits(findings)]
    hurts, sure = hurts_most(findings)
    ranked, n = ranking(findings), max(row["n"] for row in findings.averages.values())
    return [
        f"{findings.line}.",
        _how_much(findings),
        f"What hurts most: {hurts.answer} {hurts.reason}",
        f"Is that sure? {sure.answer}: {sure.reason} {beyond_chance(findings)}",
        *([f"Is one model the steadiest? {ranked.answer}. {ranked.reason}"] if ranked else filter(None, [_small(n)])),
    ]


def measure_words(findings: Findings) -> str:
    """Return whether the averages are net of what rendering alone costs and, if not, why."""
    if not any(row["raw"] for row in findings.averages.values()):
        return "what rendering alone costs is subtracted"
    return f"what rendering alone costs is included, because {_without_control(findings)}"


def _without_control(findings: Findings) -> str:
    """Return that some edits have no control and why, as far as the benchmark's manifest records it."""
    manifest = findings.facts.manifest
    raw = set(findings.drops.filter("raw")["edit"]) & set(findings.averaged)
    edits = f"{findings.words[min(raw)]} has" if len(raw) == 1 else f"{len(raw)} edits have"
    if manifest is None or not {"status", "reason"} <= set(manifest.columns):
        return f"{edits} no control here"
    rows = manifest.filter(pl.col("edit").is_in(list(findings.facts.controls.values())))
    absent = rows.filter((pl.col("status") == "ok").any().over("edit").not_()).drop_nulls("reason")
    why = "" if absent.is_empty() else f" ({str(absent['reason'][0]).partition(':')[0]})"
    return f"{edits} no control here{why}"


def _how_much(findings: Findings) -> str:
    averages = findings.averages
    names, n = list(averages), max(row["n"] for row in averages.values())
    chosen = names if len(names) <= _NAMED else [names[0], names[-1]]
    losses = ((name, averages[name]) for name in chosen)
    parts = [
        f"{name} loses {points(row['effect'])} ({interval(row['effect_low'], row['effect_high'])})"
        for name, row in losses
    ]
    rest = "" if chosen == names else f", the least and the most of {plural(len(names), 'model')}"
    return (
        f"On average {listed(parts)} points of accuracy{rest}, over {averaged_words(findings)} of "
        f"{plural(n, 'photograph')} (95 % intervals; {measure_words(findings)})."
    )


def averaged_words(findings: Findings) -> str:
    """Return how many edits the average is over, and which are left out of it."""
    edits = [edit for edit in findings.edits if findings.kinds[edit] == "edit"]
    left_out = [findings.words[edit] for edit in edits if edit not in findings.averaged]
    count = plural(len(edits) - len(left_out), "edit")
    return f"{count} (all but {listed(left_out)})" if left_out else count


def hurts_most(findings: Findings) -> tuple[Answer, Answer]:
    """Return what hurts most and whether that is sure."""
    edit, effect, n = findings.worst.row(0)
    rows = findings.drops.filter((pl.col("edit") == edit) & ~pl.col("white_box"))
    if effect <= 0:
        return Answer("no edit", "costs accuracy, averaged over models."), Answer("No", "no drop is the largest.")
    words, models = findings.words[edit], rows.height
    # A name such as "object size 5 %" says what it means.
    meaning = "" if any(map(str.isdigit, words)) else findings.meanings[edit]
    over = f" on average over {plural(models, 'model')}" if models > 1 else ""
    costs = f"{f'({meaning}) ' if meaning else ''}costs {points(effect)} points{over} (n = {n:,})."
    sure = int(rows["certain"].sum())
    answer = "Yes" if sure == models else "Partly" if sure else "No"
    which = f" for {f'{sure} of' if 0 < sure < models else 'all'} {models} models" if models > 1 else ""
    reason = f"it {'is beyond' if sure else 'may be'} chance{which}"
    gap = findings.lead
    if gap is not None:
        more = f"({points(gap['points'], signed=True)} points, {interval(gap['low'], gap['high'])})"
        following = findings.words[findings.worst["edit"][1]]
        also = "sure too" if gap["certain"] else "not sure"
        reason += f"; that it costs more than the next, {following} {more}, is {also}"
    return Answer(words, costs), Answer(answer, f"{reason}.")


def beyond_chance(findings: Findings) -> str:
    """Return the sentence that counts the drops that are certain, net of their controls."""
    tested = findings.drops.filter((pl.col("kind") == "edit") & ~pl.col("white_box")).drop_nulls("effect_p")
    sure = int(tested["certain"].sum())
    what = "net drop" if not tested["raw"].any() else "raw drop" if tested["raw"].all() else "drop"
    is_are = "is" if sure == 1 else "are"
    return f"In all, {sure} of {plural(tested.height, what)} {is_are} beyond chance (5 %, Holm's correction)."


def ranking(findings: Findings) -> Answer | None:
    """Return whether the models can be ranked by their average drops; None for one model."""
    rivals = findings.rivals
    if rivals.is_empty() or not findings.averages:
        return None
    tasks = set(findings.tasks.values())
    if len(tasks) > 1:
        named = listed(sorted(words_of(task).model + "s" for task in tasks))
        return Answer("Not across tasks", f"{named[0].upper()}{named[1:]} are asked different questions.")
    best, n = findings.models[0], max(row["n"] for row in findings.averages.values())
    apart = rivals.filter(certain_rows())
    alike = rivals.filter(~pl.col("model").is_in(apart["model"].to_list()))
    if n < TOO_FEW_TO_RANK:
        return Answer(f"No: n = {n} is too few", _small(n))
    if alike.is_empty():
        next_best = rivals.sort("gap").row(0, named=True)
        return Answer(
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
        return Answer(f"No: {best} loses least, but the differences may be chance", unsure)
    steady = listed([best, *alike["model"].to_list()])
    others = listed(apart["model"].to_list()) if apart.height <= _NAMED else f"the other {apart.height} models"
    return Answer(f"Partly: {steady} cannot be told apart", f"{unsure} It drops less than {others}.")


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


def first_screen(findings: Findings) -> Markup:
    """Return the verdict, the plot, the worst flip and the matrix; empty if the predictions contain no edits."""
    if not findings.averages:
        return Markup("")
    hurts, sure = hurts_most(findings)
    groups, averaged = {AVERAGE: [AVERAGE], **findings.attributes}, averaged_words(findings)
    shown = [edit for edits in groups.values() for edit in edits]
    meanings = {edit: f"{edit}: {meaning}" if meaning else edit for edit, meaning in findings.meanings.items()}
    meanings[AVERAGE] = f"mean over {averaged}"
    worst = findings.worst_flip
    pictures = findings.album.pictures([f"{worst.source_id}/{ORIGINAL}/0", worst.sample_id]) if worst else {}
    return render(
        "sections.html",
        "first",
        findings=findings,
        plot=_plot(findings),
        measure=measure_words(findings),
        averaged=averaged,
        hurts=hurts,
        sure=sure,
        ranking=ranking(findings),
        pictures=list(pictures.values()),
        groups={
            attribute: [(edit, _leaf(findings.words[edit], attribute), meanings[edit]) for edit in edits]
            for attribute, edits in groups.items()
        },
        rows={model: _cells(findings, model, shown) for model in findings.models},
    )


def _leaf(words: str, attribute: str) -> str:
    """Return the words of an edit below the heading of its attribute.

    >>> _leaf("object size 5 %", "size"), _leaf("random background", "background"), _leaf("turned", "direction")
    ('object 5 %', 'random', 'turned')
    """
    return re.sub(rf" ?\b{re.escape(attribute)}\b", "", words).strip() or words


def _plot(findings: Findings) -> dict[str, object]:
    """Return the rows of the forest plot, one per model, and the ticks of their axis; positions in % of the axis."""
    models = list(findings.averages)
    shown = models if len(models) <= _IN_PLOT else [*models[: _IN_PLOT // 2], *models[-_IN_PLOT // 2 :]]
    ends = [findings.averages[model][name] for model in shown for name in ("effect_low", "effect_high", "drop")]
    low, high = min(0.0, *ends), max(1.0, *ends)
    low, high = low - 0.03 * (high - low) * (low < 0), high + 0.03 * (high - low)
    step = next((step for step in _STEPS if (high - low) / step <= 7), 100)

    def at(value: float) -> str:
        return f"{100 * (value - low) / (high - low):.1f}"

    ticks = [(at(tick), number(tick, "g")) for tick in np.arange(np.ceil(low / step), high / step) * step]
    rows = [findings.averages[model] for model in shown]
    return {"rows": rows, "at": at, "ticks": ticks, "left_out": len(models) - len(shown)}


def _cells(findings: Findings, model: str, edits: list[str]) -> list[dict[str, object] | None]:
    """Return a model's row of the matrix: one cell for each edit, None where there is no drop."""
    rows = {row["edit"]: row for row in findings.drops.filter(model=model).drop_nulls("effect").iter_rows(named=True)}
    largest = max(1.0, *findings.drops.filter(pl.col("kind") != "control")["effect"].drop_nulls().abs())
    cells: list[dict[str, object] | None] = []
    for row in map(rows.get, edits):
        if row is None:
            cells.append(None)
            continue
        control = row["kind"] == "control"
        label = (
            f"{model}, {findings.words[row['edit']]}: {'drop' if row['raw'] or control else 'net drop'} "
            f"{points(row['effect'])} points, 95 % interval {interval(row['effect_low'], row['effect_high'])}, "
            f"n = {row['n']:,}{'' if row['certain'] else ', may be chance'}{', white-box' if row['white_box'] else ''}"
        )
        cell = matrix_cell(row["edit"], row["effect"], row["certain"], largest, label)
        marks = cell["marks"] + (" white-box" if row["white_box"] else "")
        cells.append({**cell, "marks": marks, "control": control})
    return cells
