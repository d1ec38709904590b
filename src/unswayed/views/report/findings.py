"""All results that the report shows, computed once from a folder of predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypedDict

import polars as pl

from unswayed.analyses.drops.drop import (
    differs,
    dropped_accuracy,
    drops_by_group,
    framing_cost,
    gap_between,
    verdict_line,
    with_conditions,
    with_effect,
    with_published,
)
from unswayed.analyses.drops.sweeps import find_sweeps
from unswayed.analyses.flips import FLIP_COLUMNS, find_flips
from unswayed.analyses.statistics.paired import IntervalSettings
from unswayed.errors import UserError, unknown
from unswayed.evaluation.facts import AVERAGE, ORIGINAL, Facts, averaged_edits, read_facts, without_doubted
from unswayed.evaluation.model_cards import remarks, suspicions, tasks_in
from unswayed.evaluation.predictions import in_memory

from . import ReportSettings
from .section import series, short_names

LEAST_OF_GROUP = 5  # photographs; the drop of a smaller superclass would be that of single photographs


class Resampling(TypedDict):
    """What every measure of the report is computed with."""

    facts: Facts
    resamples: int
    seed: int


class Findings:
    """The results of a folder of predictions: facts of the edits, the benchmark and the models' cards, `answers` (the
    rows), and the tables and orders that the sections show."""

    def __init__(self, predictions: str | Path, settings: ReportSettings) -> None:
        facts, answers = read_facts(predictions, settings.benchmark), in_memory(predictions, FLIP_COLUMNS)
        if settings.leave_out is not None:
            answers, facts = without_doubted(predictions, facts, FLIP_COLUMNS)
        facts, answers = _renamed(facts, answers, settings.names or {})
        resampling: Resampling = {"facts": facts, "resamples": settings.resamples, "seed": settings.seed}
        intervals = IntervalSettings(settings.resamples, seed=settings.seed)
        drops = dropped_accuracy(answers, **resampling)
        drops = with_conditions(with_published(drops, facts.cards) if facts.official else drops, answers, **resampling)
        self.predictions, self.facts, self.answers = Path(predictions), facts, answers
        self.has_valid = differs(drops)  # whether drops on valid pictures differ
        self.drops = drops = with_effect(drops)
        self.framing = framing_cost(answers, intervals)  # empty if the source files were not evaluated
        self.sweeps: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame] | None = None  # curves, fits and thresholds
        if find_sweeps(answers["edit"].unique().cast(pl.String).to_list(), facts):
            # The fits load scipy's optimizers.
            from unswayed.analyses.drops.curves import accuracy_curves, curve_fits, thresholds

            curves = accuracy_curves(answers, facts=facts)
            self.sweeps = curves, curve_fits(answers, **resampling), thresholds(answers, **resampling)
        self.tasks = tasks_in(facts.cards, drops["model"].unique().to_list())
        self.models = ranked(drops)  # the one that drops least on average first
        self.series = series(self.models)  # their places in the palette
        rows = {row["model"]: row for row in drops.filter(kind=AVERAGE).iter_rows(named=True)}
        self.averages = {model: rows[model] for model in self.models if model in rows}  # empty if no edit is averaged
        # The mean effect of each edit over the models that it does not attack, worst first; those that were possible
        # for fewer than half of the photographs last, because they are the least certain.
        self.worst = _worst(drops)
        first, controls = self.worst["edit"].to_list(), drops.filter(kind="control")["edit"].unique().to_list()
        # How much more each other model drops than the first, and the worst edit costs than the next.
        self.rivals = _rivals(answers, drops, self.models, resampling)
        self.lead = gap_between(answers, first[0], first[1], facts, intervals) if len(first) > 1 else None
        self.groups = drops_by_group(answers, first, facts, intervals, LEAST_OF_GROUP)  # by superclass or class
        self.edits = [*first, *facts.sorted(controls)]
        self.words = {AVERAGE: AVERAGE, ORIGINAL: ORIGINAL, **facts.words(self.edits)}
        self.line = verdict_line(drops, facts)  # the verdict in one line
        drawn = find_flips(
            answers, settings.flips, settings.seed, facts=facts, draw=settings.draw, gained=settings.flips // 4
        )
        # The worst flip of the worst edit that has one leads the gallery.
        leading = [drawn.worst[edit] for edit in first if edit in drawn.worst][:1] if settings.flips else []
        self.worst_flip = leading[0] if leading else None
        others = [flip for flip in drawn.shown if flip != self.worst_flip]
        self.flips = replace(drawn, shown=(*leading, *others))
        self.changes = self.flips.of_edits
        self.kinds = {**dict.fromkeys(controls, "control"), **dict.fromkeys(first, "edit")}
        self.averaged = averaged_edits(self.edits, facts)
        self.meanings = {edit: facts.describe(edit) for edit in [ORIGINAL, *self.edits]}
        self.controls = {edit: facts.control(edit) for edit in self.edits}
        self.suspicions = suspicions(facts.cards, self.models)  # why the models' numbers say nothing about them
        self.remarks = remarks(facts.cards, self.models)  # what else a reader of the numbers must know

    def attributes(self) -> dict[str, list[str]]:
        """Return the edits of each attribute, the attribute with the worst edit first, and the controls last."""
        groups: dict[str, list[str]] = {}
        for edit in self.edits:
            names = self.facts.attributes(edit) or (self.words[edit],)
            attribute = names[0] if len(names) == 1 else "several at once"
            groups.setdefault("controls" if self.kinds[edit] == "control" else attribute, []).append(edit)
        return groups

    def named(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return a table of other results with the models under the names that the report gives them."""
        if "model" not in table.columns:
            return table
        names = {str(card.get("model", model)): model for model, card in self.facts.cards.items()}
        return table.with_columns(pl.col("model").cast(pl.String).replace(names))

    def spec(self, model: str) -> str:
        """Return the full name of a model that the report calls by a shorter one."""
        card = self.facts.cards.get(model, {})
        return str(card.get("spec") or card.get("model", model))


