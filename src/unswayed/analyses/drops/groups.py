"""Dropped accuracy by class, superclass or any column, and of groups of models."""

from __future__ import annotations

import csv
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Unpack

import numpy as np
import polars as pl

from unswayed.errors import UserError, check_known, unknown
from unswayed.evaluation.facts import (
    AVERAGE,
    ORIGINAL,
    SOURCE,
    WHITE_BOX,
    Facts,
    averaged_edits,
    chosen_edits,
    read_facts,
)
from unswayed.evaluation.model_cards import tasks_in
from unswayed.evaluation.predictions import COLUMNS, Predictions, columns_of, each_model
from unswayed.files.text_tables import read_csv
from unswayed.labels import imagenet, require_one_task

from .. import Row
from ..statistics.paired import (
    IntervalSettings,
    Resampling,
    Sums,
    bootstrap_means,
    estimates_of,
    mcnemar,
    shrink,
    sign_flip,
)
from .outcomes import POINTS, Outcomes, each_outcomes, finish, lattice_of, model_rows, need_original, outcomes_of

EVERY = "all models"
_VALUE = "_value"
_PIECES, _FEW = 4, 12


def dropped_accuracy_by(
    predictions: Predictions,
    by: str,
    *,
    models: Sequence[str] | None = None,
    edits: Sequence[str] | None = None,
    facts: Facts,
    settings: IntervalSettings,
) -> pl.DataFrame:
    """Return the drop table split by `by`, with a column of that name and `shrunk_drop`; worst values first.

    `class` and `superclass` follow from the label. Any other column belongs to the edited picture: the drop is over
    the pictures that have the value. Columns of many numbers are cut into quarters. shrunk_drop shrinks each value's
    drop toward the edit's own (empirical Bayes), so that a class of three pictures does not come first by chance. The
    rows `average` are over the edits that a photograph has.
    """
    rows = []
    for name, frame in _valued(predictions, by, models, facts):
        outcomes = outcomes_of(name, frame)
        entries = _entries(outcomes, frame, facts, average=by in ("class", "superclass"))
        if edits is not None:
            chosen = chosen_edits(edits, entries["edit"].unique().sort().to_list())
            entries = entries.filter(pl.col("edit").is_in(chosen))
        rows += _rows(outcomes, entries, by, facts, settings)
    table = finish(rows, {by: pl.String, "shrunk_drop": pl.Float64})
    order = [*facts.sorted(set(table["edit"]) - {AVERAGE}), AVERAGE]
    descending = [False, False, True, False]
    return table.sort(
        "model", pl.col("edit").cast(pl.Enum(order)), "shrunk_drop", by, descending=descending, nulls_last=True
    )


@functools.cache
def imagenet_superclasses() -> tuple[str, ...]:
    """Return the superclass of each of the 1,000 ImageNet classes; animals in detail, things more coarsely."""
    with resources.files("unswayed.data").joinpath("imagenet_superclasses.csv").open(encoding="utf-8") as file:
        ranges = list(csv.DictReader(file))
    return tuple(row["superclass"] for row in ranges for _ in range(int(row["first"]), int(row["last"]) + 1))


def superclass_of(facts: Facts) -> tuple[str, ...] | None:
    """Return the superclass of each label; None if the classes are not ImageNet's."""
    ours = not facts.classes or facts.classes == imagenet().classes
    return imagenet_superclasses() if ours else None


