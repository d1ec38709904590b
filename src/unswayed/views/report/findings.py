"""All results that the report shows, computed once from a folder of predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from unswayed.analyses import schema
from unswayed.analyses.drops import drop
from unswayed.analyses.drops.sweeps import find_sweeps
from unswayed.analyses.flips import FLIP_COLUMNS, find_flips
from unswayed.analyses.statistics.paired import IntervalSettings
from unswayed.errors import UserError, unknown
from unswayed.evaluation.facts import AVERAGE, ORIGINAL, Facts, averaged_edits, read_facts, without_doubted
from unswayed.evaluation.model_cards import remarks, suspicions, tasks_in
from unswayed.evaluation.predictions import in_memory

from . import ReportSettings
from .pictures import Album
from .section import series, short_names

LEAST_OF_GROUP = 5  # photographs; the drop of a smaller superclass would be that of single photographs


class Findings:
    """The results of a folder of predictions: facts of the edits, the benchmark and the models' cards, `answers` (the
    rows), and the tables and orders that the sections show."""

    def __init__(self, predictions: str | Path, settings: ReportSettings) -> None:
        facts, answers = read_facts(predictions, settings.benchmark), in_memory(predictions, FLIP_COLUMNS)
        if settings.leave_out is not None:
            answers, facts = without_doubted(predictions, facts, FLIP_COLUMNS)
        facts, answers = _renamed(facts, answers, settings.names or {})
        resampling: dict[str, Any] = {"facts": facts, "resamples": settings.resamples, "seed": settings.seed}
        intervals = IntervalSettings(settings.resamples, seed=settings.seed)
        drops = drop.dropped_accuracy(answers, **resampling)
        drops = drop.with_conditions(
            drop.with_published(drops, facts.cards) if facts.official else drops, answers, **resampling
        )
        self.predictions, self.facts, self.answers = Path(predictions), facts, answers
        self.album = Album(facts.root, facts.manifest)  # the pictures
        self.has_valid = drop.differs(drops)  # whether drops on valid pictures differ
        self.drops = drops = drop.with_effect(drops)
        self.framing = drop.framing_cost(answers, intervals)  # empty if the source files were not evaluated
        self.sweeps: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame] | None = None  # curves, fits and thresholds
        if find_sweeps(answers["edit"].unique().cast(pl.String).to_list(), facts):
            # The fits load scipy's optimizers.
            from unswayed.analyses.drops.curves import accuracy_curves, curve_fits, thresholds

            curves = accuracy_curves(answers, facts=facts)
            self.sweeps = curves, curve_fits(answers, **resampling), thresholds(answers, **resampling)
        self.tasks = tasks_in(facts.cards, drops["model"].unique().to_list())
        rows = {row["model"]: row for row in drops.filter(kind=AVERAGE).iter_rows(named=True)}
        # The one that drops least on average first, those without an average at the end, by name.
        effects = {model: row["effect"] for model, row in rows.items()}
        self.models = sorted(self.tasks, key=lambda name: (name not in effects, effects.get(name, 0.0), name))
        self.series = series(self.models)  # their places in the palette
        self.accuracies = dict(drops.filter(kind=ORIGINAL).select("model", "accuracy").iter_rows())  # on the originals
        self.averages = {model: rows[model] for model in self.models if model in rows}  # empty if no edit is averaged
        # The mean effect of each edit over the models that it does not attack, worst first; those that were possible
        # for fewer than half of the photographs last, because they are the least certain.
        self.worst = _worst(drops)
        first, controls = self.worst["edit"].to_list(), drops.filter(kind="control")["edit"].unique().to_list()
        # How much more each other model drops than the first, and the worst edit costs than the next.
        self.rivals = self._rivals(settings)
        self.lead = drop.gap_between(answers, first[0], first[1], facts, intervals) if len(first) > 1 else None
        self.groups = drop.drops_by_group(answers, first, facts, intervals, LEAST_OF_GROUP)  # by superclass or class
        self.edits = [*first, *facts.sorted(controls)]
        self.words = {AVERAGE: AVERAGE, ORIGINAL: ORIGINAL, **facts.words(self.edits)}
        self.line = drop.verdict_line(drops, facts)  # the verdict in one line
        drawn = find_flips(
            answers, settings.flips, settings.seed, facts=facts, draw=settings.draw, gained=settings.flips // 4
        )
        self.changes = drawn.of_edits
        # The worst flip of the worst edit that has one leads the gallery.
        leading = [drawn.worst[edit] for edit in first if edit in drawn.worst][:1] if settings.flips else []
        self.worst_flip = leading[0] if leading else None
        others = [flip for flip in drawn.shown if flip != self.worst_flip]
        self.flips = replace(drawn, shown=(*leading, *others))
        self.kinds = {**dict.fromkeys(controls, "control"), **dict.fromkeys(first, "edit")}
        self.averaged = averaged_edits(self.edits, facts)
        self.meanings = {edit: facts.describe(edit) for edit in [ORIGINAL, *self.edits]}
        self.controls = {edit: facts.control(edit) for edit in self.edits}
        self.suspicions = suspicions(facts.cards, self.models)  # why the models' numbers say nothing about them
        self.remarks = remarks(facts.cards, self.models)  # what else a reader of the numbers must know

    def _rivals(self, settings: ReportSettings) -> pl.DataFrame:
        """Return model, gap, low, high, n and p_holm: how much more each model drops on average than the best one.

        p_holm: that of `compare`, where an average is a family of its own (`analyses.statistics`).
        """
        models = list(self.series)
        raw = any(row["raw"] for row in self.averages.values())
        tables = [pl.DataFrame(schema=schema("model gap low high n p_holm"))]
        gap, low, high = ("drop_difference", "low", "high") if raw else ("net_difference", "net_low", "net_high")
        ends = {"gap": -pl.col(gap), "low": -pl.col(high), "high": -pl.col(low)}
        for model in models[1:] if self.averages else ():
            from unswayed.analyses.drops.compare import compare  # one model needs none of it
            from unswayed.analyses.settings import CompareSettings

            asked = CompareSettings(measure="drop" if raw else "net", resamples=settings.resamples, seed=settings.seed)
            table = compare(self.answers, models[0], model, asked, facts=self.facts).filter(edit=AVERAGE)
            tables.append(table.drop_nulls(gap).select(model=pl.lit(model), **ends, n="n", p_holm="p_holm"))
        return pl.concat(tables)

    @cached_property
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

    def color(self, model: str) -> str:
        """Return a model's color as a variable of the style sheet."""
        number = self.series.get(model)
        return "var(--quiet)" if number is None else f"var(--series-{number})"

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
