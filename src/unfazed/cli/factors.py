"""`unfazed factors`: ImageNet-X tables from predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unfazed.choices import TableFormat


def factors(
    predictions: Annotated[Path, typer.Argument(help="A folder of CSV or Parquet predictions, or one such file.")],
    which: Annotated[str, typer.Option(help="`top`: the factor that fits best; `multi`: every factor ticked.")] = "top",
    partition: Annotated[str, typer.Option(help="`val` or `train`.")] = "val",
    right: Annotated[
        str, typer.Option(help="What counts as right: `class`, `metaclass`, `real` or `real-standard`.")
    ] = "class",
    by: Annotated[str | None, typer.Option(help="`metaclass`: a table for each of 17 metaclasses.")] = None,
    table: Annotated[
        str,
        typer.Option(
            help="`errors`, `calibration`, `mistakes`, `adjusted`, `compare`, `coverage`, `prevalence`, `correlation`, "
            "`model-types`, `spill-over` or `editing`."
        ),
    ] = "errors",
    format: Annotated[TableFormat, typer.Option(help="How the table is written.")] = "table",
    figure: Annotated[
        Path | None, typer.Option(help="Also draw it (.png, .svg, .pdf): errors, model-types or spill-over.")
    ] = None,
    models: Annotated[str | None, typer.Option(help="For `compare`: two models, `A,B`.")] = None,
    groups: Annotated[
        Path | None, typer.Option(help="For `model-types`: a CSV of model and one column a grouping.")
    ] = None,
    strengths: Annotated[
        Path | None, typer.Option(help="For `spill-over`: a CSV of model, augmentation, strength.")
    ] = None,
    edited: Annotated[
        Path | None, typer.Option(help="For `editing`: predictions on a benchmark, if not in PREDICTIONS.")
    ] = None,
    annotations: Annotated[
        Path | None, typer.Option(help="A folder of annotation files instead of the installed imagenet-x.")
    ] = None,
    keep_prototypes: Annotated[bool, typer.Option(help="Keep the images that annotators compared against.")] = False,
    resamples: Annotated[int, typer.Option(min=0, help="Bootstrap draws for the intervals; 0 for none.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
) -> None:
    """Which factors of variation (pose, background, …) does a model trip over? ImageNet-X, with intervals.

    PREDICTIONS may mix CSVs (file_name, predicted_class, predicted_probability; one a model) and Parquet written by
    `unfazed evaluate`. Rows are joined by file name, so order, folders and missing images do not matter; the share of
    the annotated images that a model covers is said.

    An error ratio of 2 on `smaller` says: twice as many mistakes on images whose object is smaller than typical as on
    average.

    Examples:

    `unfazed factors predictions/`

    `unfazed factors predictions/ --which multi --right real --format json`

    `unfazed factors predictions/ --by metaclass --format csv`

    `unfazed factors predictions/ --figure profile.pdf`

    `unfazed factors predictions/ --table compare --models ResNet50,DINO`

    `unfazed factors predictions/ --table adjusted --which multi`

    `unfazed factors predictions/ --table model-types --groups groups.csv`
    """
    from unfazed.analyses.factors import DIGITS, HEADINGS, Study, make_table, remarks, two_models
    from unfazed.report.formats import format_table

    study = Study(
        predictions, which, partition, right, by, annotations, keep_prototypes, resamples, seed=seed,
        groups=groups, strengths=strengths, pair=two_models(models), edited=edited,
    )  # fmt: skip
    result = make_table(study, table)
    if figure is not None:
        from unfazed.report.figures_factors import draw

        draw(result, table, figure)
    typer.echo(format_table(result, format, digits=DIGITS, headings=HEADINGS), nl=False)
    for remark in remarks(study, result):
        typer.echo(remark, err=True)