def _valued(
    predictions: Predictions, by: str, models: Sequence[str] | None, facts: Facts
) -> list[tuple[str, pl.DataFrame]]:
    """Return each model's rows with the value that they are split by, as text."""
    if by in ("class", "superclass"):
        names = class_names(by, facts)
        return [
            (name, rows.with_columns(pl.col("label").map_elements(names, return_dtype=pl.String).alias(_VALUE)))
            for name, rows in each_model(predictions, (*COLUMNS, "label"), models)
        ]
    own = [name for name in columns_of(predictions) if name != WHITE_BOX]
    if by in own and by not in COLUMNS:
        by_model = list(each_model(predictions, (*COLUMNS, by), models))
        as_text = _as_text(pl.concat([rows[by] for _, rows in by_model]))
        return [(name, rows.with_columns(as_text(rows[by]).alias(_VALUE))) for name, rows in by_model]
    manifest, hidden = facts.manifest, (*COLUMNS, "sample_id")
    if manifest is None or by not in manifest.columns or by in hidden:
        there = [name for name in [*own, *(manifest.columns if manifest is not None else [])] if name not in hidden]
        moved = "the same command with --benchmark BENCH, where the benchmark is now" if manifest is None else None
        raise unknown("column to split by", by, ["class", "superclass", *dict.fromkeys(there)], run=moved)
    keys = ["source_id", "edit", "run"]
    values = manifest.select(*keys, _as_text(manifest[by])(manifest[by]).alias(_VALUE))
    return [
        (name, rows.with_columns(pl.col("run").cast(values.schema["run"])).join(values, on=keys, how="left"))
        for name, rows in each_model(predictions, COLUMNS, models)
    ]


def _entries(outcomes: Outcomes, rows: pl.DataFrame, facts: Facts, average: bool) -> pl.DataFrame:
    """Return one row per photograph, edit and value: accuracy on the picture, its original and control; differences.

    average: also one row per photograph and value for the mean over its edits.
    """
    need_original(outcomes)
    cells = rows.group_by("source_id", "edit").agg(share=pl.col("correct").mean(), runs=pl.len())
    base = cells.filter(edit=ORIGINAL).select("source_id", base="share", base_runs="runs")
    before = cells.select("source_id", control="edit", before="share", before_runs="runs")
    controls = {edit: facts.control(edit) for edit in outcomes.edits}
    entries = (
        rows.filter(~pl.col("edit").is_in([ORIGINAL, SOURCE]) & pl.col(_VALUE).is_not_null())
        .group_by("source_id", "edit", _VALUE)
        .agg(share=pl.col("correct").mean(), runs=pl.len())
        .join(base, on="source_id")
        .with_columns(control=pl.col("edit").replace_strict(controls, return_dtype=pl.String))
        .join(before, on=["source_id", "control"], how="left")
        .with_columns(
            drop=pl.col("base") - pl.col("share"),
            net=pl.col("before") - pl.col("share"),
            drop_answers=pl.max_horizontal("runs", "base_runs"),
            net_answers=pl.max_horizontal("runs", "before_runs"),
        )
        .sort("source_id", "edit", _VALUE)
    )
    averaged = averaged_edits(outcomes.edits, facts)
    if not average or not averaged:
        return entries
    means = (
        entries.filter(pl.col("edit").is_in(averaged))
        .group_by("source_id", _VALUE, maintain_order=True)
        .agg(
            pl.col("share", "drop").mean(),
            pl.when(pl.col("net").null_count() == 0).then(pl.col("net").mean()).alias("net"),
            pl.col("base").first(),
            pl.col("^.*(_answers|runs)$").sum(),
        )
        .with_columns(edit=pl.lit(AVERAGE), control=pl.lit("each edit's own"))
    )
    return pl.concat([entries, means], how="diagonal_relaxed")


def _rows(outcomes: Outcomes, entries: pl.DataFrame, by: str, facts: Facts, settings: IntervalSettings) -> list[Row]:
    nets = _estimates(outcomes, entries.drop_nulls("net"), "net", settings)
    names = {"n": "net_n", "mean": "net_drop", "low": "net_low", "high": "net_high", "p_value": "net_p_value"}
    nets = nets.select("edit", _VALUE, *names).rename(names)
    drops = _estimates(outcomes, entries, "drop", settings).join(nets, on=["edit", _VALUE], how="left")
    pieces = entries.partition_by("edit", _VALUE, as_dict=True)
    rows = []
    for part in drops.partition_by("edit"):
        means, n, squares = (part[name].to_numpy() for name in ("mean", "n", "squares"))
        part = part.with_columns(shrunk_drop=shrink(means / POINTS, n, squares) * POINTS)
        for row in part.iter_rows(named=True):
            edit, value = row["edit"], row[_VALUE]
            piece = pieces[edit, value]
            row |= {
                "model": outcomes.model,
                by: value,
                "kind": "control" if facts.is_control(edit) else "edit",
                "accuracy": piece["share"].mean(),
                "original_accuracy": piece["base"].mean(),
                "drop": row["mean"],
                "control": piece["control"][0] if row["net_n"] else None,
                "white_box": facts.is_white_box(outcomes.model, edit),
            }
            rows.append(row | ({"kind": AVERAGE} if edit == AVERAGE else {"runs": piece["runs"].max()}))
    return rows


