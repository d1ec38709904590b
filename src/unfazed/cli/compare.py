"""`unfazed compare`: test whether two models differ, for each edit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unfazed.choices import TableFormat


def compare(
    predictions: Annotated[Path, typer.Argument(help="The folder that `unfazed evaluate` wrote.")],
    first: Annotated[str, typer.Argument(metavar="A", help="A model of the folder.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The model to compare it with.")],
    other: Annotated[Path | None, typer.Option(help="The folder of B's predictions, if it is not the same.")] = None,
    common: Annotated[
        bool, typer.Option("--common", help="If the benchmarks differ, compare only the pictures they share.")
    ] = False,
    format: Annotated[TableFormat, typer.Option(help="The format of the table.")] = "table",
    resamples: Annotated[int, typer.Option(min=20, help="Number of bootstrap resamples.")] = 1000,
    seed: Annotated[int, typer.Option(help="Random seed of the resamples.")] = 0,
) -> None:
    """Test for each edit whether model A is more robust than model B.

    The models are compared on the same photographs with paired tests. The p-values are corrected for the number of
    tests in the table (Holm).

    Example:

    `unfazed compare predictions/ lite:0 lite:2`
    """
    from unfazed.analyses.drops.compare import compare as compare_models
    from unfazed.report.drop_tables import comparison_text

    table = compare_models(predictions, first, second, other=other, common=common, resamples=resamples, seed=seed)
    typer.echo(comparison_text(table, first, second, format), nl=False)
