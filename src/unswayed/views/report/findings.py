"""All results that the report shows, computed once from a folder of predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from unswayed.analyses.drops.drop import (
    Gap,
    differs,
    dropped_accuracy,
    drops_by_group,
    framing_cost,
    gap_between,
    with_conditions,
    with_published,
)
from unswayed.analyses.drops.sweeps import find_sweeps
from unswayed.analyses.flips import FLIP_COLUMNS, Draw, Flips, find_flips
from unswayed.analyses.statistics.paired import IntervalSettings, holm
from unswayed.errors import UserError, unknown
from unswayed.evaluation.facts import AVERAGE, ORIGINAL, Facts, read_facts
from unswayed.evaluation.model_cards import remarks, suspicions
from unswayed.evaluation.predictions import in_memory

from .section import series

SURE = 0.05
LEAST_OF_GROUP = 5  # photographs; the drop of a smaller superclass would be that of single photographs


@dataclass(eq=False)
class Findings:
    """predictions: their folder; answers: their rows; facts: of the edits, the benchmark and the models' cards; drops:
    with the columns of `with_effect`; sweeps: their curves, fits and thresholds, if there are any; has_valid: whether
    drops on valid pictures differ; rivals: one row for each model but the one that drops least, with the difference of
    their average drops; framing: what the framing costs, empty if the source files were not evaluated; flips: their
    counts and those that are shown; lead: how much more the worst edit costs than the next one, None if there is only
    one.

    models: the one that drops least on average first; series: their places in the palette; worst: the edits with their
    mean effect over the models that they do not attack and n, worst first, those that were possible for fewer than half
    of the photographs last, because they are the least certain; edits: worst first, then the controls in the
    benchmark's order; kinds, meanings, controls: of each edit; groups: the drops by superclass or class; suspicions:
    why the models' numbers say nothing about them; remarks: what else a reader of the numbers must know.
    """

    predictions: Path
    answers: pl.DataFrame
    facts: Facts
    intervals: IntervalSettings
    drops: pl.DataFrame
    has_valid: bool
    rivals: pl.DataFrame
    framing: pl.DataFrame
    sweeps: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame] | None
    flips: Flips
    lead: Gap | None
    models: list[str]
    worst: pl.DataFrame
    edits: list[str]
    kinds: dict[str, str]
    meanings: dict[str, str]
    controls: dict[str, str | None]
    groups: pl.DataFrame
    suspicions: list[str]
    remarks: list[str]

    def __post_init__(self) -> None:
        self.series = series(self.models)
        self.changes = self.flips.counts.filter(~pl.col("is_control"))
        rows = {row["model"]: row for row in self.drops.filter(kind=AVERAGE).iter_rows(named=True)}
        self.averages = {model: rows[model] for model in self.models if model in rows}  # empty if no edit is averaged

    def class_name(self, label: int) -> str:
        """Return the name of a class, or its number as text if it has none."""
        return self.facts.classes[label] if 0 <= label < len(self.facts.classes) else str(label)

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


def find(
    predictions: str | Path,
    benchmark: str | Path | None = None,
    *,
    names: Mapping[str, str] | None = None,
    flips: int = 48,
    draw: Draw = "worst",
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Findings:
    """Return the findings of a folder of predictions; names: shorter names of models; flips: how many to show."""
    facts, answers = read_facts(predictions, benchmark), in_memory(predictions, FLIP_COLUMNS)
    if names:
        facts, answers = _renamed(facts, answers, names)
    settings: dict[str, Any] = {"facts": facts, "resamples": resamples, "level": level, "seed": seed}
    intervals = IntervalSettings(resamples, level, seed)
    drops = dropped_accuracy(answers, **settings)
    drops = with_conditions(with_published(drops, facts.cards) if facts.official else drops, answers, **settings)
    has_valid, framing = differs(drops), framing_cost(answers, intervals)
    sweeps = None
    if find_sweeps(answers["edit"].unique().cast(pl.String).to_list(), facts):
        from unswayed.analyses.drops.curves import sweep_tables  # the fits load scipy's optimizers

        sweeps = sweep_tables(answers, **settings)
    found = find_flips(answers, flips, seed, facts=facts, draw=draw, gained=flips // 4)
    drops = with_effect(drops)
    models, worst = ranked(drops), _worst(drops)
    first, controls = worst["edit"].to_list(), drops.filter(kind="control")["edit"].unique().to_list()
    rivals = _rivals(answers, drops, models, settings)
    groups = drops_by_group(answers, first, facts, intervals, LEAST_OF_GROUP)
    lead = gap_between(answers, first[0], first[1], facts, intervals) if len(first) > 1 else None
    edits = [*first, *facts.sorted(controls)]
    return Findings(
        predictions=Path(predictions),
        answers=answers,
        facts=facts,
        intervals=intervals,
        drops=drops,
        has_valid=has_valid,
        rivals=rivals,
        framing=framing,
        sweeps=sweeps,
        flips=found,
        lead=lead,
        models=models,
        worst=worst,
        edits=edits,
        kinds={**dict.fromkeys(controls, "control"), **dict.fromkeys(first, "edit")},
        meanings=dict(zip([ORIGINAL, *edits], map(facts.describe, [ORIGINAL, *edits]), strict=True)),
        controls=dict(zip(edits, map(facts.control, edits), strict=True)),
        groups=groups,
        suspicions=suspicions(facts.cards, models),
        remarks=remarks(facts.cards, models),
    )


def _worst(drops: pl.DataFrame) -> pl.DataFrame:
    fair = drops.filter((pl.col("kind") == "edit") & ~pl.col("white_box"))
    if fair.is_empty():
        fair = drops.filter(kind="edit")
    means = fair.group_by("edit").agg(pl.col("effect").mean(), pl.col("n").max())
    few = 2 * pl.col("n") < pl.col("n").max()
    return means.sort(few, -pl.col("effect"), "edit")


def with_effect(drops: pl.DataFrame) -> pl.DataFrame:
    """Return the table of drops with `effect`, `effect_low`, `effect_high` and `effect_p`, which the report puts first:
    the net drop, or the drop where no control was evaluated; `raw` marks such rows."""
    net = pl.col("net_drop").is_not_null()
    pairs = {"effect": "drop", "effect_low": "low", "effect_high": "high", "effect_p": "p_holm"}
    nets = {"drop": "net_drop", "low": "net_low", "high": "net_high", "p_holm": "net_p_holm"}
    chosen = [pl.when(net).then(nets[name]).otherwise(name).alias(effect) for effect, name in pairs.items()]
    return drops.with_columns(*chosen, raw=~net & pl.col("kind").is_in(["edit", AVERAGE]))


def ranked(drops: pl.DataFrame) -> list[str]:
    """Return the models by the effect of the average edit, least first; those without one at the end, by name."""
    averages = dict(drops.filter(pl.col("kind") == AVERAGE).select("model", "effect").iter_rows())
    names = drops["model"].unique().to_list()
    return sorted(names, key=lambda name: (name not in averages, averages.get(name, 0.0), name))


def _renamed(facts: Facts, answers: pl.DataFrame, names: Mapping[str, str]) -> tuple[Facts, pl.DataFrame]:
    """Return both with the models under their shorter names."""
    models = answers["model"].cast(pl.String).unique().to_list()
    for name in names:
        if name not in models:
            raise unknown("model to name", name, sorted(models))
    final = [names.get(model, model) for model in models]
    if len(set(final)) < len(final):
        raise UserError(f"two models would be called {max(final, key=final.count)}", allowed="a name for each model")
    cards = {names.get(model, model): card for model, card in facts.cards.items()}
    white_box = frozenset(names.get(model, model) for model in facts.white_box)
    column = pl.col("model").cast(pl.String).replace(dict(names))
    return replace(facts, cards=cards, white_box=white_box), answers.with_columns(column)


def _rivals(
    answers: pl.DataFrame, drops: pl.DataFrame, models: Sequence[str], settings: dict[str, Any]
) -> pl.DataFrame:
    """Return model, gap, low, high, n and p_holm: how much more each model drops on average than the best one.

    p_holm: that of `compare`, which is corrected for its edits, corrected once more for the number of models, so that
    the two never contradict each other.
    """
    order = list(series(models))
    averages = drops.filter(kind=AVERAGE)
    rows = []
    for model in order[1:] if averages.height else []:
        from unswayed.analyses.drops.compare import compare  # one model needs none of it

        measure: Literal["drop", "net"] = "drop" if averages["raw"].any() else "net"
        table = compare(answers, order[0], model, measure=measure, **settings).filter(edit=AVERAGE)
        names = ("net_difference", "net_low", "net_high") if measure == "net" else ("drop_difference", "low", "high")
        for row in table.drop_nulls(names[0]).iter_rows(named=True):
            gap, low, high = (-row[names[place]] for place in (0, 2, 1))
            rows.append((model, gap, low, high, row["n"], row["p_holm"]))
    ends = dict.fromkeys(("gap", "low", "high"), pl.Float64)
    schema = {"model": pl.String, **ends, "n": pl.Int64, "p_holm": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    if frame.is_empty():
        return frame
    adjusted = holm(frame["p_holm"].fill_null(np.nan).to_numpy())
    return frame.with_columns(p_holm=pl.Series(adjusted, dtype=pl.Float64).fill_nan(None))
