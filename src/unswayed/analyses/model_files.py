"""CSV files about models: their groups, or any other columns beside the column `model`."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from unswayed.errors import UserError
from unswayed.evaluation.predictions import polars_table
from unswayed.files.text_tables import read_csv


def read_model_csv(path: str | Path) -> pl.DataFrame:
    """Return a CSV about models as text columns, without surrounding blanks and empty rows; empty cells are null."""
    table = polars_table(read_csv(path, {}, others="text"))
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
