"""The classes of commands: their help shows no type beside an option that takes no value, and a folder may be an
address of object storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        ctx.params = {name: _on_this_machine(value) for name, value in ctx.params.items()}
        return super().invoke(ctx)


class Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return without_types(super().get_params(ctx))


def _on_this_machine(value: Any) -> Any:
    """A parameter's value, an address such as s3://bucket/bench replaced by the path of its working copy."""
    from unswayed.files.storage import is_address, local_copy

    if isinstance(value, list | tuple):
        return type(value)(map(_on_this_machine, value))
    if isinstance(value, str | Path) and is_address(value):
        return type(value)(local_copy(value))
    return value


def without_types(parameters: list[Any]) -> list[Any]:
    """Return the parameters, flags with an empty type."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters
