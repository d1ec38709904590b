"""Predictions of a folder in one frame: all of them, or only those on pictures that hold up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from unswayed.benchmark.rows import REVIEWS, VALID, read_reviews
from unswayed.errors import UserError
from unswayed.files.storage import local_copy
from unswayed.files.tables import read_checked
from unswayed.files.whole import parse_json
from unswayed.scene import LOOK_BELOW, MASKS_DOUBTED, WARNING, MaskOrigin

from .model_cards import GUARDS, STORED, WHITE_BOX, chance_in, doubted_share_in, read_cards, suspicion_in
from .predictions import Predictions, in_memory, missing_model, plain_text, polars_table

if TYPE_CHECKING:
    from .facts import Facts


def cards(folder: str | Path) -> dict[str, dict[str, Any]]:
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
    tables = [polars_table(read_checked(file, STORED, required=["model", "edit"])) for file in files]
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


Condition = Literal["measured", "human"]
PICTURE = ("source_id", "edit", "run")


def on_valid_pictures(predictions: Predictions, facts: Facts, by: Condition, columns: list[str]) -> pl.DataFrame:
    """The predictions on valid pictures alone, with these further columns where they are there.

    by: `measured` keeps pictures whose validity is one half or more, or was never measured (the photographs
    themselves); `human` keeps those that more than half of their raters called valid, and all photographs.
    """
    measured = by == "measured"
    pictures = _invalid(facts) if measured else _ratings(facts).filter(pl.col("valid_share") > 0.5)
    photographs = pl.col("edit").is_in(["original", "source"])

    def keep(rows: pl.DataFrame) -> pl.DataFrame:
        rows = rows.with_columns(pl.col("run").fill_null(0).cast(pl.Int64))
        if measured:
            return rows.join(pictures, on=PICTURE, how="anti")
        kept = rows.filter(~photographs).join(pictures, on=PICTURE, how="semi")
        return pl.concat([rows.filter(photographs), kept])

    return in_memory(predictions, columns, keep)


def without_doubted(predictions: Predictions, facts: Facts, columns: Sequence[str]) -> tuple[pl.DataFrame, Facts]:
    """The predictions on photographs whose masks are not doubted, with these further columns; and facts of them alone.

    A mask is doubted if it has a warning, or if it was made automatically and should be looked at.
    """
    if facts.manifest is None:
        raise UserError("the benchmark of these predictions is not available", run="the command with --benchmark BENCH")
    names = [name for name in ("source_id", "notes", "values") if name in facts.manifest.columns]
    doubted = sorted(
        {row["source_id"] for row in facts.manifest.select(names).iter_rows(named=True) if _is_doubted(row)}
    )
    kept = in_memory(predictions, columns, lambda rows: rows.filter(~pl.col("source_id").is_in(doubted)))
    if kept.is_empty():
        raise UserError("every photograph has a doubted mask", allowed="other masks, or no --leave-out")
    return kept, replace(facts, cards={name: _of_sure_masks(card) for name, card in facts.cards.items()})


def _is_doubted(row: Mapping[str, Any]) -> bool:
    """Whether the mask of a row of the manifest, with its notes and values as JSON, has a warning or is unsure."""
    notes, values = (parse_json(row.get(name) or "null", row["source_id"]) for name in ("notes", "values"))
    origin = MaskOrigin.from_values(values or {})
    unsure = origin is not None and origin.confidence < LOOK_BELOW
    return unsure or any(str(note).startswith(WARNING) for note in notes or ())


def _of_sure_masks(card: Mapping[str, Any]) -> dict[str, Any]:
    """The card without what it says against the masks."""
    others = [part for part in (suspicion_in(card) or "").split("; ") if not part.startswith(MASKS_DOUBTED)]
    masks = {"below_limit": 0, "of": 1}
    benchmark = {**(card.get("benchmark") or {}), "masks": masks}
    return {**card, "benchmark": benchmark, "suspicion": "; ".join(filter(None, others)) or None}


def has_invalid(facts: Facts) -> bool:
    """Return whether the benchmark is available and contains invalid pictures."""
    return facts.manifest is not None and _measured(facts.manifest) and not _invalid(facts).is_empty()


def _measured(manifest: pl.DataFrame) -> bool:
    """Whether validity was measured for any picture; it is not for an imported dataset."""
    return "validity" in manifest.columns and not manifest["validity"].is_null().all()


def human_accuracy(facts: Facts) -> pl.DataFrame | None:
    """One row per edit that people rated: `human_accuracy`, the mean share of raters who could tell the object, and
    `human_n`, the pictures; None where there are no reviews."""
    if facts.root is None or not (facts.root / REVIEWS).is_file():
        return None
    ratings = _ratings(facts)
    return ratings.group_by("edit").agg(human_accuracy=pl.col("told_share").mean(), human_n=pl.len().cast(pl.Int64))


def _invalid(facts: Facts) -> pl.DataFrame:
    if facts.manifest is None:
        raise UserError(
            "the benchmark of these predictions is not available", run="unswayed analyze … --benchmark BENCH"
        )
    if not _measured(facts.manifest):
        raise UserError(
            "the manifest of this benchmark has no validity", run="unswayed build … --quality report, into a new folder"
        )
    made = facts.manifest.filter((pl.col("validity") < VALID) & (pl.col("status") == "ok"))
    return made.select(*PICTURE).with_columns(pl.col("run").cast(pl.Int64))


def _ratings(facts: Facts) -> pl.DataFrame:
    """One row per rated picture: the shares of its raters who called it valid and who could tell the object."""
    if facts.root is None or not (facts.root / REVIEWS).is_file():
        raise UserError("nobody has reviewed the pictures of this benchmark", run="unswayed review BENCH --rater NAME")
    reviews = pl.DataFrame([asdict(review) for review in read_reviews(facts.root)])
    return reviews.group_by(PICTURE).agg(
        valid_share=(pl.col("answer") == "valid").mean(), told_share=(pl.col("answer") != "unrecognizable").mean()
    )
