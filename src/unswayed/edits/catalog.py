"""All edits and recipes as one record, which `unswayed edits` prints, and the tables of docs/edits.md."""

from __future__ import annotations

import dataclasses
from typing import Any

from . import all_edits
from .edit import Choice, Edit, Range, Text, parameters
from .recipes import RECIPES, named_recipe


def catalog() -> dict[str, Any]:
    """Return {"edits": {name: declarations and parameters}, "recipes": {name: {explains, edits}}}, ready for JSON.

    >>> catalog()["edits"]["size"]["parameters"]["rate"]["high"]
    1.0
    """
    return {
        "edits": {name: _edit(edit) for name, edit in all_edits().items()},
        "recipes": {
            name: {"explains": recipe.explains, "edits": [item.name for item in recipe.items]}
            for name, recipe in zip(RECIPES, map(named_recipe, RECIPES), strict=True)
        },
    }


def edits_table() -> str:
    """Return the Markdown tables of the edits and of the meanings of their choices, for docs/edits.md."""
    rows = ["| edit | what changes | parameters | control | needs |", "| --- | --- | --- | --- | --- |"]
    meanings = []
    for name, edit in all_edits().items():
        declared = ", ".join(f"`{parameter}`" for parameter in parameters(edit))
        control = f"`{edit.control}`" if edit.control and edit.control != name else "–"
        rows.append(f"| `{name}` | {edit.description} | {declared} | {control} | {', '.join(edit().needs) or '–'} |")
        texts = {key: "FILE" for key, field in parameters(edit).items() if isinstance(field.metadata["allowed"], Text)}
        for parameter, field in parameters(edit).items():
            if explained := getattr(field.metadata["allowed"], "meanings", None):
                meanings += ["", f"| {name}: {parameter} | meaning | needs |", "| --- | --- | --- |"]
            for choice, meaning in (explained or {}).items():
                needs = edit.from_controls({**texts, parameter: choice}).needs
                meanings.append(f"| `{choice}` | {meaning} | {', '.join(needs) or '–'} |")
    return "\n".join([*rows, *meanings]) + "\n"


def _edit(edit: type[Edit]) -> dict[str, object]:
    usual = edit()
    return {
        "explains": edit.description,
        "axis": edit.axis,
        "axis_label": edit.axis_label,
        "control": edit.control,
        "random": usual.random,
        "borrows": usual.borrows,
        "needs": list(usual.needs),
        "order": edit.order,
        "parameters": {name: _parameter(field) for name, field in parameters(edit).items()},
    }


def _parameter(field: dataclasses.Field[object]) -> dict[str, object]:
    declared = field.metadata["allowed"]
    record = {"default": field.default, "explains": field.metadata["explains"], "allowed": declared.describe()}
    if isinstance(declared, Range):
        record |= {"low": declared.low, "high": declared.high, "spacing": declared.spacing, "words": declared.words}
    if isinstance(declared, Choice):
        record |= {"choices": declared.names, "meanings": dict(declared.meanings)}
    return record
