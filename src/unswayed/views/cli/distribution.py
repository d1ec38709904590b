"""`unswayed distribution`: are the edited pictures still like photographs?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unswayed.choices import TableFormat

from .options import chosen, command_with

COMMAND = command_with("unswayed.jobs.settings:EngineSettings")


def distribution(
    context: typer.Context,
    benchmark: Annotated[Path, typer.Argument(metavar="BENCH", help="A benchmark's folder.")],
    model: Annotated[list[str], typer.Option("-m", "--model", help="`lite:0`, `timm:NAME`, …; once for each model.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder for the results.")],
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="images:FOLDER", help="Also another folder of pictures; may be repeated."),
    ] = None,
    fid: Annotated[bool, typer.Option(help="FID and KID; needs the Inception weights.")] = True,
    inception: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The Inception weights [default: the fetched ones].")
    ] = None,
    adapt: Annotated[bool, typer.Option(help="Accuracy before and after batch-norm adaptation.")] = True,
    out_above: Annotated[float, typer.Option(min=0.5, max=1, help="The AUROC above which a set is out.")] = 0.7,
    limit: Annotated[int | None, typer.Option(help="Only the first N photographs.")] = None,
    resamples: Annotated[int, typer.Option(min=20, help="Resamples of the photographs.")] = 500,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    table: Annotated[
        str, typer.Option(help="`verdicts`, `scores`, `background`, `fid`, `adaptation` or `histograms`.")
    ] = "verdicts",
    format: Annotated[TableFormat, typer.Option(help="The format of the table.")] = "table",
) -> None:
    """Do the edits stay in the distribution of the photographs? One sentence for each edit, and how sure.

    Energy and GradNorm of every picture against those of the originals; FID and KID; texture and spectrum of the
    backgrounds; LPIPS where its weights are; accuracy after batch-norm adaptation. The same command again resumes.
    Put the results beside the predictions, and `unswayed report` shows them.

    Exit codes: 0 done, 2 wrong command, 4 done but some models or pictures could not be used.

    Examples:

    `unswayed weights fetch measure`

    `unswayed distribution BENCH -m lite:0 -o predictions/distribution`

    `unswayed distribution BENCH -m timm:resnet50 -o results --against images:imagenet-r --table scores`

    `unswayed distribution BENCH -m lite:0 -o results --no-fid`
    """
    from unswayed.errors import unknown
    from unswayed.evaluation.distribution_study import run_distribution
    from unswayed.evaluation.run import read_probe
    from unswayed.jobs import EngineSettings
    from unswayed.views.report.distribution_tables import write_distribution
    from unswayed.views.tables import format_table

    from . import EXIT_WITH_FAILURES
    from .progress import progress_view, unfinished_shards

    with progress_view() as show:
        study = run_distribution(
            benchmark, model, output, against=tuple(against or ()), fid=fid, inception=inception, adapt=adapt,
            limit=limit, engine=chosen(context, EngineSettings), show=show,
        )  # fmt: skip
    if study.unfinished:
        unfinished_shards(study.unfinished, output)
    else:
        scores = read_probe(output, "scores", study.slugs)
        features = read_probe(output, "inception") if study.features else None
        tables = write_distribution(
            output, scores, features, study.adapted, limit=out_above, resamples=resamples, level=level
        )
        if table not in tables:
            raise unknown("table", table, tables)
        wanted = tables[table]
        if table == "verdicts" and format == "table":
            typer.echo("\n".join(wanted["sentence"].to_list()))
        else:
            typer.echo(format_table(wanted, format, digits=3), nl=False)
        for note in study.notes:
            typer.echo(note, err=True)
    for name, reason in list(study.failures.items())[:20]:
        typer.echo(f"failed: {name}: {reason}", err=True)
    if study.failures:
        raise typer.Exit(EXIT_WITH_FAILURES)
