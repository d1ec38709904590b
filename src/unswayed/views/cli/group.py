"""The command `unswayed` itself: it loads a command when it is called and prints its own help without rich."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator
from importlib import import_module
from keyword import iskeyword
from typing import Any

import typer
from typer.core import TyperGroup

from . import COMMANDS, FILES


class LazyCommands(dict[str, Any]):
    """The commands by name; each is made of its function on first use."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(name for panel in COMMANDS.values() for name in panel))

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        from .options import command_of

        if name in self and super().get(name) is None:
            help = next(panel[name] for panel in COMMANDS.values() if name in panel)
            file = import_module(f".{next(file for file, names in FILES.items() if name in names)}", __package__)
            function = f"{name}_" if iskeyword(name) else name.replace("-", "_")
            self[name] = command_of(name, getattr(file, function), help)
        return super().get(name, default)


class Group(TyperGroup):
    """The group of all commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = LazyCommands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        width = ctx.terminal_width or shutil.get_terminal_size().columns
        about = textwrap.wrap(self.help or "", width - 2, initial_indent=" ", subsequent_indent=" ")
        lines = ["", f" {self.get_usage(ctx)}", "", *about, ""]
        records = [parameter.get_help_record(ctx) for parameter in self.get_params(ctx)]
        lines += _panel("Options", {flags.partition("  ")[0]: help for flags, help in filter(None, records)}, width)
        longest = max(len(name) for name in self.commands)
        for title, commands in COMMANDS.items():
            lines += _panel(title, commands, width, longest)
        # Printed here, as typer does it: without arguments it prints what this method prints, not what it returns.
        typer.echo("\n".join(lines), color=False if "NO_COLOR" in os.environ else None)


def _panel(title: str, rows: dict[str, str], width: int, names: int = 0) -> Iterator[str]:
    """The lines of a box with a title: a name and its help per row."""
    names = max(names, *map(len, rows))
    yield typer.style(f"╭─ {title} ".ljust(width - 1, "─") + "╮", dim=True)
    side = typer.style("│", dim=True)
    for name, help in rows.items():
        shown = textwrap.wrap(help.replace("`", ""), max(20, width - names - 6))
        for number, text in enumerate(shown):
            column = typer.style(("" if number else name).ljust(names), fg="cyan", bold=True)
            yield f"{side} {column}  {text.ljust(width - names - 6)} {side}"
    yield typer.style("╰" + "─" * (width - 2) + "╯", dim=True)
