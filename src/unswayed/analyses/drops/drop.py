"""Dropped accuracy: top-1 on the originals minus top-1 on the edited pictures of the same photographs.

import unswayed
unswayed.dropped_accuracy("PREDICTIONS")          # a polars data frame, one row per model and edit
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from unswayed.analyses.statistics.intervals import Settings
from unswayed.evaluation.facts import Facts, read_facts
from unswayed.evaluation.model_cards import warn_of_suspicions
from unswayed.evaluation.predictions import Predictions

from .drop_rows import finish, model_rows
from .groups import dropped_accuracy_by
from .outcomes import each_outcomes


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
    settings = Settings(resamples, level, seed, interval)
    if facts is None:
        facts = read_facts(predictions)
        warn_of_suspicions(facts.cards, models)
    if by is not None:
        return dropped_accuracy_by(predictions, by, models=models, edits=edits, facts=facts, settings=settings)
    rows: list[dict[str, Any]] = []
    for found in each_outcomes(predictions, models):
        rows += model_rows(found, facts, settings, edits)
    return finish(rows)
