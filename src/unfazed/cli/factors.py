"""`unfazed factors`: the ImageNet-X tables from predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unfazed.choices import TableFormat


def factors(
    predictions: Annotated[
        Path | None,
        typer.Argument(help="Predictions (CSV, Parquet) or published result tables: a folder or one file."),
    ] = None,
    which: Annotated[str, typer.Option(help="`top`: the image's main factor; `multi`: all its factors.")] = "top",
    partition: Annotated[str, typer.Option(help="The ImageNet partition: `val` or `train`.")] = "val",
    right: Annotated[
        str, typer.Option(help="What counts as correct: `class`, `metaclass`, `real` or `real-standard`.")
    ] = "class",
    by: Annotated[str | None, typer.Option(help="`metaclass`: one table for each of the 17 metaclasses.")] = None,
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
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="CSV",
            help="For `model-types` and `accuracy`: a CSV with the column `model` and one column per grouping; "
            "`published`: the paper's types of models; `augmentations`: its comparison of augmentations.",
        ),
    ] = None,
    strengths: Annotated[
        Path | None,
        typer.Option(
            help="For `spill-over` and `strengths`: a CSV with the columns model, augmentation, strength "
            "[default: from the names of the published models]."
        ),
    ] = None,
    models_per_strength: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Leave out strengths of fewer models [default: 5 for the published sweeps, otherwise 1].",
        ),
    ] = None,
    sets: Annotated[
        str | None, typer.Option(help="Only these sets of published result tables, such as `base,modelvshuman`.")
    ] = None,
    edited: Annotated[
        Path | None, typer.Option(help="For `editing`: the predictions on a benchmark, if they are not in PREDICTIONS.")
    ] = None,
    annotations: Annotated[
        Path | None, typer.Option(help="A folder of annotation files instead of the installed imagenet-x.")
    ] = None,
    keep_prototypes: Annotated[bool, typer.Option(help="Keep the images that annotators compared against.")] = False,
    resamples: Annotated[int, typer.Option(min=0, help="Number of bootstrap resamples; 0 for no intervals.")] = 1000,
    seed: Annotated[int, typer.Option(help="Random seed of the resamples.")] = 0,
) -> None:
    """Measure with ImageNet-X which factors of variation (pose, background, …) cause a model's mistakes.

    PREDICTIONS may contain CSV files (file_name, predicted_class, predicted_probability; one file per model) and
    Parquet files written by `unfazed evaluate`. Rows are joined by file name, so order, folders and missing images do
    not matter; the share of the annotated images that a model covers is printed. It may instead be the published
    result tables (the folder `results`, with accuracies_per_factor.csv of each set of models); they contain no
    predictions, so only `errors`, `accuracy`, `model-types`, `spill-over` and `strengths` can be made from them.

    An error ratio of 2 for `smaller` means that the error rate on images whose object is smaller than usual is twice
    the average error rate.

    Examples:

    `unfazed factors predictions/`

    `unfazed factors predictions/ --which multi --right real --format json`

    `unfazed factors predictions/ --by metaclass --format csv`

    `unfazed factors predictions/ --figure profile.pdf`

    `unfazed factors predictions/ --table compare --models ResNet50,DINO`

    `unfazed factors predictions/ --table adjusted --which multi`

    `unfazed factors predictions/ --table model-types --groups groups.csv`

    `unfazed factors results/ --table model-types --groups published --figure types.pdf`

    `unfazed factors --table distribution --figure distribution.pdf`
    """
    from unfazed.analyses.factors import DIGITS, HEADINGS, Study, make_table, remarks, two_models
    from unfazed.report.formats import format_table

    study = Study(
        predictions, which, partition, right, by, annotations, keep_prototypes, resamples, seed=seed,
        groups=groups, strengths=strengths, pair=two_models(models), edited=edited,
        sets=sets, models_per_strength=models_per_strength,
    )  # fmt: skip
    result = make_table(study, table)
    if figure is not None:
        from unfazed.report.figures_factors import draw

        draw(result, table, figure)
    typer.echo(format_table(result, format, digits=DIGITS, headings=HEADINGS), nl=False)
    for remark in remarks(study, result):
        typer.echo(remark, err=True)
