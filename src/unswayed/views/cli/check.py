"""`unswayed check`: decide whether a model meets the requirements of a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unswayed.choices import TableFormat


def check(
    predictions: Annotated[Path, typer.Argument(help="The folder that `unswayed evaluate` wrote.")],
    max_drop: Annotated[
        list[str] | None,
        typer.Option(metavar="EDIT=POINTS", help="The largest accuracy drop that an edit may cause; may be repeated."),
    ] = None,
    min_accuracy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EDIT=PERCENT", help="The lowest accuracy allowed on an edit; a number alone is for `original`."
        ),
    ] = None,
    min_threshold: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ATTRIBUTE=LEVEL@PERCENT",
            help="The accuracy must stay above PERCENT down to this level of a sweep.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Predictions of an earlier model on the same benchmark.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="Points by which a model may be worse than the baseline.")
    ] = None,
    measure: Annotated[str | None, typer.Option(help="Compared with the baseline: `accuracy` or `drop`.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of limits; the command line overrides it.")] = None,
    model: Annotated[list[str] | None, typer.Option("--model", "-m", help="Only this model; may be repeated.")] = None,
    level: Annotated[float | None, typer.Option(help="Confidence level of the intervals [default: 0.95].")] = None,
    common: Annotated[
        bool, typer.Option("--common", help="If the benchmarks differ, compare only the pictures they share.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Also write the checks to this JSON file.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Also write the checks to this JUnit XML file.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write verdict, checks and worst flips to this Markdown file.")
    ] = None,
    format: Annotated[TableFormat, typer.Option(help="The format of the table.")] = "table",
    resamples: Annotated[int, typer.Option(min=20, help="Number of bootstrap resamples.")] = 1000,
    seed: Annotated[int, typer.Option(help="Random seed of the resamples.")] = 0,
) -> None:
    """Check whether a model may be released: its accuracy and drops against limits or against a baseline.

    A check passes or fails only if its whole confidence interval lies on one side of the limit. If the interval
    contains the limit, the check is undecided and more photographs are needed. Predictions on another benchmark than
    the baseline's are refused. A model whose labels or transform look wrong never passes.

    Exit codes: 0 every check passes, 1 a check fails, 2 wrong command, 3 a check is undecided or was not measured.

    Examples:

    `unswayed check predictions/ --max-drop size-0.05=20 --max-drop "background-*=10" --min-accuracy 75`

    `unswayed check predictions/ --min-threshold size=0.04@80`

    `unswayed check new/ --baseline old/ --margin 1 --junit check.xml`

    `unswayed check predictions/ --config gate.toml --json check.json`
    """
    from unswayed.analyses.drops.gate import EXITS, junit_xml
    from unswayed.analyses.drops.gate import check as gate
    from unswayed.analyses.drops.limits import parse_limits, parse_threshold
    from unswayed.files.whole import write_bytes, write_json
    from unswayed.views.report.verdict_tables import checks_text

    found = gate(
        predictions,
        max_drop=parse_limits(max_drop or [], "--max-drop"),
        min_accuracy=parse_limits(min_accuracy or [], "--min-accuracy", bare="original"),
        min_threshold={text.partition("=")[0]: parse_threshold(text) for text in min_threshold or []},
        baseline=baseline,
        margin=margin,
        measure=measure,  # type: ignore[arg-type]
        config=config,
        models=tuple(model or ()),
        level=level,
        common=common,
        resamples=resamples,
        seed=seed,
    )
    if json is not None:
        write_json(json, found.to_json())
    if junit is not None:
        write_bytes(junit, junit_xml(found.checks, found.remarks))
    if markdown is not None:
        from unswayed.views.report.check_markdown import check_markdown

        write_bytes(markdown, check_markdown(found, predictions).encode())
    typer.echo(checks_text(found.checks, found.verdict, format, found.remarks), nl=False)
    raise typer.Exit(EXITS[found.verdict])
