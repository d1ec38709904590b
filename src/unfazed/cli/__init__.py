"""`unfazed COMMAND`: one command a stage, each in its own file of this room, none with logic of its own."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

# command -> module of this room that holds the function of the module's name
COMMANDS: dict[str, str] = {
    "demo": "demo",
    "edits": "edits",
    "weights": "weights",
    "factors": "factors",
    "masks": "masks",
    "edit": "edit",
    "build": "build",
    "import": "import_",
    "verify": "verify",
    "status": "status",
    "models": "models",
    "evaluate": "evaluate",
    "sensitivity": "sensitivity",
    "analyze": "analyze",
    "compare": "compare",
    "check": "check",
    "app": "app",
    "report": "report",
    "train-network": "train_network",
}

EXIT_FAILED, EXIT_USAGE, EXIT_CANNOT_TELL, EXIT_WITH_FAILURES = 1, 2, 3, 4


def build_app() -> Any:
    """The typer application with every command of the table."""
    import typer

    app = typer.Typer(
        name="unfazed",
        help=(
            "Change one attribute of the object in a photograph, keep everything else, "
            "and measure how far a classifier's answer moves."
        ),
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )

    @app.callback(invoke_without_command=True)
    def root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
        if version:
            from unfazed import __version__

            print(__version__)
            raise typer.Exit()

    for name, module in COMMANDS.items():
        app.command(name)(getattr(import_module(f"unfazed.cli.{module}"), module))
    return app


def main() -> None:
    """Run the command line; a user's mistake is printed in full and exits with 2."""
    from unfazed.errors import UserError

    try:
        build_app()()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    except BrokenPipeError:
        sys.exit(0)
