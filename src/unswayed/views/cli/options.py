"""Options that are declared elsewhere: by the fields of settings classes, and by edits.

They are read only when their command is called, so that `unswayed --help` imports nothing heavy.
"""

from __future__ import annotations

import functools
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from unswayed.choices import DEVICE, Option

from .command import Command, without_types

# The key of the context's `meta` under which the values of the declared options are kept.
GIVEN = "unswayed.options"
Settings = TypeVar("Settings")
# Name of a parameter -> its annotated type and its default.
Declared = Mapping[str, tuple[Any, Any]]


def typer_option(told: Option) -> Any:
    """An option as typer takes it."""
    complete = (lambda: list(told.values)) if told.values else None
    return typer.Option(metavar=told.metavar, help=told.help, min=told.least, autocompletion=complete)


Device: TypeAlias = Annotated[str | None, typer_option(DEVICE)]
NetworkFacts: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A setting that the network's file does not contain, such as `num_head_channels=32`; may be repeated.",
    ),
]


def command_with(settings: str, more: Callable[[], Declared] = dict) -> type[Command]:
    """The class of a command that has, besides the parameters of its function, the options of a settings class.

    settings: `module:class`; more: returns further options.
    """

    @functools.cache
    def options() -> list[Any]:
        return _click_options({**_settings_options(pkgutil.resolve_name(settings)), **more()})

    class WithOptions(Command):
        def get_params(self, ctx: Any) -> list[Any]:
            names = {parameter.name for parameter in self.params}
            others = [one for one in options() if one.name not in names]
            return [*super().get_params(ctx), *without_types(others)]

        def invoke(self, ctx: Any) -> Any:
            own = {parameter.name for parameter in self.params}
            ctx.meta[GIVEN] = {name: ctx.params.pop(name) for name in list(ctx.params) if name not in own}
            return super().invoke(ctx)

    return WithOptions


def _settings_options(kind: type) -> dict[str, tuple[Any, Any]]:
    """An option for each field of a settings class that is annotated with an `Option`."""
    found = {}
    for field, declared, told in _offered(kind):
        name = told.name or field.name
        found[name] = (Annotated[_readable(declared), typer_option(told)], field.default)
    return found


def chosen(context: typer.Context, kind: type[Settings], **others: Any) -> Settings:
    """The settings that the command line gives; others: the values of fields that have no option."""
    given = context.meta[GIVEN]
    return kind(**{field.name: given[told.name or field.name] for field, _, told in _offered(kind)}, **others)


def _offered(kind: Any) -> Iterator[tuple[Field[Any], Any, Option]]:
    """Each field that has an option, with its type and that option."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        declared, *extras = get_args(hints[field.name]) or [None]
        for told in extras:
            if isinstance(told, Option):
                yield field, declared, told


def _readable(declared: Any) -> Any:
    """Of several types the first that the command line can read, or None where that is one of them."""
    if get_origin(declared) not in (Union, UnionType):
        return declared
    plain = (str, int, float, bool, Path)
    first = next(one for one in get_args(declared) if one in plain or get_origin(one) is Literal)
    return first | None if type(None) in get_args(declared) else first


def _click_options(declared: Declared) -> list[Any]:
    def collect(**given: object) -> None:
        """Hold the options, which typer reads from the signature."""

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(n, keyword, default=d, annotation=kind) for n, (kind, d) in declared.items()]
    collect.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    collect.__annotations__ = {name: kind for name, (kind, _) in declared.items()}
    holder = typer.Typer(add_completion=False)
    holder.command()(collect)
    return [one for one in typer.main.get_command(holder).params if one.name in declared]