def _worst(drops: pl.DataFrame) -> pl.DataFrame:
    fair = drops.filter((pl.col("kind") == "edit") & ~pl.col("white_box"))
    if fair.is_empty():
        fair = drops.filter(kind="edit")
    means = fair.group_by("edit").agg(pl.col("effect").mean(), pl.col("n").max())
    few = 2 * pl.col("n") < pl.col("n").max()
    return means.sort(few, -pl.col("effect"), "edit")


def ranked(drops: pl.DataFrame) -> list[str]:
    """Return the models by the effect of the average edit, least first; those without one at the end, by name."""
    averages = dict(drops.filter(pl.col("kind") == AVERAGE).select("model", "effect").iter_rows())
    names = drops["model"].unique().to_list()
    return sorted(names, key=lambda name: (name not in averages, averages.get(name, 0.0), name))


def _renamed(facts: Facts, answers: pl.DataFrame, given: Mapping[str, str]) -> tuple[Facts, pl.DataFrame]:
    """Return both with the models under the given names, or the shortest ends of paths that tell them apart."""
    models = answers["model"].cast(pl.String).unique().to_list()
    names = {**short_names(models), **given}
    for name in names:
        if name not in models:
            raise unknown("model to name", name, sorted(models))
    final = [names.get(model, model) for model in models]
    if len(set(final)) < len(final):
        raise UserError(f"two models would be called {max(final, key=final.count)}", allowed="a name for each model")
    # A model that is shown by a shorter name is still opened by its own.
    cards = {
        names.get(model, model): card if names.get(model, model) == model else {"spec": model, **card}
        for model, card in facts.cards.items()
    }
    white_box = frozenset(names.get(model, model) for model in facts.white_box)
    column = pl.col("model").cast(pl.String).replace(dict(names))
    return replace(facts, cards=cards, white_box=white_box), answers.with_columns(column)


def _rivals(answers: pl.DataFrame, drops: pl.DataFrame, models: Sequence[str], settings: Resampling) -> pl.DataFrame:
    """Return model, gap, low, high, n and p_holm: how much more each model drops on average than the best one.

    p_holm: that of `compare`, where an average is a family of its own (`analyses.statistics`).
    """
    order = list(series(models))
    averages = drops.filter(kind=AVERAGE)
    rows = []
    for model in order[1:] if averages.height else []:
        from unswayed.analyses.drops.compare import compare  # one model needs none of it
        from unswayed.analyses.settings import CompareSettings

        measure: Literal["drop", "net"] = "drop" if averages["raw"].any() else "net"
        asked = CompareSettings(measure=measure, resamples=settings["resamples"], seed=settings["seed"])
        table = compare(answers, order[0], model, asked, facts=settings["facts"]).filter(edit=AVERAGE)
        names = ("net_difference", "net_low", "net_high") if measure == "net" else ("drop_difference", "low", "high")
        for row in table.drop_nulls(names[0]).iter_rows(named=True):
            gap, low, high = (-row[names[index]] for index in (0, 2, 1))
            rows.append((model, gap, low, high, row["n"], row["p_holm"]))
    ends = dict.fromkeys(("gap", "low", "high"), pl.Float64)
    schema = {"model": pl.String, **ends, "n": pl.Int64, "p_holm": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")
