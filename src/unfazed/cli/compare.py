"""`unfazed compare`: is the difference between two models real?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unfazed.choices import TableFormat


def compare(
    predictions: Annotated[Path, typer.Argument(help="The folder that `unfazed evaluate` wrote.")],
    first: Annotated[str, typer.Argument(metavar="A", help="A model of the folder.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The model it is held against.")],
    other: Annotated[Path | None, typer.Option(help="The folder of B's predictions, if another one.")] = None,
    common: Annotated[
        bool, typer.Option("--common", help="Where benchmarks differ, compare the pictures they share.")
    ] = False,
    format: Annotated[TableFormat, typer.Option(help="How the table is written.")] = "table",
    resamples: Annotated[int, typer.Option(min=20, help="Resamples of the photographs.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the resamples.")] = 0,
) -> None:
    """Is model A really more robust than model B, edit by edit?

    Both are held against each other on the same photographs: a picture that both get wrong says nothing about their
    difference. p-values are corrected over the table (Holm).

    Example:

    `unfazed compare predictions/ lite:0 lite:2`
    """
    from unfazed.analyses.drops.compare import compare as compare_models
    from unfazed.report.drop_tables import comparison_text

    table = compare_models(predictions, first, second, other=other, common=common, resamples=resamples, seed=seed)
    typer.echo(comparison_text(table, first, second, format), nl=False)
