"""`unswayed analyze`: dropped accuracy with intervals and paired tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unswayed.analyses import tables_help
from unswayed.choices import TableFormat, WideMeasure


def analyze(
    predictions: Annotated[Path, typer.Argument(help="The folder that `unswayed evaluate` wrote.")],
    table: Annotated[str, typer.Option(help=tables_help())] = "drops",
    by: Annotated[
        str | None,
        typer.Option(help="One row per `class`, `superclass`, or value of a predictions or manifest column."),
    ] = None,
    at_accuracy: Annotated[
        list[float] | None,
        typer.Option(metavar="PERCENT", help="For `thresholds`: the accuracy to keep [default: 80]; may be repeated."),
    ] = None,
    at_drop: Annotated[
        list[float] | None,
        typer.Option(metavar="POINTS", help="For `thresholds`: the drop to allow [default: 10]; may be repeated."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(help="Means over models: a CSV with the column `model` and one column per grouping, or `all`."),
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="One row per model and one column per edit, as in the papers' tables.")
    ] = False,
    measure: Annotated[WideMeasure, typer.Option(help="For `--wide`: what the cells hold.")] = "drop",
    against: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="With `--groups FILE`: drops along a column of numbers, such as a training budget; drawn if the "
            "output ends in .png, .svg or .pdf.",
        ),
    ] = None,
    model: Annotated[list[str] | None, typer.Option("--model", "-m", help="Only this model; may be repeated.")] = None,
    edit: Annotated[list[str] | None, typer.Option("--edit", "-e", help="Only this edit; may be repeated.")] = None,
    format: Annotated[
        TableFormat | None, typer.Option(help="The format of the table [default: table, or by the output's suffix].")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file (.csv, .json, .md, .tex, .txt).")
    ] = None,
    benchmark: Annotated[Path | None, typer.Option(help="The benchmark, if it was moved since `evaluate`.")] = None,
    common: Annotated[
        bool, typer.Option("--common", help="If the models' benchmarks differ, use only the pictures they share.")
    ] = False,
    valid_only: Annotated[
        bool, typer.Option("--valid-only", help="Only pictures whose measured validity is 0.5 or more.")
    ] = False,
    human_valid_only: Annotated[
        bool,
        typer.Option("--human-valid-only", help="Only pictures that most raters called valid (`unswayed review`)."),
    ] = False,
    interval: Annotated[
        str, typer.Option(help="Kind of confidence interval: `auto`, `bootstrap` or `score`.")
    ] = "auto",
    resamples: Annotated[int, typer.Option(min=20, help="Number of bootstrap resamples.")] = 1000,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Random seed of the resamples.")] = 0,
) -> None:
    """Measure how many points of accuracy each edit costs each model, with confidence intervals and paired tests.

    A drop is the accuracy on the originals minus the accuracy on the edited pictures of the same photographs, in
    points. A net drop is measured against the edit's control, which shows what the rendering alone costs.

    Examples:

    `unswayed analyze predictions/`

    `unswayed analyze predictions/ --by class --edit size-0.05 --format csv -o classes.csv`

    `unswayed analyze predictions/ --groups models.csv --format latex`

    `unswayed analyze predictions/ --wide --format latex`

    `unswayed analyze predictions/ --groups models.csv --against budget -o budget.svg`

    `unswayed analyze predictions/ --table fits`

    `unswayed analyze predictions/ --table thresholds --at-accuracy 80 --at-drop 10`
    """
    import os

    from unswayed.analyses.tables import analyze as analyze_predictions
    from unswayed.errors import UserError
    from unswayed.files.storage import address
    from unswayed.files.whole import write_bytes
    from unswayed.views.report.drop_tables import analysis_text
    from unswayed.views.report.figures_drops import against_figure
    from unswayed.views.report.figures_factors import SUFFIXES, figure_bytes
    from unswayed.views.report.remarks import failure_lines, moved_lines, remark_lines, suspicious_models, swept
    from unswayed.views.report.wide import along, wide_text
    from unswayed.views.tables import format_of, format_table

    from .progress import next_command

    if valid_only and human_valid_only:
        raise UserError("--valid-only and --human-valid-only are two conditions", allowed="one of them")
    drawn = output.suffix.lower() if against and output and output.suffix.lower() in SUFFIXES else None
    if wide and (by or table != "drops" or against):
        raise UserError("--wide is for the table of drops", allowed="--wide without --by, --table and --against")
    if against is not None and (groups in (None, "all") or table != "drops"):
        raise UserError("--against needs a file of groups with that column", run="unswayed analyze … --groups FILE")
    chosen = format or ("table" if drawn else format_of(output))
    for line in failure_lines(predictions):
        typer.echo(f"warning: {line}", err=True)
    for line in moved_lines(predictions) if benchmark is None else []:
        typer.echo(f"warning: {line}", err=True)
    frame = analyze_predictions(
        predictions,
        table,
        by=by,
        groups=groups,
        models=model,
        edits=None if against else edit,
        benchmark=benchmark,
        common=common,
        interval=interval,
        condition="measured" if valid_only else "human" if human_valid_only else None,
        resamples=resamples,
        level=level,
        seed=seed,
        accuracy=at_accuracy or (),
        drop=at_drop or (),
    )
    remarks = remark_lines(predictions, model if groups is None else None, common)
    for line in remarks:
        typer.echo(line, err=True)
    if against is not None:
        curve = along(frame, against, edit)
        if drawn and output is not None:
            write_bytes(output, figure_bytes(against_figure(curve, against), drawn[1:]))
            return
        text = format_table(curve, chosen, digits={against: 4}, title=f"Dropped accuracy along {against}")
    elif wide:
        text = wide_text(frame, measure, chosen, remarks)
    else:
        found = swept(predictions, benchmark) if frame.is_empty() else ""
        # A terminal gets colors; typer removes them where the output goes into a file or another program.
        color = output is None and "NO_COLOR" not in os.environ
        text = analysis_text(frame, table, chosen, by, level, remarks, found, color, suspicious_models(predictions))
    if output is None:
        typer.echo(text, nl=False)
        if chosen == "table":
            next_command(f"unswayed report {address(predictions)} -o report.html")
    else:
        write_bytes(output, text.encode())
