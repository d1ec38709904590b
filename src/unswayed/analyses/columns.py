"""The columns of the tables of analyses: a column has the same type in every table."""

from __future__ import annotations

from typing import Any

import polars as pl

_NAMES: dict[Any, str] = {
    pl.String: "model edit kind interval control first second reference attribute side scale source_id target harder "
    "met question measure verdict reason set note factor norm region method class worst_model",
    pl.Int64: "n runs net_n edits models levels more photographs n_right n_wrong",
    pl.Boolean: "white_box returns",
}
_TYPES = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def schema(names: str) -> dict[str, Any]:
    """Return the types of a table's columns, named in their order and separated by spaces; a measure is Float64.

    >>> schema("model n drop")
    {'model': String, 'n': Int64, 'drop': Float64}
    """
    return {name: _TYPES.get(name, pl.Float64) for name in names.split()}
