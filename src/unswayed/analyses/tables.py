"""One table of a folder of predictions by its name: what `unswayed analyze --table NAME` computes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import polars as pl

from unswayed.choices import takes
from unswayed.errors import UserError, check_known
from unswayed.evaluation.facts import (
    ORIGINAL,
    SOURCE,
    Condition,
    Facts,
    chosen_edits,
    on_valid_pictures,
    read_facts,
    without_doubted,
)
from unswayed.evaluation.predictions import Predictions, columns_of, common_predictions, in_memory

from . import ANALYSES, table_facts
from .drops.drop import DropSettings, against_source, dropped_accuracy, with_conditions, with_published
from .drops.groups import dropped_accuracy_of_groups
from .settings import AnalyzeSettings
from .statistics import corrected
from .statistics.paired import Resampling

# Keyword of `analyze` -> the command's option, for those that are refused where a table does not take them.
_FLAGS = {"by": "--by", "groups": "--groups", "accuracy": "--at-accuracy", "drop": "--at-drop"}


@takes(AnalyzeSettings)
def analyze(predictions: Predictions, settings: AnalyzeSettings) -> pl.DataFrame:
    """Return the data frame of one table of a predictions folder; the fields of settings are also keywords.

    Models from different benchmarks are refused; common: use only the pictures that they share. accuracy, drop: the
    targets of the table `thresholds`. reference: `source` puts the unframed files in the originals' place. Without
    a condition the drops on valid pictures stand beside those on all of them, where the benchmark has invalid ones.
    """
    table, models = settings.table, settings.models
    make, options = ANALYSES.load(table), table_facts(table).options
    given = vars(settings)
    for option, flag in _FLAGS.items():
        if given.get(option) and option not in options:
            takers = [name for name in ANALYSES if ANALYSES.is_own(name) and option in table_facts(name).options]
            raise UserError(
                f"{flag} is not for the table '{table}'",
                allowed=" or ".join(f"--table {name}" for name in takers),
                run="unswayed analyze --help",
            )
    facts = read_facts(predictions, settings.benchmark, models=models, common=settings.common)
    answers: Predictions = common_predictions(predictions, models) if settings.common else predictions
    if settings.leave_out is not None:
        answers, facts = without_doubted(answers, facts, columns_of(answers))
    if settings.reference == "source":
        answers = against_source(answers)
    if settings.condition is not None:
        answers = on_valid_pictures(answers, facts, settings.condition, columns_of(answers))
    if not ANALYSES.is_own(table):
        answers = in_memory(answers, columns_of(answers)).with_columns(pl.col(pl.Categorical).cast(pl.String))
    given = {**given, "facts": facts}
    frame = make(answers, **{name: given[name] for name in options})
    if settings.reference == "source" and "edit" in frame.columns:
        frame = frame.with_columns(pl.col("edit", *({"kind"} & set(frame.columns))).replace(ORIGINAL, SOURCE))
    return frame if "models" in options else _kept(frame, models, settings.edits)


def drop_table(
    predictions: Predictions,
    *,
    facts: Facts,
    by: str | None = None,
    groups: str | Path | None = None,
    models: Sequence[str] | None = None,
    edits: Sequence[str] | None = None,
    condition: Condition | None = None,
    interval: str = "auto",
    **settings: Unpack[Resampling],
) -> pl.DataFrame:
    """Dropped accuracy of models or of groups of models, with all that is known beside it: drops on valid pictures,
    what people could tell, published numbers."""
    if by and groups:
        raise UserError("both --by and --groups are given", allowed="one of them")
    if groups is not None:
        file = None if str(groups) == "all" else groups
        frame = _kept(dropped_accuracy_of_groups(predictions, file, facts=facts, **settings), models, edits)
    else:
        chosen = DropSettings(models=models, edits=edits, interval=interval, **settings)
        frame = dropped_accuracy(predictions, by=by, facts=facts, **chosen)
        if by is None:
            frame = with_conditions(frame, predictions, condition, facts=facts, **chosen)
    return with_published(frame, facts.cards) if facts.official and by is None else frame


def _kept(frame: pl.DataFrame, models: Sequence[str] | None, edits: Sequence[str] | None) -> pl.DataFrame:
    """Return the rows of these models and edits, with p-values corrected over the remaining rows."""
    for column, chosen in (("model", models), ("edit", edits)):
        if chosen and column in frame.columns:
            there = frame[column].unique(maintain_order=True).to_list()
            if column == "edit":
                chosen = chosen_edits(chosen, there)
            check_known(column, chosen, there)
            frame = frame.filter(pl.col(column).is_in(list(chosen)))
    return corrected(frame) if "p_holm" in frame.columns else frame
