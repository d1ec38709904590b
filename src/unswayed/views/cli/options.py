"""How a function becomes a command: the fields of its settings classes become options, beside its own parameters."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, is_dataclass, replace
from keyword import iskeyword
from pathlib import Path
from types import FunctionType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from unswayed.choices import Option, TableFormat, check_settings, offered
from unswayed.files.whole import write_json


def typer_option(option: Option) -> object:
    """An option as typer takes it."""
    complete = option.all_values if option.values else None
    return typer.Option(
        *option.flags,
        min=option.least,
        max=option.most,
        autocompletion=complete,
        metavar=option.metavar,
        help=option.text(),
        rich_help_panel=option.panel,
    )


def listed(names: Sequence[str]) -> str:
    """Names in a help text: `a`, `b`, `c`."""
    return ", ".join(f"`{name}`" for name in names)


OUTPUT, MODEL = ("-o", "--output"), ("-m", "--model")
Format = Annotated[TableFormat, Option("The format of the table.")]
Json = Annotated[
    Path | None, Option("Print the result as JSON, or also write it to FILE.json.", "[FILE]", flags=("--json",))
]
Predictions = Annotated[Path, typer.Argument(help="The folder that `unswayed evaluate` wrote.")]


def gave_json(file: Path | None, result: object) -> bool:
    """Print the result as JSON where `file` is `-`, or write it to that file; whether it was printed."""
    if file is not None and str(file) != "-":
        write_json(file, result)
    elif file is not None:
        print(json.dumps(result, ensure_ascii=False))
    return str(file) == "-"


def command_of(name: str, function: Callable[..., None], help: str, cls: type[TyperCommand]) -> object:
    """The command of a function: each parameter of a settings class stands for the options of its fields.

    A parameter annotated with a function is of the settings class that this function returns.
    """
    own = inspect.signature(function).parameters
    hints = get_type_hints(function, include_extras=True)
    for parameter, hint in hints.items():
        if get_origin(hint) is Annotated and isinstance(hint.__metadata__[0], FunctionType):
            hints[parameter] = hint.__metadata__[0]()
    settings = {parameter: hints[parameter] for parameter in own if is_dataclass(hints[parameter])}
    declared: list[inspect.Parameter] = []
    for parameter, described in own.items():
        if parameter in settings:
            declared += [_parameter(*offer) for offer in offered(settings[parameter])]
        else:
            declared.append(_own(described, hints[parameter]))

    @functools.wraps(function)
    def run(**given: object) -> None:
        passed = {parameter: value for parameter, value in given.items() if parameter in own}
        for parameter, kind in settings.items():
            passed[parameter] = _chosen(kind, given)
        function(**passed)

    run.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in declared}
    del run.__wrapped__
    holder = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
    holder.command(name, cls=cls, help=f"{help}\n\n{inspect.cleandoc(function.__doc__ or '')}")(run)
    return typer.main.get_command(holder)


def _own(parameter: inspect.Parameter, hint: object) -> inspect.Parameter:
    """A parameter of the command's function, with its option as typer takes it."""
    kind, part = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
    default = declared = parameter.default
    if isinstance(declared, Field):
        default, part = declared.default, declared.metadata["option"]
    if isinstance(part, Option):
        # Of a flag typer would add --no-… if it had no name.
        flags = part.flags or ((f"--{parameter.name.replace('_', '-')}",) if kind is bool else ())
        hint = Annotated[kind, typer_option(replace(part, flags=flags))]
    return parameter.replace(annotation=hint, default=default, kind=parameter.KEYWORD_ONLY)


def print_rows(headings: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Print a list for people."""
    import polars

    from unswayed.views.tables import format_table

    print(format_table(polars.DataFrame(rows, headings, orient="row", infer_schema_length=None), title=title), end="")


def _parameter(field: Field[object], declared: object, option: Option) -> inspect.Parameter:
    kind = _readable(declared, option)
    default = None if any(get_origin(member) is list for member in get_args(kind)) else field.default
    if default is MISSING:
        default = inspect.Parameter.empty if field.default_factory is MISSING else None
    # Refused by the settings themselves, in the words of Python's callers.
    words = f"{option.text()} [{option.range}]" if option.range else option.text()
    annotation: object = Annotated[kind, typer_option(replace(option, help=words, least=None, most=None))]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(_name(field, option), keyword, default=default, annotation=annotation)


def _name(field: Field[object], option: Option) -> str:
    """The name of the parameter: that of its long flag, if Python allows it."""
    flags = [flag.removeprefix("--").replace("-", "_") for flag in option.flags if flag.startswith("--")]
    return flags[0] if flags and flags[0].isidentifier() and not iskeyword(flags[0]) else field.name


def _readable(declared: object, option: Option) -> object:
    """The type as the command line reads it: of several types the first that it can read, or None if that is one."""
    members = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    plain = (str, int, float, bool, Path)
    first = next((member for member in members if member in plain or get_origin(member) is Literal), None)
    if first is None and get_origin(members[0]) in (Sequence, Mapping):
        return list[str if option.read is not None else get_args(members[0])[0]] | None  # type: ignore[misc]
    first = str if first is None or option.read is not None else first
    return first | None if type(None) in members or option.read is not None else first


def _chosen(kind: Any, given: Mapping[str, object]) -> object:
    """The settings that the command line gives."""
    values = {}
    for field, _, option in offered(kind):
        value = given[_name(field, option)]
        if value is None and field.default is not None:
            continue
        if option.read is not None and value is not None:
            value = option.read(value)
        values[field.name] = tuple(value) if isinstance(value, list) else value
    settings = kind(**values)
    check_settings(settings)
    return settings
