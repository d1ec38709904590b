"""`unswayed factors`: the ImageNet-X tables from predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unswayed.choices import TableFormat

from .options import chosen, command_with

COMMAND = command_with("unswayed.analyses.factors.study:Study")


def factors(
    context: typer.Context,
    predictions: Annotated[
        Path | None,
        typer.Argument(help="Predictions (CSV, Parquet) or published result tables: a folder or one file."),
    ] = None,
    table: Annotated[
        str,
        typer.Option(
            help="`errors`, `accuracy`, `calibration`, `mistakes`, `adjusted`, `compare`, `coverage`, `prevalence`, "
            "`distribution`, `active-factors`, `correlation`, `model-types`, `spill-over`, `strengths` or `editing`."
        ),
    ] = "errors",
    format: Annotated[TableFormat, typer.Option(help="The format of the table.")] = "table",
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Also draw the table as .png, .svg or .pdf; not for `calibration`, `adjusted`, `compare`, `coverage` "
            "and `editing`."
        ),
    ] = None,
    models: Annotated[str | None, typer.Option(help="For `compare`: two models, `A,B`.")] = None,
) -> None:
    """Measure with ImageNet-X which factors of variation (pose, background, …) cause a model's mistakes.

    PREDICTIONS may contain CSV files (file_name, predicted_class, predicted_probability; one file per model) and
    Parquet files written by `unswayed evaluate`. Rows are joined by file name, so order, folders and missing images do
    not matter; the share of the annotated images that a model covers is printed. It may instead be the published
    result tables (the folder `results`, with accuracies_per_factor.csv of each set of models); they contain no
    predictions, so only `errors`, `accuracy`, `model-types`, `spill-over` and `strengths` can be made from them.

    An error ratio of 2 for `smaller` means that the error rate on images whose object is smaller than usual is twice
    the average error rate.

    Examples:

    `unswayed factors predictions/`

    `unswayed factors predictions/ --which multi --right real --format json`

    `unswayed factors predictions/ --by metaclass --format csv`

    `unswayed factors predictions/ --figure profile.pdf`

    `unswayed factors predictions/ --table compare --models ResNet50,DINO`

    `unswayed factors predictions/ --table adjusted --which multi`

    `unswayed factors predictions/ --table model-types --groups groups.csv`

    `unswayed factors results/ --table model-types --groups published --figure types.pdf`

    `unswayed factors --table distribution --figure distribution.pdf`
    """
    from unswayed.analyses.factors.study import DIGITS, HEADINGS, Study, make_table, remarks, two_models
    from unswayed.views.tables import format_table

    study = chosen(context, Study, predictions=predictions, pair=two_models(models))
    result = make_table(study, table)
    if figure is not None:
        from unswayed.views.report.figures_factors import draw

        draw(result, table, figure)
    typer.echo(format_table(result, format, digits=DIGITS, headings=HEADINGS), nl=False)
    for remark in remarks(study, result):
        typer.echo(remark, err=True)