def _estimates(outcomes: Outcomes, entries: pl.DataFrame, column: str, settings: IntervalSettings) -> pl.DataFrame:
    """Return one row per edit and value: the sums, mean, interval and test of that column of the entries, in points.

    The average over edits is not tested, because each value would ask a further question.
    """
    value, before = pl.col(column), {"drop": "base_runs", "net": "before_runs"}[column]
    pieces = entries.partition_by("edit", _VALUE, maintain_order=True)
    table = entries.group_by("edit", _VALUE, maintain_order=True).agg(
        n=pl.len().cast(pl.Int64),
        losses=value.clip(lower_bound=0).sum(),
        gains=-value.clip(upper_bound=0).sum(),
        squares=(value * value).sum(),
        flips=(value.abs() > 1e-9).sum().cast(pl.Int64),
        answers=pl.col(f"{column}_answers").max().cast(pl.Int64),
    )
    sums = Sums(*(table[name].to_numpy() for name in ("n", "losses", "gains", "squares", "flips", "answers")))

    def resampled(at: np.ndarray) -> np.ndarray:
        weights, draws = settings.weights(outcomes.images), []
        for piece in (pieces[index] for index in at):
            images = np.searchsorted(outcomes.images, piece["source_id"].to_list())
            draws.append(bootstrap_means(weights[:, images], piece[column].to_numpy()[:, None]))
        return np.concatenate(draws, axis=1)

    p_values = mcnemar(np.rint(sums.losses), np.rint(sums.gains))
    for index, piece in enumerate(pieces):
        if piece["edit"][0] == AVERAGE:
            p_values[index] = np.nan
        elif sums.answers[index] > 1:
            values, *runs = (piece[name].to_numpy() for name in (column, "runs", before))
            p_values[index] = sign_flip(values, lattice_of(*runs))
    means = estimates_of(sums, settings, resampled, POINTS).tested(p_values)
    interval = pl.Series(means.method, dtype=pl.String)
    return table.with_columns(mean=means.mean, low=means.low, high=means.high, interval=interval, p_value=p_values)


def class_names(by: str, facts: Facts) -> Callable[[int], str]:
    """Return label -> the name of its class or superclass."""
    names = facts.classes if by == "class" else superclass_of(facts)
    if names is None:
        raise UserError(
            "superclasses are known only for ImageNet's classes, but these predictions have other classes",
            allowed="--by class, or a column of your own in the predictions",
        )
    return lambda label: names[label] if 0 <= label < len(names) else str(label)


def _as_text(values: pl.Series) -> Callable[[pl.Series], pl.Series]:
    """Return a function from the column's values to text: many numbers become quarters, other values stay."""
    if values.dtype.is_nested():
        raise UserError(f"the column '{values.name}' contains lists", allowed="a column of numbers or text")
    if not values.dtype.is_numeric() or values.n_unique() <= _FEW:
        return lambda column: column.cast(pl.String)
    known = values.drop_nulls().drop_nans() if values.dtype.is_float() else values.drop_nulls()
    cuts = np.unique(np.quantile(known.to_numpy(), np.linspace(0, 1, _PIECES + 1), method="nearest")).tolist()
    labels = pl.Series([f"{low:.4g} to {high:.4g}" for low, high in itertools.pairwise(cuts)])
    inner = np.array(cuts[1:-1], dtype=float)

    def quarters(column: pl.Series) -> pl.Series:
        numbers = column.cast(pl.Float64).fill_nan(None)
        codes = pl.Series(np.searchsorted(inner, numbers.fill_null(0).to_numpy(), side="left"))
        return labels.gather(codes.set(numbers.is_null(), None))

    return quarters


