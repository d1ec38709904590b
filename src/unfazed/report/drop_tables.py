"""The tables of `unfazed analyze`, `compare` and `check`: their analysis, displayed columns, titles and notes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from unfazed.analyses.drops.baseline_rows import SAME_WEIGHTS
from unfazed.analyses.drops.conditional import differs, with_human_ceiling, with_valid_drops
from unfazed.analyses.drops.corruptions import corruption_errors
from unfazed.analyses.drops.curves import accuracy_curves, curve_fits, levels_found, smallest_flips
from unfazed.analyses.drops.drop import dropped_accuracy
from unfazed.analyses.drops.drop_rows import corrected
from unfazed.analyses.drops.grids import interactions
from unfazed.analyses.drops.model_groups import dropped_accuracy_of_groups
from unfazed.analyses.drops.published import with_published
from unfazed.analyses.drops.same_model import SameModel
from unfazed.analyses.drops.thresholds import thresholds
from unfazed.errors import UserError, unknown
from unfazed.predictions.conditions import Condition, has_invalid, human_accuracy, on_valid_pictures
from unfazed.predictions.facts import Facts, chosen_edits, read_facts
from unfazed.predictions.frames import (
    Predictions,
    columns_of,
    common_predictions,
    each_model,
    model_names,
    read_cards,
    read_failures,
)
from unfazed.predictions.overlap import overlap_of
from unfazed.predictions.suspicions import suspicions

from .formats import format_table, model_blocks
from .words import probability

_DIGITS = {"p_holm": 4, "level": 4}
_FINE = dict.fromkeys(
    ("level", "halfway", "low", "high", "accuracy", "true_probability", "floor", "ceiling", "threshold", "fitted"), 4
)
_POINTS = "Accuracies in %, drops in points with intervals over photographs; net: relative to the edit's control"


@dataclass(frozen=True)
class Analysis:
    """One of the tables: the function that makes it and its settings, its title, and its displayed columns.

    percent: the columns with shares in [0, 1] that are displayed in percent.
    """

    make: Callable[..., pl.DataFrame]
    title: str
    columns: Sequence[str]
    notes: str = ""
    none: str = "There is no sweep of at least three levels in these predictions"
    options: frozenset[str] = frozenset({"resamples", "level", "seed"})
    digits: Mapping[str, int] = field(default_factory=lambda: _DIGITS)
    percent: tuple[str, ...] = ()


def analyze(
    predictions: str | Path,
    table: str = "drops",
    *,
    by: str | None = None,
    groups: str | Path | None = None,
    models: Sequence[str] | None = None,
    edits: Sequence[str] | None = None,
    benchmark: str | Path | None = None,
    common: bool = False,
    interval: str = "auto",
    condition: Condition | None = None,
    **settings: Any,
) -> pl.DataFrame:
    """Return the data frame of one table of a predictions folder.

    Models from different benchmarks are refused; common: use only the pictures that they share. settings: resamples,
    level, seed; accuracy, drop: the targets of the table `thresholds`. condition: only pictures that are valid as
    measured or as people say; without it the drops on valid pictures stand beside those on all of them, where the
    benchmark has invalid ones.
    """
    if table not in ANALYSES:
        raise unknown("table", table, ANALYSES)
    facts = read_facts(predictions, benchmark, models=models, common=common)
    answers: Predictions = common_predictions(predictions, models) if common else predictions
    everything = answers
    if condition is not None:
        answers = on_valid_pictures(answers, facts, condition, columns_of(answers))
    targets: dict[str, Any] = {name: settings.pop(name) for name in ("accuracy", "drop") if name in settings}
    if any(targets.values()) and table != "thresholds":
        raise UserError("--at-accuracy and --at-drop are only for --table thresholds", run="unfazed analyze --help")
    if table != "drops":
        if by or groups:
            raise UserError(f"--by and --groups are for the table 'drops', not '{table}'", run="unfazed analyze --help")
        given = {**settings, **targets}
        chosen = {name: value for name, value in given.items() if name in ANALYSES[table].options}
        frame = ANALYSES[table].make(answers, facts=facts, **chosen)
        return _kept(frame, models, edits)
    if by and groups:
        raise UserError("both --by and --groups are given", allowed="one of them")
    if groups is not None:
        file = None if str(groups) == "all" else groups
        frame = _kept(dropped_accuracy_of_groups(answers, file, facts=facts, **settings), models, edits)
    else:
        chosen = {"models": models, "edits": edits, "facts": facts, "interval": interval, **settings}
        frame = dropped_accuracy(answers, by=by, **chosen)
        if by is None:
            frame = with_conditions(frame, everything, condition, **chosen)
    return with_published(frame, facts.cards) if facts.official and by is None else frame


def with_conditions(
    frame: pl.DataFrame, predictions: Predictions, condition: Condition | None = None, *, facts: Facts, **settings: Any
) -> pl.DataFrame:
    """The table of drops with the human ceiling where pictures were reviewed, and with the drops on valid pictures
    where the benchmark has invalid ones and no condition was asked for."""
    if condition is None and has_invalid(facts):
        valid = on_valid_pictures(predictions, facts, "measured", [])
        frame = with_valid_drops(frame, dropped_accuracy(valid, facts=facts, **settings))
    human = human_accuracy(facts)
    return frame if human is None else with_human_ceiling(frame, human)


def analysis_text(
    frame: pl.DataFrame,
    table: str,
    format: str,
    by: str | None = None,
    level: float = 0.95,
    remarks: Sequence[str] = (),
    found: str = "",
    color: bool = False,
) -> str:
    """Return the frame in one of the formats; csv and json with all columns, the others with the displayed ones.

    `table` is for a terminal of 80 columns: one block per model, and with `color` what is sure in color. remarks: what
    a reader of the numbers must know; below the table in the formats for people. found: what there is instead of a
    sweep, where the table is empty.
    """
    if format in ("csv", "json"):
        return format_table(frame, format)
    shown = ANALYSES[table]
    if table == "drops":
        title, notes = _title(frame, by), _with_remarks(_notes(frame, format == "table"), remarks)
        if format == "table":
            return model_blocks(_compact(frame, by, level), frame, digits=1, title=title, notes=notes, color=color)
        return format_table(for_people(frame, by, level), format, digits=_DIGITS, title=title, notes=notes)
    columns = [name for name in shown.columns if name in frame.columns]
    none = f"{shown.none}; {found}." if found else f"{shown.none}."
    notes = _with_remarks(shown.notes if frame.height else none, remarks)
    frame = frame.with_columns(pl.col(name) * 100 for name in shown.percent if name in frame.columns)
    chosen = frame.select(columns)
    if format == "table" and "model" in columns:
        return model_blocks(chosen, frame, digits=shown.digits, title=shown.title, notes=notes, color=color)
    return format_table(chosen, format, digits=shown.digits, title=shown.title, notes=notes)


def remark_lines(
    predictions: str | Path,
    models: Sequence[str] | None = None,
    common: bool = False,
    other: str | Path | None = None,
) -> list[str]:
    """Return what a reader of these models' numbers must know: suspicions in their cards, and how much is common.

    other: the folder of the last model's predictions, if it is another one.
    """
    chosen = list(models or model_names(predictions))
    places = [predictions] * len(chosen) if other is None else [*[predictions] * (len(chosen) - 1), other]
    lines = [line for name, place in zip(chosen, places, strict=True) for line in suspicions(read_cards(place), [name])]
    if common and len(chosen) > 1:
        calls = chosen if other is None else [f"{name} in {place}" for name, place in zip(chosen, places, strict=True)]
        lines.append(str(overlap_of(list(zip(calls, places, chosen, strict=True)))))
    return lines


def _with_remarks(notes: str, remarks: Sequence[str]) -> str:
    return " ".join([notes, *(f"Note: {one}." for one in remarks)])


def swept(predictions: str | Path, benchmark: str | Path | None = None) -> str:
    """Return which levels the predictions have, for a table that needs more of them."""
    facts = read_facts(predictions, benchmark, common=True)
    edits = {edit for _, rows in each_model(predictions, ("model", "edit")) for edit in rows["edit"].unique()}
    return f"levels found: {levels_found(facts.sorted(edits), facts)}"


def moved_lines(predictions: str | Path) -> list[str]:
    """A line where the benchmark is not at the place that the cards name, which leaves its controls unknown."""
    paths = [card["benchmark"].get("path") for card in read_cards(predictions).values() if card.get("benchmark")]
    gone = [path for path in dict.fromkeys(paths) if path and not Path(path).exists()]
    return [
        f"the benchmark is no longer at {path}, so its controls and levels are unknown: give its place by --benchmark"
        for path in gone
    ]


def failure_lines(predictions: str | Path) -> list[str]:
    """Return a line for each model whose last evaluation failed, and what that means for its numbers."""
    means = {True: "its numbers are from an earlier evaluation", False: "it has no numbers"}
    return [
        f"the last evaluation of {model} failed with: {reason}; {means[earlier]}"
        for model, reason, earlier in read_failures(predictions)
    ]


def for_people(table: pl.DataFrame, by: str | None = None, level: float = 0.95) -> pl.DataFrame:
    """Return the drop table for display: percent, intervals as one cell, without columns that are empty."""
    columns = [pl.col("model"), pl.col("edit")]
    if by is not None:
        columns.append(pl.col(by))
    if "models" in table.columns:
        columns.append(pl.col("models"))
    columns += [
        pl.col("n"),
        (100 * pl.col("accuracy")).alias("accuracy %"),
        pl.col("drop"),
        _interval("low", "high").alias(f"{100 * level:g} %"),
        pl.col("relative_drop").alias("relative %"),
    ]
    if by is not None:
        columns.append(pl.col("shrunk_drop").alias("shrunk"))
    if table["net_drop"].is_not_null().any():
        columns += [pl.col("net_drop").alias("net"), _interval("net_low", "net_high").alias(f"net {100 * level:g} %")]
    if differs(table):
        valid = [pl.col("valid_n").alias("valid n"), pl.col("valid_drop").alias("valid drop")]
        columns += [*valid, _interval("valid_low", "valid_high").alias(f"valid {100 * level:g} %")]
    if "human_accuracy" in table.columns and table["human_accuracy"].is_not_null().any():
        columns.append((100 * pl.col("human_accuracy")).alias("human %"))
    columns.append(pl.col("p_holm"))
    if table["white_box"].any():
        columns.append(pl.when("white_box").then(pl.lit("yes")).otherwise(pl.lit("")).alias("white-box"))
    if "published" in table.columns and table["published"].is_not_null().any():
        columns += [pl.col("published"), pl.col("published_model").alias("of")]
    return table.select(columns)


def _compact(table: pl.DataFrame, by: str | None, level: float) -> pl.DataFrame:
    """Return the drop table for a terminal: the net drop with its interval and test, the raw drop beside it."""
    has_net = bool(table["net_drop"].is_not_null().any())
    first = ("net_drop", "net_low", "net_high", "net_p_holm") if has_net else ("drop", "low", "high", "p_holm")
    columns = [pl.col("model"), pl.col("edit"), *([pl.col(by)] if by else []), pl.col("n")]
    test = pl.col(first[3] if table[first[3]].is_not_null().any() else "p_holm")
    p = pl.when("white_box").then(pl.lit("white-box")).otherwise(test.map_elements(probability, return_dtype=pl.String))
    columns += [
        pl.col(first[0]).alias("net" if has_net else "drop"),
        _interval(first[1], first[2], 1).alias(f"{100 * level:g} %"),
        p.alias("p"),
    ]
    columns += [pl.col("drop").alias("raw")] if has_net else []
    columns += [pl.col("shrunk_drop").alias("shrunk")] if by else []
    columns.append((100 * pl.col("accuracy")).alias("acc. %"))
    if differs(table):
        columns.append(pl.col("valid_drop").alias("valid"))
    if "human_accuracy" in table.columns and table["human_accuracy"].is_not_null().any():
        columns.append((100 * pl.col("human_accuracy")).alias("human %"))
    if "published" in table.columns and table["published"].is_not_null().any():
        columns.append(pl.col("published"))
    return table.select(columns)


def comparison_text(
    table: pl.DataFrame, models: Sequence[str], format: str, measure: str = "drop", remarks: Sequence[str] = ()
) -> str:
    """Return the comparison of two models, or of all pairs of several, in one of the formats."""
    if format in ("csv", "json"):
        return format_table(table, format)
    difference, low, high = _DIFFERENCES[measure]
    shown = table.select(
        *(["first", "second"] if "first" in table.columns else []),
        "edit",
        "n",
        (100 * pl.col("first_accuracy")).alias("first %"),
        (100 * pl.col("second_accuracy")).alias("second %"),
        pl.col("first_drop").alias("first drop"),
        pl.col("second_drop").alias("second drop"),
        pl.col("first_relative_drop").alias("first relative %"),
        pl.col("second_relative_drop").alias("second relative %"),
        pl.col(difference).alias("difference"),
        _interval(low, high).alias("95 %"),
        "p_holm",
        "verdict",
    )
    compared = {"accuracy": "accuracy", "drop": "drop", "net": "net drop"}[measure]
    less = "positive if the first is more accurate" if measure == "accuracy" else "negative if the first drops less"
    notes = (
        f"difference: first {compared} minus second {compared} in points, paired over photographs; {less}. "
        "Relative drops: in % of the accuracy on the originals. p_holm: sign-flip test, corrected over the table; "
        "for the original, it compares the accuracies."
    )
    title = f"first: {models[0]}, second: {models[1]}" if "first" not in table.columns else "all pairs"
    title = f"{title}; by {compared}"
    return format_table(shown, format, digits=_DIGITS, title=title, notes=_with_remarks(notes, remarks))


_DIFFERENCES = {
    "accuracy": ("accuracy_difference", "accuracy_low", "accuracy_high"),
    "drop": ("drop_difference", "low", "high"),
    "net": ("net_difference", "net_low", "net_high"),
}


def same_model_text(found: SameModel, models: Sequence[str], format: str) -> str:
    """Return the comparison of one model in two forms, and its answer as the last line."""
    if format == "json":
        return json.dumps({"answer": found.answer, "sentence": found.sentence, "edits": found.table.to_dicts()}) + "\n"
    if format == "csv":
        return format_table(found.table, format)
    shown = found.table.select(
        "edit",
        "n",
        (100 * pl.col("first_accuracy")).alias("first %"),
        (100 * pl.col("second_accuracy")).alias("second %"),
        (100 * pl.col("same")).alias("same class %"),
        "cost",
        _interval("low", "high").alias("90 %"),
        "p_holm",
        "verdict",
    )
    notes = (
        "cost: points that the second form loses, in accuracy on the originals and in drop on the edits, paired over "
        "photographs. 90 % interval within the margin: equivalent (two one-sided tests at 5 %). p_holm: sign-flip test "
        "for a difference, corrected over the table."
    )
    title = f"first: {models[0]}, second: {models[1]}; the same model?"
    return format_table(shown, format, digits=_DIGITS, title=title, notes=notes) + f"\n{found.sentence}\n"


def checks_text(checks: pl.DataFrame, overall: str, format: str = "table", remarks: Sequence[str] = ()) -> str:
    """Return the checks as text, failures first; below it the remarks and why checks were not measured."""
    if format in ("csv", "json"):
        return format_table(checks, format)
    rank = {"fail": 0, "not measured": 1, "cannot tell": 2, "pass": 3}
    ordered = checks.sort(pl.col("verdict").replace_strict(rank, return_dtype=pl.Int64), maintain_order=True)
    fine = pl.col("measure").str.starts_with("level")
    text = {name: pl.when(fine).then(_number(name, 4)).otherwise(_number(name, 2)) for name in ("value", "threshold")}
    spans = pl.when(fine).then(_interval("low", "high", 4)).otherwise(_interval("low", "high"))
    columns: list[str | pl.Expr] = ["verdict", "model", "edit", "measure", "n"]
    columns += [text["value"].alias("value"), spans.alias("interval")]
    notes = "Values in points, accuracies in %, levels in the attribute's own unit."
    doubtful = checks.filter(verdict="cannot tell")
    if doubtful.height:
        notes += " more: about how many more photographs would decide with a power of 80 %, if the value stays."
    # The interval of a check does not explain these verdicts.
    told = checks.filter((pl.col("verdict") == "not measured") | (pl.col("reason") == SAME_WEIGHTS))
    reasons = [
        f"{model}, {', '.join(dict.fromkeys(edits))}: {reason}"
        for model, reason, edits in told.group_by("model", "reason", maintain_order=True).agg("edit").iter_rows()
    ]
    limit = text["threshold"].alias("threshold")
    shown = ordered.select(*columns, limit, *(["more"] if doubtful.height else []))  # type: ignore[arg-type]
    notes = _with_remarks(notes, [*remarks, *reasons])
    return format_table(shown, format, title=f"unfazed check: {overall}", notes=notes)


def _interval(low: str, high: str, digits: int = 2) -> pl.Expr:
    text = pl.format("{} to {}", _number(low, digits), _number(high, digits))
    return pl.when(pl.col(low).is_not_null()).then(text)


def _number(name: str, digits: int) -> pl.Expr:
    """Return the column as text with this many decimals and a true minus sign."""

    def text(value: float) -> str:
        return f"{value:.{digits}f}".replace("-", "−")

    # Adding zero turns −0.0 into 0.0.
    return (pl.col(name).round(digits) + 0.0).map_elements(text, return_dtype=pl.String)


def _title(frame: pl.DataFrame, by: str | None) -> str:
    models = frame["model"].n_unique()
    if "models" in frame.columns:
        members = max(frame["models"].to_list())  # the group of all models is always there
        return f"Dropped accuracy of {models} group{'s' * (models != 1)} of models, {members} models in all"
    return f"Dropped accuracy of {models} model{'s' * (models != 1)}" + (f" by {by}, worst first" if by else "")


def _notes(frame: pl.DataFrame, compact: bool = False) -> str:
    relative = "relative: the drop in % of the accuracy on the originals"
    notes = [f"{_POINTS}; {'raw: without it; p: of the net drop, corrected (Holm)' if compact else relative}."]
    averages = frame.drop_nulls("edits")
    if averages.height:
        counts = sorted(set(averages["edits"].to_list()))
        notes.append(f"average: mean over {' or '.join(map(str, counts))} edits, controls left out.")
    if differs(frame):
        notes.append("valid: on the pictures alone whose validity is 0.5 or more.")
    if "human_accuracy" in frame.columns:
        notes.append("human: how often people could tell the object, the ceiling for a model.")
    if frame["white_box"].any():
        notes.append("white-box: the edit was made to attack this model; left out of all models' averages.")
    if "published" in frame.columns and frame["published"].is_not_null().any():
        notes.append("published: ImageNet-E (CVPR 2023), % for the original, points elsewhere.")
    return " ".join(notes)


def _kept(frame: pl.DataFrame, models: Sequence[str] | None, edits: Sequence[str] | None) -> pl.DataFrame:
    """Return the rows of these models and edits, with p-values corrected over the remaining rows."""
    for column, chosen in (("model", models), ("edit", edits)):
        if chosen and column in frame.columns:
            there = frame[column].unique(maintain_order=True).to_list()
            if column == "edit":
                chosen = chosen_edits(chosen, there)
            for name in chosen:
                if name not in there:
                    raise unknown(column, name, there)
            frame = frame.filter(pl.col(column).is_in(list(chosen)))
    return corrected(frame) if "p_holm" in frame.columns else frame


ANALYSES: dict[str, Analysis] = {
    "drops": Analysis(dropped_accuracy, "Dropped accuracy", ()),
    "curves": Analysis(
        accuracy_curves,
        "Accuracy along each attribute",
        ("model", "attribute", "side", "level", "n", "accuracy", "low", "high", "true_probability"),
        "Accuracies in % with intervals; true_probability: mean probability of the true class in %.",
        options=frozenset({"level"}),
        digits={"level": 4},
        percent=("accuracy", "low", "high", "true_probability"),
    ),
    "fits": Analysis(
        curve_fits,
        "The level at which half of the accuracy is lost",
        ("model", "attribute", "side", "levels", "n", "halfway", "low", "high", "floor", "ceiling", "scale"),
        "halfway: the level, in the attribute's own unit, at which accuracy is midway between floor and ceiling; a "
        "dash if it is outside the levels of the sweep, accuracy is flat, or the ceiling was not reached. Floor and "
        "ceiling in %.",
        none="There is no sweep of at least five levels in these predictions, which the fit of a curve needs (`--table "
        "thresholds` needs three)",
        digits={**_FINE, "floor": 2, "ceiling": 2},
        percent=("floor", "ceiling"),
    ),
    "thresholds": Analysis(
        thresholds,
        "The hardest level at which each target is still met",
        ("model", "attribute", "side", "target", "n", "harder", "met", "threshold", "low", "high", "fitted"),
        "threshold: in the attribute's own unit, by isotonic regression, with its interval; fitted: by the fitted "
        "curve; harder: the side on which accuracy is lower.",
        options=frozenset({"resamples", "level", "seed", "accuracy", "drop"}),
        digits=_FINE,
    ),
    "flips": Analysis(
        smallest_flips,
        "The smallest change that flips the prediction for each picture",
        ("model", "attribute", "side", "source_id", "level", "returns"),
        "level: a dash if no level flips it; returns: the prediction is right again at a harder level.",
        options=frozenset(),
    ),
    "corruptions": Analysis(
        corruption_errors,
        "Corruption error on ImageNet-C",
        ("model", "corruption", "n", "severities", "error", "alexnet", "ce"),
        "error: top-1 error in %, mean over the severities; ce: in % of AlexNet's error; mean: over the fifteen "
        "corruptions of the benchmark, its ce is the mean corruption error (mCE).",
        options=frozenset(),
    ),
    "interactions": Analysis(
        interactions,
        "Interactions of two attributes",
        ("model", "first", "second", "n", "drop", "first_drop", "second_drop", "interaction", "low", "high", "p_holm"),
        "Points; interaction = drop - first_drop - second_drop, positive if the pair is worse than the sum.",
        "There is no grid of two attributes in these predictions",
    ),
}
