"""Predictions as polars data frames: made by `evaluate`, or read from a folder."""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unswayed.errors import UnswayedWarning, UserError

from .evaluation import run_evaluation
from .settings import EvaluateSettings

if TYPE_CHECKING:
    import polars

    from unswayed.models.classifier import Classifier


def evaluate(
    benchmark: str | Path,
    models: str | Classifier | Sequence[str | Classifier],
    output: str | Path,
    settings: EvaluateSettings | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> polars.DataFrame:
    """Return the predictions of every model for a benchmark's folder or `images:FOLDER`, one row per picture and model.

    They are stored in `output`, one Parquet file and one card per model, and reused the next time. progress: called
    with the number of predictions made so far and in total.
    """
    names = [models] if isinstance(models, str) or not isinstance(models, Sequence) else list(models)
    done = run_evaluation(benchmark, names, output, settings, progress=progress)
    for text in [*(line for lines in done.warnings.values() for line in lines), *_failures(done.failed)]:
        python_warnings.warn(text, UnswayedWarning, stacklevel=2)
    good = [*done.scored, *done.skipped]
    if not good:
        raise UserError("no model could be evaluated:\n" + "\n".join(_failures(done.failed)))
    return read_predictions(output, good)


def read_predictions(folder: str | Path, models: Sequence[str] | None = None) -> polars.DataFrame:
    """Return all predictions in a folder, or those of some models.

    The column white_box, which the files do not have, says whether a row's picture was made to attack this model.
    """
    return scan_predictions(folder, models).collect()


def scan_predictions(folder: str | Path, models: Sequence[str] | None = None) -> polars.LazyFrame:
    """Return the predictions as a lazy frame."""
    import polars

    from unswayed.files.storage import local_copy
    from unswayed.files.tables import read_checked

    from .facts import Facts, read_facts
    from .frames import missing_model, polars_table
    from .storage import COLUMNS

    folder = local_copy(folder)
    found = cards(folder)
    wanted = list(found) if models is None else list(models)
    for name in wanted:
        if name not in found:
            raise missing_model(name, found, folder)
    root = folder if folder.is_dir() else folder.parent
    files = [root / f"{found[name]['file']}.parquet" for name in wanted]
    facts = read_facts(folder, common=True) if any(card.get("white_box") for card in found.values()) else Facts()
    texts = polars.col(polars.Categorical).cast(polars.String)
    tables = [
        polars_table(read_checked(file, COLUMNS, required=["model", "edit"])).with_columns(texts) for file in files
    ]
    try:
        return polars.concat(tables, how="diagonal_relaxed").lazy().with_columns(facts.white_box_rows())
    except polars.exceptions.PolarsError as error:
        raise UserError(f"the predictions in {folder} do not have the same columns: {error}") from None


def cards(folder: str | Path) -> dict[str, dict[str, Any]]:
    """Return every finished model's card by the model's name; `file` is its file name without suffix."""
    from .frames import read_cards

    found = read_cards(folder)
    if not found:
        raise UserError(f"{folder} contains no cards of models", run=f"unswayed evaluate BENCH -m MODEL -o {folder}")
    return found


def _failures(failed: dict[str, str]) -> list[str]:
    return [f"{name} failed: {reason}" for name, reason in failed.items()]
