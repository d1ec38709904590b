"""The option `--device`, which several commands have."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

# Not a list of choices: a machine may have any number of GPUs.
Device: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="cpu|cuda|cuda:N|mps",
        help="Where networks run [default: the first GPU, otherwise the CPU].",
        autocompletion=lambda: ["cpu", "cuda", "cuda:0", "cuda:1", "mps"],
    ),
]
