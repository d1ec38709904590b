"""Dropped accuracy: top-1 on the originals minus top-1 on the edited pictures of the same photographs."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Unpack

import numpy as np
import polars as pl

from unswayed.errors import UserError
from unswayed.evaluation.facts import (
    AVERAGE,
    ORIGINAL,
    SOURCE,
    Condition,
    Facts,
    averaged_edits,
    has_invalid,
    human_accuracy,
    on_valid_pictures,
    read_facts,
)
from unswayed.evaluation.model_cards import warn_of_suspicions
from unswayed.evaluation.predictions import Predictions, columns_of, each_model, in_memory

from .. import Row, schema
from ..statistics import certain_rows, corrected, is_certain
from ..statistics.paired import IntervalSettings, Resampling, estimates, sign_flip
from .groups import class_names, dropped_accuracy_by, superclass_of
from .outcomes import POINTS, TOO_FEW_TO_RANK, each_outcomes, finish, lattice_of, model_rows, outcomes_of
from .sweeps import TOO_MUCH, find_sweeps

NO_EFFECT = "no effect shown"


class DropSettings(Resampling, total=False):
    """Keywords of `dropped_accuracy`: which rows its table has, and how its intervals are made."""

    models: Sequence[str] | None
    edits: Sequence[str] | None
    interval: str


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
    rows = [
        row for outcomes in each_outcomes(predictions, models) for row in model_rows(outcomes, facts, settings, edits)
    ]
    return finish(rows)


def attribute_averages(
    predictions: Predictions,
    *,
    facts: Facts | None = None,
    models: Sequence[str] | None = None,
    **how: Unpack[Resampling],
) -> pl.DataFrame:
    """Return one row per model and attribute: the mean over the attribute's edits, as the row `average` is over all.

    edit: the names of these edits, which are those of the average: controls are left out, and of the paper's eleven
    `direction-small`, if there are all. An edit that changes several attributes, such as `position`, which also makes
    the object smaller, belongs to the last of them. Holm's correction is over the table.
    """
    facts, settings = read_facts(predictions) if facts is None else facts, IntervalSettings(**how)
    rows = []
    for outcomes in each_outcomes(predictions, models):
        edits: dict[str, list[str]] = {}
        for edit in averaged_edits(set(outcomes.edits) - {ORIGINAL, SOURCE}, facts):
            edits.setdefault((facts.attributes(edit) or (edit,))[-1], []).append(edit)
        for attribute, names in edits.items():
            beside = {ORIGINAL, *(control for control in map(facts.control, names) if control in outcomes.edits)}
            part = outcomes.cut(outcomes.images, tuple(sorted({*names, *beside})))
            averages = (row for row in model_rows(part, facts, settings) if row["kind"] == AVERAGE)
            rows += [row | {"edit": ", ".join(names), "attribute": attribute} for row in averages]
    return finish(rows, {"attribute": pl.String})


def against_source(predictions: Predictions) -> pl.DataFrame:
    """Return the predictions with the source files in the place of the framed originals, so that drops are against
    these; refused where the source files were not evaluated."""
    rows = in_memory(predictions, columns_of(predictions))
    edit = pl.col("edit").cast(pl.String)
    if rows.filter(edit == SOURCE).is_empty():
        raise UserError(
            f"the predictions have no edit '{SOURCE}', so no drop can be measured against it",
            allowed="--reference original",
            run="unswayed build … -o BENCH, which keeps the source files, and evaluate it",
        )
    return rows.filter(edit != ORIGINAL).with_columns(edit=edit.replace(SOURCE, ORIGINAL))


def gap_between(
    predictions: Predictions, worse: str, other: str, facts: Facts, settings: IntervalSettings
) -> Row | None:
    """Return how many points more `worse` costs than `other`, averaged over the models that neither of them attacks,
    with low, high and p over n photographs; certain: whether it certainly costs more (analyses.statistics).

    Both costs are net of the edit's control, or raw if that was not evaluated. None if no photograph has both edits.
    """
    gaps, answers = [pl.DataFrame(schema={"source_id": pl.String, "gap": pl.Float64})], 0
    runs: list[np.ndarray] = []
    for outcomes in each_outcomes(predictions):
        if any(facts.is_white_box(outcomes.model, edit) for edit in (worse, other)):
            continue
        controls = (facts.control(edit) for edit in (worse, other))
        starts = [outcomes.of(control if control in outcomes.edits else ORIGINAL) for control in controls]
        gap = (starts[0] - outcomes.of(worse)) - (starts[1] - outcomes.of(other))
        gaps.append(pl.DataFrame({"source_id": outcomes.images, "gap": gap}))
        answers += int(outcomes.runs_of(worse).max() + outcomes.runs_of(other).max())
        runs += [outcomes.runs.ravel()]
    known = pl.concat(gaps).fill_nan(None).drop_nulls("gap")
    if known.is_empty():
        return None
    both = known.group_by("source_id").agg(pl.col("gap").mean(), models=pl.len()).sort("source_id")
    values, images = both["gap"].to_numpy()[:, None], tuple(both["source_id"])
    lattice = lattice_of(*runs) * math.lcm(*both["models"].unique())
    p_value = sign_flip(values[:, 0], lattice)
    estimate = estimates(values, np.array([answers]), images, settings, reach=2, unit=100)
    points, low, high = estimate.tested(np.array([p_value])).entries(0, "points", "low", "high").values()
    certain = points > 0 and is_certain(low, high, p_value)
    return {"points": points, "low": low, "high": high, "p": p_value, "n": both.height, "certain": certain}


def drops_by_group(
    answers: pl.DataFrame, edits: Sequence[str], facts: Facts, settings: IntervalSettings, least: int
) -> pl.DataFrame:
    """Return superclass (class, if the classes are not ImageNet's), edit, n, drop, low and high in points, p_value and
    p_holm: the net drop, or the drop without a control, of the mean over models, with intervals over photographs.

    least: a group with fewer photographs is left out.
    """
    superclass = superclass_of(facts)
    kind = "class" if superclass is None else "superclass"
    table = pl.DataFrame(schema={kind: pl.String, **schema("edit n drop low high p_value")})
    total: np.ndarray | None = None
    models, lattice = 0, 1
    images: tuple[str, ...] | None = None
    controls = list(map(facts.control, edits))
    for name, rows in each_model(answers) if edits else ():
        outcomes = outcomes_of(name, rows, images)
        if images is not None and outcomes.images != images:
            continue  # a model on other photographs than the first has no part in the mean
        images = outcomes.images
        starts = [outcomes.of(control or "") for control in controls]
        starts = [outcomes.of(ORIGINAL) if np.isnan(start).all() else start for start in starts]
        part = np.stack([start - outcomes.of(edit) for start, edit in zip(starts, edits, strict=True)], axis=1)
        total = part if total is None else total + part
        models, lattice = models + 1, math.lcm(lattice, lattice_of(outcomes.runs.ravel()))
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
    columns = np.where(member[:, :, None], (total / models)[:, None, :], np.nan).reshape(len(images), -1)
    p_values = np.array([sign_flip(column, models * lattice) for column in columns.T])
    drops = estimates(columns, np.full(columns.shape[1], models), images, settings, unit=100.0).tested(p_values)
    keys = ((group, edit) for group in groups for edit in edits)
    numbers = zip(keys, drops.sums.n, drops.mean, drops.low, drops.high, p_values, strict=True)
    lines = [(*key, int(n), *map(float, tested)) for key, n, *tested in numbers if n]
    return corrected(pl.DataFrame(lines, schema=table.schema, orient="row"))


def fill_spread(predictions: Predictions) -> pl.DataFrame:
    """Return one row per model and edit with several pictures of a photograph: its drop over each of them alone.

    differing: the share of photographs that are right in one picture and wrong in another.
    """
    types = schema("model edit n runs drop lowest highest differing")
    frames = [pl.DataFrame(schema=types)]
    for model, rows in each_model(predictions):
        original = rows.filter(pl.col("edit") == ORIGINAL).select(
            "source_id", before=pl.col("correct").cast(pl.Float64)
        )
        paired = rows.filter(pl.col("edit") != ORIGINAL).join(original, on="source_id", maintain_order="left")
        drop, photographs = POINTS * (pl.col("before") - pl.col("correct").cast(pl.Float64)), pl.col("source_id")
        paired = paired.with_columns(
            of_run=drop.mean().over("edit", "run"),
            differing=pl.col("correct").n_unique().over("edit", "source_id") > 1,
        )
        table = paired.group_by("edit", maintain_order=True).agg(
            n=photographs.n_unique(),
            runs=pl.col("run").n_unique(),
            drop=drop.mean(),
            lowest=pl.col("of_run").min(),
            highest=pl.col("of_run").max(),
            differing=photographs.filter("differing").n_unique() / photographs.n_unique(),
        )
        table = table.filter(pl.col("runs") > 1).select(pl.lit(model).alias("model"), *list(types)[1:])
        frames.append(table.cast(pl.Schema(types)))
    return pl.concat(frames)


def framing_cost(answers: pl.DataFrame, settings: IntervalSettings) -> pl.DataFrame:
    """Return model, n, source and original accuracy in [0, 1], drop, low and high in points: what it costs to frame the
    source files as squares; empty where they were not evaluated."""
    photographs = answers.filter(pl.col("edit").cast(pl.String).is_in([SOURCE, ORIGINAL]))
    rows: list[Row] = []
    for outcomes in each_outcomes(photographs) if photographs["edit"].n_unique() == 2 else ():
        source, original = outcomes.of(SOURCE), outcomes.of(ORIGINAL)
        both, runs = ~np.isnan(source - original), outcomes.runs.max(keepdims=True)[0]
        if both.any():
            cost = estimates((source - original)[:, None], runs, outcomes.images, settings, unit=100.0)
            means = {"source": float(source[both].mean()), "original": float(original[both].mean())}
            drop = cost.entries(0, "drop", "low", "high")
            rows.append({"model": outcomes.model, "n": int(both.sum()), **means, **drop})
    return pl.DataFrame(rows, schema=schema("model n source original drop low high"))


def with_conditions(
    frame: pl.DataFrame,
    predictions: Predictions,
    condition: Condition | None = None,
    *,
    facts: Facts,
    **settings: Unpack[DropSettings],
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


def with_effect(drops: pl.DataFrame) -> pl.DataFrame:
    """The table of drops with what is put first: `effect`, `effect_low`, `effect_high`, `effect_p`, the net drop, its
    interval and its corrected p-value, or those of the drop where no control was evaluated, which `raw` marks; and
    `certain`, whether the effect is beyond chance (analyses.statistics)."""
    net = pl.col("net_drop").is_not_null()
    pairs = {"effect": "drop", "effect_low": "low", "effect_high": "high", "effect_p": "p_holm"}
    chosen = [pl.when(net).then(f"net_{name}").otherwise(name).alias(effect) for effect, name in pairs.items()]
    drops = drops.with_columns(*chosen, raw=~net & pl.col("kind").is_in(["edit", AVERAGE]))
    return drops.with_columns(certain=certain_rows("effect_low", "effect_high", "effect_p"))


def verdict_line(drops: pl.DataFrame, facts: Facts | None = None) -> str:
    """Return what was found about each attribute in one line, the worst first.

    `on average, small and turned costs 43 points; size alone costs more than 10 points below 6 % of the picture; no
    effect shown: background, direction alone`. An effect is shown if it is certain for at least one model
    (`analyses.statistics`); the points are the mean over the models for which it is.

    drops: of `dropped_accuracy`; results of a model that the edit attacks do not count.
    """
    facts = facts or Facts()
    drops = drops if "certain" in drops.columns else with_effect(drops)
    rows = drops.filter((pl.col("kind") == "edit") & ~pl.col("white_box")).drop_nulls("effect")
    if rows.is_empty():
        return "no edited pictures, so there is no drop"
    attributes = facts.changed(rows["edit"].unique(maintain_order=True))
    said: dict[str, list[str]] = {}
    ordered = rows.with_columns(attribute=pl.col("edit").replace_strict(attributes))
    worst = ordered.group_by("attribute").agg(pl.col("effect").max()).sort("effect", "attribute", descending=True)
    for attribute in worst["attribute"]:
        said.setdefault(_found(ordered.filter(attribute=attribute), facts), []).append(attribute)
    none = said.pop(NO_EFFECT, [])
    shown = [f"{', '.join(names)} cost{'s' * (len(names) == 1)} {finding}" for finding, names in said.items()]
    if shown and rows["model"].n_unique() > 1:
        shown[0] = f"on average, {shown[0]}"
    n = max(rows["n"])
    few = f" ({n} photograph{'s' * (n != 1)} can show large effects only)" if n < TOO_FEW_TO_RANK else ""
    return "; ".join([*shown, *([f"{NO_EFFECT}: {', '.join(none)}"] if none else [])]) + few


def _found(rows: pl.DataFrame, facts: Facts) -> str:
    """Return what is certain about the edits of one attribute."""
    certain = rows.filter(pl.col("certain") & (pl.col("effect") > 0))
    if certain.is_empty():
        return NO_EFFECT
    models, all_models = certain["model"].n_unique(), rows["model"].n_unique()
    of = "" if models == all_models else f" ({models} of {all_models} models)"
    means = dict(certain.group_by("edit").agg(pl.col("effect").mean()).iter_rows())
    sweeps = find_sweeps(rows["edit"].unique().to_list(), facts)
    if len(sweeps) == 1 and (levels := sweeps[0].too_much(means)):
        return f"more than {TOO_MUCH:g} points {levels}{of}"
    most = max(means.values())
    return f"{'up to ' if rows['edit'].n_unique() > 1 else ''}{most:.0f} point{'s' * (round(most) != 1)}{of}"


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


def with_published(table: pl.DataFrame, cards: Mapping[str, Mapping[str, object]]) -> pl.DataFrame:
    """Return the drop table with `published` (points; percent for `original`) and `published_model`, null if none.

    cards: by model; they name what an alias stands for.
    """
    rows: list[tuple[float, str] | tuple[None, None]] = []
    for model, edit in table.select("model", "edit").iter_rows():
        entry = published_model(str(cards.get(model, {}).get("spec", model)))
        rows.append((entry.figures[edit], entry.name) if entry and edit in entry.figures else (None, None))
    types = {"published": pl.Float64, "published_model": pl.String}
    return table.hstack(pl.DataFrame(rows, schema=types, orient="row"))
