"""`unswayed COMMAND`: the table of commands; each is a function of a file of this folder and contains no logic."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

# Panel of `unswayed --help` -> command -> its help line, which begins its own help; first what people use every day, in
# the order in which they use it. `unswayed --help` imports none of the files.
COMMANDS: dict[str, dict[str, str]] = {
    "Every day": {
        "demo": "Run the whole pipeline on six photographs: eleven edits, three classifiers, a report. Needs no "
        "download, no GPU.",
        "app": "Serve the interactive page: edit a photograph, see what classifiers predict, browse flips, compare "
        "models.",
        "build": "Build a benchmark: apply every edit of a recipe to every scene of a source.",
        "evaluate": "Classify every picture with every model and store every prediction.",
        "analyze": "Measure how many points of accuracy each edit costs each model, with confidence intervals and "
        "paired tests.",
        "report": "Write the report: one HTML file that opens in any browser and needs no internet connection.",
        "check": "Check whether a model may be released: its accuracy and drops against limits or against a baseline.",
    },
    "One photograph": {
        "edit": "Edit one photograph: change its background, or the object's size, direction, position and more.",
        "fragility": "Find the smallest change of every attribute that changes a model's prediction for one "
        "photograph.",
        "edits": "List every edit with its parameters and their allowed values, every recipe and every removal method.",
        "masks": "Make a mask for every photograph of a folder.",
    },
    "Models": {
        "models": "List the model sources, or print one model's card: preprocessing, labels, weights, layer of the "
        "heat map.",
        "compare": "Test for each edit whether model A is better than model B.",
        "repair": "Fine-tune a classifier on edits of its photographs; measure before and after.",
        "weights": "List the known weights (diffusion networks, guides, masks, measures), download them or check a "
        "file.",
    },
    "Benchmarks": {
        "plan": "Compute how many photographs are needed: the power of the paired tests, computed and simulated.",
        "verify": "Check a benchmark: every row has its file, every hash matches, every requested value is reached.",
        "licenses": "Say which licenses a benchmark's photographs, network and models have, and whether it may be "
        "passed on.",
        "review": "Rate edited pictures on a local page: valid, object unrecognizable, or artifact.",
        "export": "Write a benchmark for other tools: Hugging Face `datasets`, image folders, or FiftyOne.",
        "import": "Import the official ImageNet-E release, any dataset with one folder per edit, or a benchmark that "
        "was exported.",
    },
    "For papers": {
        "factors": "Measure with ImageNet-X which factors of variation (pose, background, …) cause a model's mistakes.",
        "sensitivity": "Measure whether models use the object or its background, with RIVAL10's measures on any "
        "source with masks.",
        "distribution": "Do the edits stay in the distribution of the photographs? One sentence for each edit, and "
        "how sure.",
        "enhance": "Measure a model as it is, averaged over views, and adapted: the enhancement study of ImageNet-E.",
        "fit-head": "Train a linear head for the classes of SOURCE on a model's frozen features.",
    },
    "For clusters and long runs": {
        "status": "Print how a long command stands, from another terminal or another machine.",
        "train-network": "Train the compact diffusion network on your own photographs; running the same command again "
        "resumes.",
    },
}
# Command -> the names of the options that its help shows before the others.
COMMON = {
    "build": ("recipe", "renderer", "limit", "classes", "steps", "network", "workers", "device", "seed", "as_json"),
    "edit": ("output", "mask", "box", "renderer", "steps", "seed", "replay", "as_json"),
    "evaluate": ("batch_size", "device", "limit", "transform", "as_json"),
    "analyze": ("by", "edit", "model", "groups", "table", "wide", "format", "output"),
    "check": ("max_drop", "min_accuracy", "baseline", "margin", "config", "junit", "markdown", "format"),
    "report": ("benchmark", "name", "heat_maps", "assets", "as_json"),
    "masks": ("segmenter", "box", "model", "workers", "device", "as_json"),
    "plan": ("photographs", "drop", "accuracy", "power", "format"),
    "repair": ("train", "epochs", "new_head", "predictions", "benchmark", "device", "as_json"),
    "factors": ("table", "by", "which", "groups", "figure", "format"),
    "sensitivity": ("levels", "saliency", "groups", "limit", "device", "table", "format"),
    "distribution": ("against", "fid", "limit", "device", "table", "format"),
    "enhance": ("output", "by_edit", "device", "format"),
    "fit-head": ("epochs", "learning_rate", "limit", "device", "seed"),
    "train-network": ("minutes", "steps", "batch", "begin", "device"),
}
# The file here -> the commands whose functions are in it.
FILES = {
    "photographs": ("masks", "edits", "edit", "fragility"),
    "benchmarks": ("build", "import", "export", "verify", "licenses"),
    "models": ("models", "fit-head", "evaluate"),
    "analyses": ("analyze", "compare", "check", "plan"),
    "studies": ("factors", "sensitivity", "distribution"),
    "reports": ("demo", "app", "report", "review"),
    "repairs": ("repair", "enhance"),
    "networks": ("status", "weights", "train-network"),
}

EXIT_FAILED, EXIT_USAGE, EXIT_CANNOT_TELL, EXIT_WITH_FAILURES = 1, 2, 3, 4


def build_app() -> typer.Typer:
    """Return the typer application with every command of `COMMANDS`, each loaded when it is called."""
    import typer

    from .help import Group

    app = typer.Typer(
        name="unswayed",
        cls=Group,
        help="Change one attribute of the object in a photograph, keep everything else, and measure how much a "
        "classifier's accuracy drops.",
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )

    @app.callback(invoke_without_command=True)
    def root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
        if version:
            from unswayed import __version__

            print(__version__)
            raise typer.Exit()

    return app


def main() -> None:
    """Run the command line; a user's mistake, or a file that cannot be opened, is printed in full and exits with 2."""
    from unswayed.errors import UserError, printable

    if sys.platform == "win32":  # whose pipes would refuse the lines and signs of tables
        sys.stdout.reconfigure(encoding="utf-8")
        sys.stderr.reconfigure(encoding="utf-8")
    try:
        with warnings.catch_warnings():
            # One line without the file of this program, in which no name from a file begins a line.
            warnings.showwarning = lambda message, *_, **__: print(
                f"warning: {printable(str(message))}", file=sys.stderr
            )
            build_app()()
    except BrokenPipeError:
        sys.exit(0)
    except (UserError, OSError) as error:
        from unswayed.files.storage import shown
        from unswayed.files.whole import cause_of

        refusal = error
        if not isinstance(error, UserError):
            cause = cause_of(error)
            if cause is None:  # a defect of the program
                raise
            refusal = UserError(f"{str(error.filename)[:120]}: {cause}", allowed="a path that this user may open")
        # A name from a file must not look like a command of a workflow, which begins a line with two colons.
        lines = [printable(line) for line in shown(str(refusal)).split("\n")]
        lines = [f"'{line}" if line.lstrip().startswith("::") else line for line in lines]
        from .progress import for_a_terminal

        print(*map(for_a_terminal, [f"error: {lines[0]}", *lines[1:]]), sep="\n", file=sys.stderr)
        sys.exit(EXIT_USAGE)