def dropped_accuracy_of_groups(
    predictions: Predictions, groups: str | Path | None = None, *, facts: Facts | None = None, **how: Unpack[Resampling]
) -> pl.DataFrame:
    """Return the drop table of groups: one row per group and edit; `model` is the group, `models` its size.

    groups: a CSV with the column `model` and one column per grouping (architecture, training, …); None: all models
    only. A group's accuracy on a picture is the mean over its models, and intervals are over photographs:
    they describe the mean of these models, not of other models. A model that an edit attacks is left out of every
    group, and a picture that one of the group's models has not classified is left out of that group.
    """
    facts = read_facts(predictions) if facts is None else facts
    table: dict[str, list[str]] = {}
    for row in read_model_groups(groups).iter_rows(named=True) if groups is not None else ():
        model = row.pop("model")
        table[model] = [f"{name}: {group}" for name, group in row.items() if group]
    sums: dict[str, Outcomes] = {}
    members: Counter[str] = Counter()
    known = []
    require_one_task(tasks_in(facts.cards).items(), "averaged")
    for outcomes in each_outcomes(predictions):
        known.append(outcomes.model)
        if any(facts.is_white_box(outcomes.model, edit) for edit in outcomes.edits):
            continue
        for group in [EVERY, *table.get(outcomes.model, [])]:
            sums[group] = _added(sums.get(group), outcomes)
            members[group] += 1
    check_known("model", table, known)
    if not sums:
        raise UserError("every model here is white-box, so there is no average", allowed="at least one other model")
    settings = IntervalSettings(**how)
    rows: list[Row] = []
    for group, total in sums.items():
        count = members[group]
        # Shares of 2 and of 3 runs are sixths; the mean of both is twelfths.
        mean = replace(total, model=group, share=total.share / count, parts=total.parts * count)
        rows += [{**row, "models": count} for row in model_rows(mean, facts, settings)]
    return finish(rows, {"models": pl.Int64})


def _added(total: Outcomes | None, outcomes: Outcomes) -> Outcomes:
    """Return the sum of several models' shares and runs, on the pictures that all of them classified; parts: the least
    common multiples of their runs."""
    if total is None:
        return outcomes
    if (outcomes.images, outcomes.edits) != (total.images, total.edits):
        images = tuple(sorted(set(total.images) & set(outcomes.images)))
        edits = tuple(sorted(set(total.edits) & set(outcomes.edits)))
        if not images or not edits:
            raise UserError(f"{outcomes.model} shares no pictures with the other models of its group")
        total, outcomes = total.cut(images, edits), outcomes.cut(images, edits)
    runs = np.where((outcomes.runs > 0) & (total.runs > 0), total.runs + outcomes.runs, 0)
    return replace(total, share=total.share + outcomes.share, runs=runs, parts=np.lcm(total.parts, outcomes.runs))


def read_model_csv(path: str | Path) -> pl.DataFrame:
    """Return a CSV about models as text columns, without surrounding blanks and empty rows; empty cells are null."""
    table = pl.DataFrame(read_csv(path, {}, others="text"))
    table = table.with_columns(pl.all().str.strip_chars().replace("", None))
    return table.filter(~pl.all_horizontal(pl.all().is_null()))


def read_model_groups(groups: str | Path) -> pl.DataFrame:
    """Return a CSV with the column `model`, each model once, and one column per grouping, such as architecture."""
    table = read_model_csv(groups)
    if "model" not in table.columns or len(table.columns) < 2:
        raise UserError(
            f"{groups} contains no groups of models: the groups have the columns {', '.join(table.columns)}",
            allowed="model and at least one more, such as architecture or training",
        )
    if table["model"].null_count():
        raise UserError(f"{table['model'].null_count()} rows of the groups name no model", allowed="a model in each")
    twice = table.filter(table["model"].is_duplicated())["model"].unique().to_list()
    if twice:
        raise UserError(f"the groups name {', '.join(twice)} more than once", allowed="one row per model")
    return table
