"""How much two or more models have in common: the photographs and pictures that all of them have classified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from .frames import Predictions, columns_of, each_model
from .identity import KEYS, PICTURE, shared_pictures


@dataclass(frozen=True)
class Overlap:
    """What several models have in common: photographs and pictures, and how many each of them has.

    each: name -> (photographs, pictures).
    """

    photographs: int
    pictures: int
    each: dict[str, tuple[int, int]]

    @property
    def complete(self) -> bool:
        """Whether every picture of every model is common."""
        return all(pictures == self.pictures for _, pictures in self.each.values())

    def __str__(self) -> str:
        parts = [
            f"{self.photographs:,} of {photographs:,} photographs and {self.pictures:,} of {pictures:,} pictures "
            f"of {name}"
            for name, (photographs, pictures) in self.each.items()
        ]
        return f"--common compares {', and '.join(parts)}"

    @property
    def brief(self) -> str:
        """The photographs alone: `1 of 16 and 1 of 20 photographs are common`."""
        parts = [f"{self.photographs:,} of {photographs:,}" for photographs, _ in self.each.values()]
        return f"{' and '.join(parts)} photographs are common"

    def to_json(self) -> dict[str, Any]:
        """Return the counts for a JSON file."""
        each = {name: {"photographs": one, "pictures": two} for name, (one, two) in self.each.items()}
        return {"photographs": self.photographs, "pictures": self.pictures, "of": each}


def overlap_of(sides: Sequence[tuple[str, Predictions, str]]) -> Overlap:
    """Return what the models have in common. sides: what to call each, its predictions and its name there."""
    frames = [_keys(predictions, model) for _, predictions, model in sides]
    common = shared_pictures(frames)[0]
    counts = {name: _counts(rows) for (name, _, _), rows in zip(sides, frames, strict=True)}
    return Overlap(*_counts(common), counts)


def overlap_of_models(predictions: Predictions, models: Sequence[str]) -> Overlap:
    """Return what models of the same predictions have in common."""
    return overlap_of([(name, predictions, name) for name in models])


def _keys(predictions: Predictions, model: str) -> pl.DataFrame:
    columns = ["model", *KEYS, *([PICTURE] if PICTURE in columns_of(predictions) else [])]
    (_, rows), *_ = each_model(predictions, columns, models=[model])
    return rows


def _counts(rows: pl.DataFrame) -> tuple[int, int]:
    return rows["source_id"].n_unique(), rows.height
