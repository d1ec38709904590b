"""`unfazed compare`: test whether two models differ, for each edit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from unfazed.choices import TableFormat


def compare(
    predictions: Annotated[Path, typer.Argument(help="The folder that `unfazed evaluate` wrote.")],
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[A B …]", help="Two models, or more for all pairs [default: all].")
    ] = None,
    measure: Annotated[
        Literal["accuracy", "drop", "net"],
        typer.Option(help="What is compared: accuracy, its drop, or the drop net of each edit's control."),
    ] = "drop",
    other: Annotated[Path | None, typer.Option(help="The folder of B's predictions, if it is not the same.")] = None,
    common: Annotated[
        bool, typer.Option("--common", help="If the benchmarks differ, compare only the pictures they share.")
    ] = False,
    format: Annotated[TableFormat, typer.Option(help="The format of the table.")] = "table",
    resamples: Annotated[int, typer.Option(min=20, help="Number of bootstrap resamples.")] = 1000,
    seed: Annotated[int, typer.Option(help="Random seed of the resamples.")] = 0,
) -> None:
    """Test for each edit whether model A is better than model B.

    The models are compared on the same photographs with paired tests. With more than two models, or without any, every
    pair of models is compared. The p-values are corrected for the number of tests in the table (Holm). Models that
    were evaluated on different benchmarks are refused.

    Examples:

    `unfazed compare predictions/ lite:0 lite:2`

    `unfazed compare predictions/ lite:0 lite:2 --measure accuracy`

    `unfazed compare new/ lite:0 lite:0 --other old/`

    `unfazed compare predictions/`
    """
    from unfazed.analyses.drops.compare import compare as compare_models
    from unfazed.analyses.drops.compare import compare_all
    from unfazed.errors import UserError
    from unfazed.predictions.facts import read_facts
    from unfazed.report.drop_tables import comparison_text, remark_lines

    names = models or []
    if len(names) == 1 or (other is not None and len(names) != 2):
        raise UserError(
            f"{len(names)} model{'s' * (len(names) != 1)} to compare",
            allowed="two models" if other is not None else "two or more models, or none for all pairs",
        )
    settings: dict[str, Any] = {"common": common, "measure": measure, "resamples": resamples, "seed": seed}
    if len(names) == 2:
        facts = read_facts(predictions, models=names[:1], common=common)
        table = compare_models(predictions, names[0], names[1], other=other, facts=facts, **settings)
    else:
        table = compare_all(predictions, names or None, **settings)
    remarks = remark_lines(predictions, names, common, other)
    for line in remarks:
        typer.echo(f"warning: {line}", err=True)
    typer.echo(comparison_text(table, names, format, measure, remarks), nl=False)
