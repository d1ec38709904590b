"""`unswayed COMMAND`: the commands, each in its own file of this folder. They contain no logic."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

# Panel of `unswayed --help` -> command -> module of this folder; the command's function has the module's name.
# Panels and commands are listed in the order in which people use them.
COMMANDS: dict[str, dict[str, str]] = {
    "Start": {"demo": "demo", "app": "app"},
    "Photographs and edits": {"masks": "masks", "edits": "edits", "edit": "edit", "fragility": "fragility"},
    "Benchmarks": {
        "build": "build",
        "import": "import_",
        "export": "export",
        "verify": "verify",
        "status": "status",
    },
    "Models and predictions": {"models": "models", "fit-head": "fit_head", "evaluate": "evaluate"},
    "Analyses": {
        "analyze": "analyze",
        "compare": "compare",
        "check": "check",
        "plan": "plan",
        "factors": "factors",
        "sensitivity": "sensitivity",
        "distribution": "distribution",
    },
    "Reports": {"report": "report", "review": "review"},
    "Repair": {"repair": "repair", "enhance": "enhance"},
    "Diffusion networks": {"weights": "weights", "train-network": "train_network"},
}

EXIT_FAILED, EXIT_USAGE, EXIT_CANNOT_TELL, EXIT_WITH_FAILURES = 1, 2, 3, 4


def build_app() -> Any:
    """Return the typer application with every command of `COMMANDS`, in panels."""
    import typer

    from .command import Command, Group

    app = typer.Typer(
        name="unswayed",
        cls=Group,
        help=(
            "Change one attribute of the object in a photograph, keep everything else, "
            "and measure how much a classifier's accuracy drops."
        ),
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )

    @app.callback(invoke_without_command=True)
    def root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
        if version:
            from unswayed.files.records import package_version

            print(package_version())
            raise typer.Exit()

    for panel, commands in COMMANDS.items():
        for name, module in commands.items():
            loaded = import_module(f"unswayed.views.cli.{module}")
            app.command(name, cls=getattr(loaded, "COMMAND", Command), rich_help_panel=panel)(getattr(loaded, module))
    return app


def main() -> None:
    """Run the command line; a user's mistake, or a file that cannot be opened, is printed in full and exits with 2."""
    from unswayed.errors import UserError
    from unswayed.files.storage import shown
    from unswayed.files.whole import cause_of

    try:
        build_app()()
    except UserError as error:
        print(f"error: {shown(str(error))}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        cause = cause_of(error)
        if cause is None:
            raise
        refusal = UserError(f"{str(error.filename)[:120]}: {cause}", allowed="a path that this user may open")
        print(f"error: {shown(str(refusal))}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
