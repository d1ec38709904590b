"""Drops on valid pictures beside the drops on all of them, and what people reach as the ceiling."""

from __future__ import annotations

import polars as pl

_KEY = ["model", "edit"]
_VALID = {"n": "valid_n", "accuracy": "valid_accuracy", "drop": "valid_drop", "low": "valid_low", "high": "valid_high"}


def with_valid_drops(table: pl.DataFrame, valid: pl.DataFrame) -> pl.DataFrame:
    """The table of drops with those on valid pictures beside it: valid_n, valid_accuracy, valid_drop, its interval."""
    beside = valid.select(*_KEY, *(pl.col(name).alias(new) for name, new in _VALID.items()))
    return table.join(beside, on=_KEY, how="left", maintain_order="left")


def differs(table: pl.DataFrame) -> bool:
    """Whether any drop on valid pictures differs from the one on all pictures, or cannot be had."""
    if "valid_drop" not in table.columns:
        return False
    return not table.filter(pl.col("drop").is_not_null() & pl.col("valid_drop").ne_missing(pl.col("drop"))).is_empty()


def with_human_ceiling(table: pl.DataFrame, human: pl.DataFrame) -> pl.DataFrame:
    """The table with human_accuracy in [0, 1] and human_n, the rated pictures, for every edit that people rated."""
    return table.join(human, on="edit", how="left", maintain_order="left")
