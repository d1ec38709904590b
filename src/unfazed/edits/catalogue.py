"""All edits and recipes as one record: what `unfazed edits` prints and the app's sliders are made from."""

from __future__ import annotations

import inspect
from typing import Any

from unfazed.edits import EDITS, add_installed

from .parameters import Choice, Range, parameters
from .recipes import RECIPES


def catalogue() -> dict[str, Any]:
    """{"edits": {name: {explains, axis, parameters}}, "recipes": {name: {explains, edits}}}, ready for JSON.

    >>> catalogue()["edits"]["size"]["parameters"]["rate"]["high"]
    1.0
    """
    add_installed()
    return {
        "edits": {name: _edit(edit) for name, edit in EDITS.items()},
        "recipes": {
            name: {"explains": recipe.explains, "edits": [item.name for item in recipe.items]}
            for name, recipe in RECIPES.items()
        },
    }


def _edit(edit: Any) -> dict[str, Any]:
    first = inspect.cleandoc(edit.__doc__).split("\n\n")[0].replace("\n", " ")
    return {
        "explains": first,
        "axis": edit.axis,
        "parameters": {name: _parameter(field) for name, field in parameters(edit).items()},
    }


def _parameter(field: Any) -> dict[str, Any]:
    declared = field.metadata["allowed"]
    record = {"default": field.default, "explains": field.metadata["explains"], "allowed": declared.describe()}
    if isinstance(declared, Range):
        record |= {"low": declared.low, "high": declared.high, "spacing": declared.spacing, "words": declared.words}
    if isinstance(declared, Choice):
        record |= {"choices": declared.names}
    return record
