"""`unfazed sensitivity`: noise on foreground, background and attributes, RFS, and where the model looks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unfazed.choices import Frame, TableFormat

from .devices import Device


def sensitivity(
    source: Annotated[str, typer.Argument(help="`sample`, `folder:PATH`, `rival10:PATH`, …, or a benchmark's folder.")],
    model: Annotated[list[str], typer.Option("-m", "--model", help="`lite:0`, `timm:NAME`, …; once for each model.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where the results go.")],
    norm: Annotated[str, typer.Option(help="`linf` (standard deviations), `l2` (norms), or `both`.")] = "linf",
    levels: Annotated[str | None, typer.Option(help="`30,60,90` [default: the published levels].")] = None,
    seeds: Annotated[int, typer.Option(help="Noise draws for each level.")] = 1,
    saliency: Annotated[
        str | None, typer.Option(metavar="METHOD", help="Also heat maps against the object: `layercam`, `gradcam`, ….")
    ] = None,
    spurious: Annotated[bool, typer.Option(help="Also a gallery of what models look at beside the object.")] = False,
    channels: Annotated[
        str | None,
        typer.Option(metavar="LAYER", help="Also the layer's channels against attributes; `heat`: the last."),
    ] = None,
    groups: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Model groups: `model,architecture,training` ….")
    ] = None,
    attributes: Annotated[bool, typer.Option(help="Noise on each attribute's mask, where there are any.")] = True,
    ablation: Annotated[bool, typer.Option(help="Also each region replaced by grey.")] = True,
    frame: Annotated[Frame, typer.Option(help="How a photograph becomes a square.")] = "object",
    limit: Annotated[int | None, typer.Option(help="Only the first N scenes.")] = None,
    classes: Annotated[
        str | None, typer.Option(help="Only these classes: names, WNIDs or indices with commas.")
    ] = None,
    device: Device = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Pictures in one pass [default: 4 on a CPU, else 256].")
    ] = None,
    resamples: Annotated[int, typer.Option(min=10, help="Bootstrap draws for the intervals.")] = 1000,
    table: Annotated[
        str | None,
        typer.Option(
            help="What to print: `rfs`, `class`, `group`, `drops`, `saliency`, `answers`, `edits`, `suspects`."
        ),
    ] = None,
    format: Annotated[TableFormat, typer.Option(help="How the table is written.")] = "table",
) -> None:
    """Does the answer come from the object or from what is around it? RIVAL10's measures for any source with masks.

    Noise is put on the object, on the background, on everything and on each attribute, at rising levels. The relative
    foreground sensitivity (RFS) is 1 if only noise on the object hurts, -1 if only noise on the background does, 0 if
    both hurt alike; it is missing where neither changes anything. 95 % intervals are over pictures.

    Examples:

    `unfazed sensitivity sample -m lite:0 -m lite:1 -m lite:2 -o results`

    `unfazed sensitivity rival10:/data/RIVAL10 -m timm:resnet50 -o results --norm both --seeds 3`

    `unfazed sensitivity sample -m lite:0 -o results --saliency layercam --spurious --table suspects`

    `unfazed sensitivity folder:photos -m timm:resnet50 -m timm:vit_base_patch16_224 -o results --groups groups.csv`

    `unfazed sensitivity BENCH -m lite:0 -o results --saliency gradcam --table edits`

    The same command again goes on where it stopped. DIR holds every row (noise/, saliency/), the tables as CSV and the
    curve as rfs.png. Exit codes: 0 done, 2 the command was wrong, 4 done but some pictures could not be used.
    """
    from unfazed.cli import EXIT_WITH_FAILURES
    from unfazed.probes.noise import choose_levels
    from unfazed.probes.noise_response import NoiseSettings
    from unfazed.probes.study import run_study
    from unfazed.report.formats import format_table
    from unfazed.report.sensitivity_tables import HEADINGS, choose_table, for_people, write_tables
    from unfazed.report.study_pictures import write_study_pictures

    from .progress import progress_line

    settings = NoiseSettings(choose_levels(norm, levels), seeds, attributes, ablation, frame)
    with progress_line("sensitivity", "pictures") as show:
        study = run_study(
            source, model, output, settings, saliency, spurious, channels, limit, classes, device, batch_size,
            report=lambda what, done, total: show(done, total, what),
        )  # fmt: skip
    tables = write_tables(output, study.slugs, study.noise, study.saliency, groups, resamples)
    chosen = choose_table(tables, table)
    shown = chosen if format in ("csv", "json") else for_people(chosen)
    typer.echo(format_table(shown, format, digits=3, headings=HEADINGS), nl=False)
    for note in [*study.notes, *write_study_pictures(study)]:
        typer.echo(note, err=True)
    for name, reason in list(study.failures.items())[:20]:
        typer.echo(f"failed: {name}: {reason}", err=True)
    if study.failures:
        raise typer.Exit(EXIT_WITH_FAILURES)
