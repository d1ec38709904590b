"""The command `unswayed` itself, which loads a command when it is called."""

from __future__ import annotations

from importlib import import_module
from keyword import iskeyword
from typing import Any

from typer.core import TyperGroup

from . import COMMANDS, FILES
from .help import print_help, records


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
        print_help(self, ctx, {"Options": records(self.get_params(ctx), ctx), **COMMANDS})
