"""All results that the report shows, computed once from a folder of predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from unfazed.analyses.columns import schema
from unfazed.analyses.drops.compare import compare
from unfazed.analyses.drops.curves import accuracy_curves, curve_fits
from unfazed.analyses.drops.drop import dropped_accuracy
from unfazed.analyses.drops.published import with_published
from unfazed.analyses.drops.thresholds import thresholds
from unfazed.benchmark.layout import MANIFEST
from unfazed.errors import UserError
from unfazed.predictions.facts import AVERAGE, Facts, read_facts
from unfazed.predictions.frames import in_memory
from unfazed.predictions.suspicions import suspicions

from .drop_tables import with_conditions
from .flips import FLIP_COLUMNS, Flips, find_flips


@dataclass(frozen=True, eq=False)
class Findings:
    """predictions: their folder; benchmark: its root and card, None and {} if it is not available; facts: of the
    edits; drops, classes, curves, fits, thresholds: frames of `unfazed.analyses`; comparison: of the model that drops
    most with the one that drops least on average, None with one model; flips: their counts and a sample."""

    predictions: Path
    benchmark: Path | None
    card: Mapping[str, Any]
    facts: Facts
    drops: pl.DataFrame
    comparison: pl.DataFrame | None
    curves: pl.DataFrame
    fits: pl.DataFrame
    thresholds: pl.DataFrame
    classes: pl.DataFrame
    flips: Flips

    @property
    def models(self) -> list[str]:
        """Return the models, the one that drops least on average first."""
        return ranked(self.drops)

    @property
    def suspicions(self) -> list[str]:
        """Return what is suspicious about the models, from their cards: their numbers say nothing about them."""
        return suspicions(self.facts.cards, self.models)

    @property
    def edits(self) -> list[str]:
        """Return the edits and controls, in the benchmark's order."""
        there = self.drops.filter(pl.col("kind").is_in(["edit", "control"]))["edit"].unique().to_list()
        return self.facts.sorted(there)

    def kind(self, edit: str) -> str:
        return str(self.drops.filter(pl.col("edit") == edit)["kind"][0])

    def class_name(self, label: int) -> str:
        names = self.facts.classes
        return names[label] if 0 <= label < len(names) else str(label)


def find(
    predictions: str | Path,
    benchmark: str | Path | None = None,
    *,
    flips: int = 48,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Findings:
    """Return the findings of a folder of predictions; flips: how many to sample for the gallery."""
    predictions = Path(predictions)
    if benchmark is not None and not (Path(benchmark) / MANIFEST).is_file():
        raise UserError(
            f"{benchmark} is not a finished benchmark: it contains no {MANIFEST}", run="unfazed status BENCH"
        )
    facts = read_facts(predictions, benchmark)
    settings: dict[str, Any] = {"facts": facts, "resamples": resamples, "level": level, "seed": seed}
    answers = in_memory(predictions, FLIP_COLUMNS)
    drops = dropped_accuracy(answers, **settings)
    order = ranked(drops)
    return Findings(
        predictions=predictions,
        benchmark=facts.root,
        card=facts.benchmark,
        facts=facts,
        drops=with_conditions(with_published(drops) if facts.official else drops, answers, **settings),
        comparison=compare(answers, order[0], order[-1], **settings) if len(order) > 1 else None,
        curves=accuracy_curves(answers, facts=facts, level=level),
        fits=curve_fits(answers, **settings),
        thresholds=thresholds(answers, **settings),
        classes=_worst_classes(answers, settings),
        flips=find_flips(answers, flips, seed),
    )


def ranked(drops: pl.DataFrame) -> list[str]:
    """Return the models by average drop, least first; those without one at the end, by name."""
    averages = dict(drops.filter(pl.col("kind") == AVERAGE).select("model", "drop").iter_rows())
    names = drops["model"].unique().to_list()
    return sorted(names, key=lambda name: (name not in averages, averages.get(name, 0.0), name))


def _worst_classes(predictions: pl.DataFrame, settings: dict[str, Any]) -> pl.DataFrame:
    """Return one row per class, worst first: photographs n, mean and range over models of the drop, worst model.

    `shrunk` is the mean drop shrunk toward the models' own (empirical Bayes); it determines the order.
    """
    edits = [AVERAGE]
    try:
        table = dropped_accuracy(predictions, by="class", edits=edits, **settings)
    except UserError:  # no edit is averaged, or no picture has a class
        return pl.DataFrame(schema=_CLASSES)
    return (
        table.drop_nulls("drop")
        .sort("drop", descending=True)
        .group_by("class", maintain_order=True)
        .agg(
            n=pl.col("n").max(),
            models=pl.len().cast(pl.Int64),
            shrunk=pl.col("shrunk_drop").mean(),
            drop=pl.col("drop").mean(),
            least=pl.col("drop").min(),
            most=pl.col("drop").max(),
            worst_model=pl.col("model").first(),
        )
        .sort("shrunk", "class", descending=[True, False], nulls_last=True)
        .cast(_CLASSES)  # type: ignore[arg-type]
    )


_CLASSES = schema("class n models shrunk drop least most worst_model")
