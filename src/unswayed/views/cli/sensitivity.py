"""`unswayed sensitivity`: noise on foreground, background and attributes, the RFS measure, and heat maps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unswayed.choices import ClassColumn, Convention, Frame, TableFormat

from .options import chosen, command_with

COMMAND = command_with("unswayed.jobs.settings:EngineSettings")


def sensitivity(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="`sample`, `folder:PATH`, `rival10:PATH`, …, or a benchmark's folder.")],
    model: Annotated[list[str], typer.Option("-m", "--model", help="`lite:0`, `timm:NAME`, …; may be repeated.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder for the results.")],
    norm: Annotated[str, typer.Option(help="Noise by standard deviation (`linf`), norm (`l2`), or `both`.")] = "linf",
    levels: Annotated[str | None, typer.Option(help="Such as `30,60,90` [default: the published levels].")] = None,
    seeds: Annotated[int, typer.Option(help="Number of noise samples per level.")] = 1,
    saliency: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help="Also compare heat maps with the object's mask: `layercam`, `gradcam`, …."),
    ] = None,
    spurious: Annotated[bool, typer.Option(help="Also a gallery of what models use outside the object.")] = False,
    channels: Annotated[
        str | None,
        typer.Option(
            metavar="LAYER", help="Also compare a layer's channels with attributes; `heat` is the last layer."
        ),
    ] = None,
    groups: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Groups of models: a CSV such as `model,architecture,training`.")
    ] = None,
    attributes: Annotated[bool, typer.Option(help="Also noise on each attribute's mask, if there are any.")] = True,
    ablation: Annotated[bool, typer.Option(help="Also replace each region by gray.")] = True,
    frame: Annotated[Frame, typer.Option(help="How photographs are cropped or squeezed to a square.")] = "object",
    class_by: Annotated[
        ClassColumn,
        typer.Option(help="Classes of `saliency-class` and `suspects`: the true class or the predicted one."),
    ] = "label",
    measure: Annotated[
        str, typer.Option(help="The measure of heat maps that ranks suspects and is drawn: `precision`, `iou`, ….")
    ] = "precision",
    convention: Annotated[
        Convention,
        typer.Option(
            help="`released`: an undefined iRFS is 0 and drops are means over pictures, as in RIVAL10's released code."
        ),
    ] = "default",
    limit: Annotated[int | None, typer.Option(help="Only the first N scenes.")] = None,
    classes: Annotated[
        str | None, typer.Option(help="Only these classes: names, WNIDs or indices separated by commas.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Pictures per batch [default: 4 on a CPU, otherwise 256].")
    ] = None,
    resamples: Annotated[int, typer.Option(min=10, help="Number of bootstrap resamples.")] = 1000,
    table: Annotated[
        str | None,
        typer.Option(
            help="The table to print: `rfs`, `class`, `group`, `drops`, `irfs`, `saliency`, `saliency-class`, "
            "`saliency-group`, `answers`, `edits`, `suspects`."
        ),
    ] = None,
    format: Annotated[TableFormat, typer.Option(help="The format of the table.")] = "table",
) -> None:
    """Measure whether models use the object or its background, with RIVAL10's measures on any source with masks.

    Noise of rising levels is added to the object, to the background, to the whole picture and to each attribute. The
    relative foreground sensitivity (RFS) is 1 if only noise on the object lowers the accuracy, -1 if only noise on the
    background does, 0 if both lower it equally; it is missing if neither changes it. The 95 % confidence intervals are
    computed over pictures.

    Examples:

    `unswayed sensitivity sample -m lite:0 -m lite:1 -m lite:2 -o results`

    `unswayed sensitivity rival10:/data/RIVAL10 -m timm:resnet50 -o results --norm both --seeds 3`

    `unswayed sensitivity sample -m lite:0 -o results --saliency layercam --spurious --table suspects`

    `unswayed sensitivity folder:photos -m timm:resnet50 -m timm:vit_base_patch16_224 -o results --groups groups.csv`

    `unswayed sensitivity BENCH -m lite:0 -o results --saliency gradcam --table edits`

    Running the same command again resumes. DIR contains every row (noise/, saliency/), the tables as CSV and figures as
    PNG: RFS against the level, accuracy under both noises by model and class, densities of iRFS, attributes, heat maps.

    Exit codes: 0 done, 2 wrong command, 4 done but some pictures could not be used.
    """
    from unswayed.evaluation.measures import check_measure
    from unswayed.evaluation.noise import choose_levels
    from unswayed.evaluation.noise_response import NoiseSettings
    from unswayed.evaluation.study import run_study
    from unswayed.jobs import EngineSettings
    from unswayed.views.report.sensitivity_tables import (
        HEADINGS,
        TableSettings,
        choose_table,
        for_people,
        write_tables,
    )
    from unswayed.views.report.study_pictures import write_study_pictures
    from unswayed.views.tables import format_table

    from . import EXIT_WITH_FAILURES
    from .progress import progress_view, unfinished_shards

    check_measure(measure)
    settings = NoiseSettings(choose_levels(norm, levels), seeds, attributes, ablation, frame)
    with progress_view() as show:
        study = run_study(
            source, model, output, settings, saliency, spurious, channels, limit, classes, batch_size,
            show=show, class_by=class_by, measure=measure, engine=chosen(context, EngineSettings),
        )  # fmt: skip
    if study.unfinished:
        unfinished_shards(study.unfinished, output)
    if not study.noise and not study.saliency:
        return
    made = TableSettings(groups, resamples, convention, class_by, measure, study.classes)
    tables = write_tables(output, study.noise, study.saliency, made)
    wanted = choose_table(tables, table)
    shown = wanted if format in ("csv", "json") else for_people(wanted)
    notes = " ".join(study.remarks) or None
    typer.echo(format_table(shown, format, digits=3, headings=HEADINGS, notes=notes), nl=False)
    for note in [*study.remarks, *study.notes, *write_study_pictures(study)]:
        typer.echo(note, err=True)
    for name, reason in list(study.failures.items())[:20]:
        typer.echo(f"failed: {name}: {reason}", err=True)
    if study.failures:
        raise typer.Exit(EXIT_WITH_FAILURES)
