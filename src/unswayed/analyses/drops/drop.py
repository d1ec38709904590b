"""Dropped accuracy: top-1 on the originals minus top-1 on the edited pictures of the same photographs.

import unswayed
unswayed.dropped_accuracy("PREDICTIONS")          # a polars data frame, one row per model and edit
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import polars as pl

from unswayed.evaluation.facts import ORIGINAL, SOURCE, Facts, read_facts
from unswayed.evaluation.model_cards import warn_of_suspicions
from unswayed.evaluation.predictions import Predictions, each_model
from unswayed.evaluation.reading import Condition, has_invalid, human_accuracy, on_valid_pictures

from .. import Row, schema
from ..statistics.paired import IntervalSettings, estimates
from .groups import class_names, dropped_accuracy_by, superclass_of
from .outcomes import each_outcomes, finish, model_rows, outcomes


def dropped_accuracy(
    predictions: Predictions,
    *,
    by: str | None = None,
    models: Sequence[str] | None = None,
    edits: Sequence[str] | None = None,
    facts: Facts | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    interval: str = "auto",
) -> pl.DataFrame:
    """Return the drop of every model for every edit, one row each, with intervals and paired tests.

    predictions: a folder of predictions, or a frame with the columns model, source_id, edit, run, correct.
    by: also split by `class`, `superclass` or any column of the predictions or the manifest (groups.py).
    interval: `auto`, `bootstrap` (over photographs) or `score`.

    Of the columns: kind is original, source, control, edit or average; n counts photographs that have both pictures;
    accuracy and original_accuracy lie in [0, 1], with Wilson's interval for accuracy; drop, low, high and net_* are
    points (hundredths), positive where accuracy falls; net_drop is the accuracy on the edit's control minus that on
    the edit; p_value is McNemar's exact test for one run and the sign-flip test over photographs for several, p_holm
    is corrected over the rows of this table; white_box marks a model that the edit attacks; edits is how
    many edits an average is over.

    >>> answers = {"original": [1, 1, 1, 0], "size-0.05": [1, 0, 0, 0]}
    >>> frame = pl.DataFrame([
    ...     {"model": "m", "source_id": str(i), "edit": edit, "run": 0, "correct": bool(right)}
    ...     for edit, column in answers.items() for i, right in enumerate(column)
    ... ])
    >>> dropped_accuracy(frame).filter(edit="size-0.05").select("n", "accuracy", "drop").row(0)
    (4, 0.25, 50.0)
    """
    settings = IntervalSettings(resamples, level, seed, interval)
    if facts is None:
        facts = read_facts(predictions)
        warn_of_suspicions(facts.cards, models)
    if by is not None:
        return dropped_accuracy_by(predictions, by, models=models, edits=edits, facts=facts, settings=settings)
    rows = [row for found in each_outcomes(predictions, models) for row in model_rows(found, facts, settings, edits)]
    return finish(rows)


@dataclass(frozen=True)
class Gap:
    """How many points more one edit costs than another, with its interval, over n photographs that have both."""

    points: float
    low: float
    high: float
    n: int


def gap_between(
    predictions: Predictions, worse: str, other: str, facts: Facts, settings: IntervalSettings
) -> Gap | None:
    """Return how much more `worse` costs than `other`, averaged over the models that neither of them attacks; None if
    no photograph has both edits.

    Both costs are net of the edit's control, or raw if that was not evaluated. The interval is that of the paired
    differences over photographs.
    """
    gaps, answers = [pl.DataFrame(schema={"source_id": pl.String, "gap": pl.Float64})], 0
    for found in each_outcomes(predictions):
        if any(facts.is_white_box(found.model, edit) for edit in (worse, other)):
            continue
        controls = (facts.control(edit) for edit in (worse, other))
        starts = [found.of(control if control in found.edits else ORIGINAL) for control in controls]
        gap = (starts[0] - found.of(worse)) - (starts[1] - found.of(other))
        gaps.append(pl.DataFrame({"source_id": found.images, "gap": gap}))
        answers += int(found.runs_of(worse).max() + found.runs_of(other).max())
    known = pl.concat(gaps).fill_nan(None).drop_nulls("gap")
    if known.is_empty():
        return None
    both = known.group_by("source_id").agg(pl.col("gap").mean()).sort("source_id")
    values, images = both["gap"].to_numpy()[:, None], tuple(both["source_id"])
    estimate = estimates(values, np.array([answers]), images, settings, reach=2, unit=100)
    return Gap(**estimate.entries(0, "points", "low", "high"), n=both.height)


def drops_by_group(
    answers: pl.DataFrame, edits: Sequence[str], facts: Facts, settings: IntervalSettings, least: int
) -> pl.DataFrame:
    """Return superclass (class, if the classes are not ImageNet's), edit, n, drop, low and high in points: the net
    drop, or the drop without a control, of the mean over models, with intervals over photographs.

    least: a group with fewer photographs is left out.
    """
    superclass = superclass_of(facts)
    kind = "class" if superclass is None else "superclass"
    table = pl.DataFrame(schema={kind: pl.String, **schema("edit n drop low high")})
    total: np.ndarray | None = None
    images: tuple[str, ...] | None = None
    controls = list(map(facts.control, edits))
    for name, rows in each_model(answers) if edits else ():
        found = outcomes(name, rows, images)
        if images is not None and found.images != images:
            continue  # a model on other photographs than the first has no part in the mean
        images = found.images
        starts = [found.of(control or "") for control in controls]
        starts = [found.of(ORIGINAL) if np.isnan(start).all() else start for start in starts]
        part = np.stack([start - found.of(edit) for start, edit in zip(starts, edits, strict=True)], axis=1)
        total = part if total is None else total + part
    if total is None or images is None:
        return table
    labels = answers.select(pl.col("source_id").cast(pl.String), "label").unique("source_id").drop_nulls()
    group_of = class_names(kind, facts)
    named = {source_id: group_of(label) for source_id, label in labels.iter_rows()}
    names = [named.get(image) for image in images]
    groups = [name for name in sorted(set(named.values())) if names.count(name) >= least]
    if not groups:
        return table
    member = np.array([[name == group for group in groups] for name in names])
    models = answers["model"].n_unique()
    columns = np.where(member[:, :, None], (total / models)[:, None, :], np.nan).reshape(len(images), -1)
    drops = estimates(columns, np.full(columns.shape[1], models), images, settings, unit=100.0)
    keys = ((group, edit) for group in groups for edit in edits)
    numbers = zip(keys, drops.sums.n, drops.mean, drops.low, drops.high, strict=True)
    lines = [(*key, int(n), float(drop), float(low), float(high)) for key, n, drop, low, high in numbers if n]
    return pl.DataFrame(lines, schema=table.schema, orient="row")


def framing_cost(answers: pl.DataFrame, settings: IntervalSettings) -> pl.DataFrame:
    """Return model, n, source and original accuracy in [0, 1], drop, low and high in points: what it costs to frame the
    source files as squares; empty where they were not evaluated."""
    photographs = answers.filter(pl.col("edit").cast(pl.String).is_in([SOURCE, ORIGINAL]))
    rows: list[Row] = []
    for found in each_outcomes(photographs) if photographs["edit"].n_unique() == 2 else ():
        source, original = found.of(SOURCE), found.of(ORIGINAL)
        both, runs = ~np.isnan(source - original), found.runs.max(keepdims=True)[0]
        if both.any():
            cost = estimates((source - original)[:, None], runs, found.images, settings, unit=100.0)
            means = {"source": float(source[both].mean()), "original": float(original[both].mean())}
            drop = cost.entries(0, "drop", "low", "high")
            rows.append({"model": found.model, "n": int(both.sum()), **means, **drop})
    return pl.DataFrame(rows, schema=schema("model n source original drop low high"))


def with_conditions(
    frame: pl.DataFrame, predictions: Predictions, condition: Condition | None = None, *, facts: Facts, **settings: Any
) -> pl.DataFrame:
    """The table of drops with human_accuracy in [0, 1] and human_n, the rated pictures, where people reviewed them; and
    with valid_n, valid_accuracy, valid_drop, valid_low, valid_high, those on valid pictures, where the benchmark has
    invalid ones and no condition was asked for."""
    if condition is None and has_invalid(facts):
        valid = on_valid_pictures(predictions, facts, "measured", [])
        measured = pl.col("n", "accuracy", "drop", "low", "high").name.prefix("valid_")
        beside = dropped_accuracy(valid, facts=facts, **settings).select("model", "edit", measured)
        frame = frame.join(beside, on=["model", "edit"], how="left", maintain_order="left")
    human = human_accuracy(facts)
    return frame if human is None else frame.join(human, on="edit", how="left", maintain_order="left")


def differs(table: pl.DataFrame) -> bool:
    """Whether any drop on valid pictures differs from the one on all pictures, or cannot be had."""
    if "valid_drop" not in table.columns:
        return False
    return not table.filter(pl.col("drop").is_not_null() & pl.col("valid_drop").ne_missing(pl.col("drop"))).is_empty()


@dataclass(frozen=True)
class PublishedModel:
    """A model of the ImageNet-E paper (CVPR 2023): its name there, the specs of exactly its weights, results by edit.

    figures: `original` in percent, everything else a drop in points. They stand only beside these very models; the
    paper's other figures are in docs/reproduce.md.
    """

    name: str
    specs: list[str]
    figures: dict[str, float]


@functools.cache
def published_model(spec: str) -> PublishedModel | None:
    """Return the paper's entry for the model that a spec opens, or None; options and wrappers make another model.

    >>> published_model("timm:resnet50.tv_in1k").name, published_model("timm:resnet50.tv_in1k+flip")
    ('ResNet-50', None)
    """
    text = resources.files("unswayed.data").joinpath("imagenet_e_published.toml").read_text(encoding="utf-8")
    models = (PublishedModel(**entry) for entry in tomllib.loads(text)["model"])
    return next((model for model in models if spec in model.specs), None)


def with_published(table: pl.DataFrame, cards: Mapping[str, Mapping[str, Any]]) -> pl.DataFrame:
    """Return the drop table with `published` (points; percent for `original`) and `published_model`, null if none.

    cards: by model; they name what an alias stands for.
    """
    rows: list[tuple[float, str] | tuple[None, None]] = []
    for model, edit in table.select("model", "edit").iter_rows():
        entry = published_model(str(cards.get(model, {}).get("spec", model)))
        rows.append((entry.figures[edit], entry.name) if entry and edit in entry.figures else (None, None))
    types = {"published": pl.Float64, "published_model": pl.String}
    return table.hstack(pl.DataFrame(rows, schema=types, orient="row"))
