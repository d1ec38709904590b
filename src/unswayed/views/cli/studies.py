"""The commands of three studies: `unswayed factors` (ImageNet-X), `sensitivity` (RIVAL10) and `distribution`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unswayed
from unswayed.analyses.settings import FactorSettings
from unswayed.choices import Option, option
from unswayed.errors import unknown
from unswayed.evaluation.settings import DistributionSettings, SensitivitySettings

from .options import MODEL, OUTPUT, Format
from .progress import exit_with_failures, progress_view, say, unfinished_shards

Output = Annotated[Path, Option("The folder for the results.", "DIR", OUTPUT)]
Models = Annotated[list[str], Option("`lite:0`, `timm:NAME`, …; may be repeated.", flags=MODEL)]


def factors(
    settings: FactorSettings,
    predictions: Annotated[
        Path | None,
        typer.Argument(help="Predictions (CSV, Parquet) or published result tables: a folder or one file."),
    ] = None,
    format: Format = "table",
    figure: Path | None = option(
        None,
        "Also draw the table as .png, .svg or .pdf; not for `calibration`, `adjusted`, `compare`, `coverage` "
        "and `editing`.",
    ),
) -> None:
    """
    PREDICTIONS may contain CSV files (file_name, predicted_class, predicted_probability; one file per model) and
    Parquet files written by `unswayed evaluate`. Rows are joined by file name, so order, folders and missing images do
    not matter; the share of the annotated images that a model covers is printed. It may instead be the published
    result tables (the folder `results`, with accuracies_per_factor.csv of each set of models); they contain no
    predictions, so only `errors`, `accuracy`, `model-types`, `spill-over` and `strengths` can be made from them.

    An error ratio of 2 for `smaller` means that the error rate on images whose object is smaller than usual is twice
    the average error rate.

    - `unswayed factors predictions/`
    - `unswayed factors predictions/ --which multi --right real --format json`
    - `unswayed factors predictions/ --by metaclass --format csv`
    - `unswayed factors predictions/ --figure profile.pdf`
    - `unswayed factors predictions/ --table compare --models ResNet50,DINO`
    - `unswayed factors predictions/ --table adjusted --which multi`
    - `unswayed factors predictions/ --table model-types --groups groups.csv`
    - `unswayed factors results/ --table model-types --groups published --figure types.pdf`
    - `unswayed factors --table distribution --figure distribution.pdf`
    """
    from unswayed.analyses.factors import DIGITS, HEADINGS, Study, make_table, remarks
    from unswayed.views.tables import format_table

    study = Study(predictions, **vars(settings))
    table = make_table(study, settings.table)
    if figure is not None:
        from unswayed.views.report.figures_factors import draw

        draw(table, settings.table, figure)
    typer.echo(format_table(table, format, digits=DIGITS, headings=HEADINGS), nl=False)
    say(*remarks(study, table))


def sensitivity(
    source: Annotated[str, typer.Argument(help="`sample`, `folder:PATH`, `rival10:PATH`, …, or a benchmark's folder.")],
    model: Models,
    output: Output,
    settings: SensitivitySettings,
    table: str | None = option(
        None,
        "The table to print: `rfs`, `class`, `group`, `drops`, `irfs`, `saliency`, `saliency-class`, "
        "`saliency-group`, `answers`, `edits`, `suspects`.",
    ),
    format: Format = "table",
) -> None:
    """
    Noise of rising levels is added to the object, to the background, to the whole picture and to each attribute. The
    relative foreground sensitivity (RFS) is 1 if only noise on the object lowers the accuracy, -1 if only noise on the
    background does, 0 if both lower it equally; it is missing if neither changes it. The 95 % confidence intervals are
    computed over pictures.

    - `unswayed sensitivity sample -m lite:0 -m lite:1 -m lite:2 -o results`
    - `unswayed sensitivity rival10:/data/RIVAL10 -m timm:resnet50 -o results --norm both --seeds 3`
    - `unswayed sensitivity sample -m lite:0 -o results --saliency layercam --spurious --table suspects`
    - `unswayed sensitivity folder:photos -m timm:resnet50 -m timm:vit_base_patch16_224 -o results --groups groups.csv`
    - `unswayed sensitivity BENCH -m lite:0 -o results --saliency gradcam --table edits`

    Running the same command again resumes. DIR contains every row (noise/, saliency/), the tables as CSV and figures as
    PNG: RFS against the level, accuracy under both noises by model and class, densities of iRFS, attributes, heat maps.

    Exit codes: 0 done, 2 wrong command, 4 done but some pictures could not be used.
    """
    from unswayed.models.opening import import_early

    import_early(model, settings, "unswayed.evaluation.study")
    from unswayed.views.studies import HEADINGS, choose_table, for_people, shares_of
    from unswayed.views.tables import format_table

    with progress_view() as show:
        study = unswayed.sensitivity(source, model, output, settings, show=show)
    unfinished_shards(study.unfinished, output)
    if not study.tables:
        return
    chosen = choose_table(study.tables, table)
    shown = chosen if format in ("csv", "json") else for_people(chosen)
    digits = dict.fromkeys(shown.columns, 3) | dict.fromkeys(shares_of(shown), 1)
    notes = " ".join(study.remarks)
    typer.echo(format_table(shown, format, digits=digits, headings=HEADINGS, notes=notes), nl=False)
    say(*study.remarks, *study.notes)
    exit_with_failures(study.failures)


def distribution(
    benchmark: Annotated[Path, typer.Argument(metavar="BENCH", help="A benchmark's folder.")],
    model: Models,
    output: Output,
    settings: DistributionSettings,
    table: str = option("verdicts", "`verdicts`, `scores`, `background`, `fid`, `adaptation` or `histograms`."),
    format: Format = "table",
) -> None:
    """
    Energy and GradNorm of every picture against those of the originals; FID and KID; texture and spectrum of the
    backgrounds; LPIPS where its weights are; accuracy after batch-norm adaptation. The same command again resumes.
    Put the results beside the predictions, and `unswayed report` shows them.

    Exit codes: 0 done, 2 wrong command, 4 done but some models or pictures could not be used.

    - `unswayed weights fetch measure`
    - `unswayed distribution BENCH -m lite:0 -o predictions/distribution`
    - `unswayed distribution BENCH -m timm:resnet50 -o results --against images:imagenet-r --table scores`
    - `unswayed distribution BENCH -m lite:0 -o results --no-fid`
    """
    from unswayed.models.opening import import_early

    import_early(model, settings, "unswayed.evaluation.distribution", "unswayed.evaluation.evaluator")
    from unswayed.views.tables import format_table

    with progress_view() as show:
        study = unswayed.distribution(benchmark, model, output, settings, show=show)
    if study.unfinished:
        unfinished_shards(study.unfinished, output)
    elif table not in study.tables:
        raise unknown("table", table, study.tables)
    elif table == "verdicts" and format == "table":
        typer.echo("\n".join(study.tables[table]["sentence"].to_list()))
    else:
        typer.echo(format_table(study.tables[table], format, digits=3), nl=False)
    say(*study.notes)
    exit_with_failures(study.failures)
