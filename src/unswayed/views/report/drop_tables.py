"""The tables of `unswayed analyze`: their analysis, displayed columns, titles and notes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from unswayed.analyses.drops.conditional import differs, with_human_ceiling, with_valid_drops
from unswayed.analyses.drops.corruptions import corruption_errors
from unswayed.analyses.drops.curves import accuracy_curves, curve_fits, smallest_flips
from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.analyses.drops.drop_rows import corrected
from unswayed.analyses.drops.grids import interactions
from unswayed.analyses.drops.model_groups import dropped_accuracy_of_groups
from unswayed.analyses.drops.published import with_published
from unswayed.analyses.drops.thresholds import thresholds
from unswayed.errors import UserError, unknown
from unswayed.evaluation.conditions import Condition, has_invalid, human_accuracy, on_valid_pictures
from unswayed.evaluation.facts import Facts, chosen_edits, read_facts
from unswayed.evaluation.frames import Predictions, columns_of, common_predictions

from .formats import format_table, interval_cell, model_blocks
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
        raise UserError("--at-accuracy and --at-drop are only for --table thresholds", run="unswayed analyze --help")
    if table != "drops":
        if by or groups:
            raise UserError(
                f"--by and --groups are for the table 'drops', not '{table}'", run="unswayed analyze --help"
            )
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
    suspicious: Collection[str] = (),
) -> str:
    """Return the frame in one of the formats; csv and json with all columns, the others with the displayed ones.

    `table` is for a terminal of 80 columns: one block per model, and with `color` what is sure in color. remarks:
    sentences that a reader of the numbers must know; below the table in the formats for people. found: what there is
    instead of a sweep, where the table is empty. suspicious: models whose blocks are marked.
    """
    if format in ("csv", "json"):
        return format_table(frame, format)
    shown = ANALYSES[table]
    marks: dict[str, Any] = {"color": color, "suspicious": suspicious}
    if table == "drops":
        title, notes = _title(frame, by), " ".join([_notes(frame, format == "table"), *remarks])
        if format == "table":
            return model_blocks(_compact(frame, by, level), frame, digits=1, title=title, notes=notes, **marks)
        return format_table(for_people(frame, by, level), format, digits=_DIGITS, title=title, notes=notes)
    columns = [name for name in shown.columns if name in frame.columns]
    none = f"{shown.none}; {found}." if found else f"{shown.none}."
    notes = " ".join([shown.notes if frame.height else none, *remarks])
    frame = frame.with_columns(pl.col(name) * 100 for name in shown.percent if name in frame.columns)
    chosen = frame.select(columns)
    if format == "table" and "model" in columns:
        return model_blocks(chosen, frame, digits=shown.digits, title=shown.title, notes=notes, **marks)
    return format_table(chosen, format, digits=shown.digits, title=shown.title, notes=notes)


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
        interval_cell("low", "high").alias(f"{100 * level:g} %"),
        pl.col("relative_drop").alias("relative %"),
    ]
    if by is not None:
        columns.append(pl.col("shrunk_drop").alias("shrunk"))
    if table["net_drop"].is_not_null().any():
        columns += [
            pl.col("net_drop").alias("net"),
            interval_cell("net_low", "net_high").alias(f"net {100 * level:g} %"),
        ]
    if differs(table):
        valid = [pl.col("valid_n").alias("valid n"), pl.col("valid_drop").alias("valid drop")]
        columns += [*valid, interval_cell("valid_low", "valid_high").alias(f"valid {100 * level:g} %")]
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
        interval_cell(first[1], first[2], 1).alias(f"{100 * level:g} %"),
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
        edits = "edit" if counts == [1] else "edits"
        notes.append(f"average: mean over {' or '.join(map(str, counts))} {edits}, controls left out.")
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
