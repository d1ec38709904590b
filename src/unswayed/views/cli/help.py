"""The command `unswayed`, and the help of all commands: panels with the options that people use most first."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from . import COMMANDS, COMMON, FILES

FEW = 12  # options that a panel may have without being divided
LONGEST = 30  # columns of a name, so that at least 44 of 80 are left for its help


class Command(TyperCommand):
    """A command whose help has the options that people use most first, and whose folders may be addresses of object
    storage."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a `--json` that no file follows the file `-`, which is standard output."""
        for index, word in reversed(list(enumerate(args))):
            following = args[index + 1] if index + 1 < len(args) else ""
            if word == "--json" and following != "-" and not following.endswith(".json"):
                args.insert(index + 1, "-")
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        parameters = super().get_params(ctx)
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""  # no type beside a flag
            elif parameter.param_type_name == "argument":
                parameter.metavar = parameter.metavar or parameter.name.upper()
        return parameters

    def format_help(self, ctx: object, formatter: object) -> None:
        panels: dict[str, list[Any]] = {"Arguments": [], "Options": [], "Edits": [], "More": []}
        parameters = self.get_params(ctx)
        common = COMMON.get(str(self.name), ())
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                panels["Arguments"].append(parameter)
            elif parameter.rich_help_panel:
                panels[parameter.rich_help_panel].append(parameter)
            elif parameter.required or parameter.name in (*common, "help") or len(parameters) <= FEW:
                panels["Options"].append(parameter)
            else:
                panels["More"].append(parameter)
        order = {name: position for position, name in enumerate(common)}
        panels["Options"].sort(key=lambda parameter: (not parameter.required, order.get(parameter.name, len(order))))
        print_help(self, ctx, {title: records(part, ctx) for title, part in panels.items() if part})

    def invoke(self, ctx: Any) -> object:
        ctx.params = {name: _on_this_machine(value) for name, value in ctx.params.items()}
        return super().invoke(ctx)


def _on_this_machine(value: object) -> object:
    """A parameter's value, an address such as s3://bucket/bench replaced by the path of its working copy."""
    from unswayed.files.storage import is_address, local_copy

    if isinstance(value, list | tuple):
        return type(value)(map(_on_this_machine, value))
    return type(value)(local_copy(value)) if isinstance(value, str | Path) and is_address(value) else value


def records(parameters: Iterable[Any], ctx: Any) -> dict[str, str]:
    """Names and values of the parameters -> what they mean."""
    shown = filter(None, (parameter.get_help_record(ctx) for parameter in parameters))
    return {re.sub(r"list\[(\w+)\]>", r"\1> …", flags.strip()): " ".join(help.split()) for flags, help in shown}


def print_help(command: Any, ctx: Any, panels: Mapping[str, Mapping[str, str]]) -> None:
    """Print the usage, the text and the panels; without rich, which takes longer to load than all of this."""
    width = ctx.terminal_width or shutil.get_terminal_size().columns
    lines = ["", f" {command.get_usage(ctx)}", ""]
    for paragraph in (command.help or "").replace("`", "").split("\n\n"):
        for item in paragraph.strip().split("\n- "):
            bullet = "  • " if paragraph.strip().startswith("- ") else " "
            text, rest = " ".join(item.removeprefix("- ").split()), " " * len(bullet)
            lines += textwrap.wrap(text, width - 1, initial_indent=bullet, subsequent_indent=rest, **WHOLE_WORDS)
        lines.append("")
    longest = max(len(name) for rows in panels.values() for name in rows if len(name) <= LONGEST)
    for title, rows in panels.items():
        lines += _panel(title, rows, width, longest)
    # Printed here, as typer does it: without arguments it prints what this method prints, not what it returns.
    typer.echo("\n".join(lines), color=False if "NO_COLOR" in os.environ else None)


WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}


class Names(textwrap.TextWrapper):
    """Wraps at spaces, and after the commas of a list of names that is longer than a line."""

    wordsep_simple_re = re.compile(r"(\s+|(?<=[a-z0-9],)(?=[a-z]))")


def _panel(title: str, rows: Mapping[str, str], width: int, names: int) -> Iterator[str]:
    """The lines of a box with a title: a name and its help per row; a name that is too long has a line of its own."""
    yield typer.style(f"╭─ {title} ".ljust(width - 1, "─") + "╮", dim=True)
    side = typer.style("│", dim=True)
    for name, help in rows.items():
        texts = Names(width - names - 6, **WHOLE_WORDS).wrap(help.replace("`", "")) or [""]
        if len(name) > names:
            yield f"{side} {typer.style(name.ljust(width - 4), fg='cyan', bold=True)} {side}"
        for number, text in enumerate(texts):
            column = typer.style(("" if number or len(name) > names else name).ljust(names), fg="cyan", bold=True)
            yield f"{side} {column}  {text.ljust(width - names - 6)} {side}"
    yield typer.style("╰" + "─" * (width - 2) + "╯", dim=True)


class Group(TyperGroup):
    """The group of all commands; each is made of its function on first use."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: dict[str, Any] = dict.fromkeys(name for panel in COMMANDS.values() for name in panel)

    def get_command(self, ctx: object, name: str) -> Any:
        if name in self.commands and self.commands[name] is None:
            from .options import command_of

            help = next(panel[name] for panel in COMMANDS.values() if name in panel)
            file = import_module(f".{next(file for file, names in FILES.items() if name in names)}", __package__)
            function = f"{name}_" if iskeyword(name) else name.replace("-", "_")
            self.commands[name] = command_of(name, getattr(file, function), help, Command)
        return self.commands.get(name)

    def format_help(self, ctx: Any, formatter: object) -> None:
        print_help(self, ctx, {"Options": records(self.get_params(ctx), ctx), **COMMANDS})
