"""Predictions of a folder in one frame, with what is known about their models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from unswayed.errors import UserError
from unswayed.files.storage import local_copy
from unswayed.files.tables import read_checked
from unswayed.files.whole import Json

from .model_cards import GUARDS, STORED, WHITE_BOX, chance_in, doubted_share_in, read_cards, suspicion_in
from .predictions import missing_model, plain_text


def cards(folder: str | Path) -> dict[str, Json]:
    """Return every finished model's card by the model's name; `file` is its file name without suffix."""
    by_model = read_cards(folder)
    if not by_model:
        raise UserError(f"{folder} contains no cards of models", run=f"unswayed evaluate BENCH -m MODEL -o {folder}")
    return by_model


def read_predictions(folder: str | Path, models: Sequence[str] | None = None) -> pl.DataFrame:
    """Return all predictions in a folder, or those of some models.

    Columns that the files do not have: white_box says whether a row's picture was made to attack this model; suspicion,
    chance and doubted_masks are from the model's card, for `check` (`model_cards.GUARDS`).
    """
    return scan_predictions(folder, models).collect()


def scan_predictions(folder: str | Path, models: Sequence[str] | None = None) -> pl.LazyFrame:
    """Return the predictions as a lazy frame."""
    by_model = cards(folder)
    wanted = list(by_model) if models is None else list(models)
    for name in wanted:
        if name not in by_model:
            raise missing_model(name, by_model, folder)
    folder = local_copy(folder)
    root = folder if folder.is_dir() else folder.parent
    files = [root / f"{by_model[name]['file']}.parquet" for name in wanted]
    tables = [pl.DataFrame(read_checked(file, STORED, required=["model", "edit"])) for file in files]
    attacks = pl.lit(False).alias(WHITE_BOX)
    if any(card.get("white_box") for card in by_model.values()):
        from .facts import read_facts

        attacks = read_facts(folder, common=True).white_box_rows()
    chosen = {name: by_model[name] for name in wanted}
    stated = {name: (suspicion_in(card), chance_in(card), doubted_share_in(card)) for name, card in chosen.items()}
    kinds = (pl.String, pl.Float64, pl.Float64)
    guards = [
        pl.col("model").replace_strict({model: values[at] for model, values in stated.items()}, return_dtype=kind)
        for at, kind in enumerate(kinds)
    ]
    try:
        return (
            pl.concat(map(plain_text, tables), how="diagonal_relaxed")
            .lazy()
            .with_columns(attacks, **dict(zip(GUARDS, guards, strict=True)))
        )
    except pl.exceptions.PolarsError as error:
        raise UserError(f"the predictions in {folder} do not have the same columns: {error}") from None
