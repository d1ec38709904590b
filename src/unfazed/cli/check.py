"""`unfazed check`: a gate for a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unfazed.choices import TableFormat


def check(
    predictions: Annotated[Path, typer.Argument(help="The folder that `unfazed evaluate` wrote.")],
    max_drop: Annotated[
        list[str] | None, typer.Option(metavar="EDIT=POINTS", help="The most an edit may cost; may be repeated.")
    ] = None,
    min_accuracy: Annotated[
        list[str] | None,
        typer.Option(metavar="EDIT=PERCENT", help="The least accuracy on an edit; a number alone is for `original`."),
    ] = None,
    min_threshold: Annotated[
        list[str] | None,
        typer.Option(metavar="ATTRIBUTE=LEVEL@PERCENT", help="The level of a sweep down to which accuracy is kept."),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Predictions of an earlier model on the same benchmark.")
    ] = None,
    margin: Annotated[float | None, typer.Option(help="Points by which it may be worse than the baseline.")] = None,
    measure: Annotated[str | None, typer.Option(help="Against the baseline: `accuracy` or `drop`.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with the same; the command line wins.")] = None,
    model: Annotated[list[str] | None, typer.Option("--model", "-m", help="Only this model; may be repeated.")] = None,
    level: Annotated[float | None, typer.Option(help="Of the intervals; 0.95 unless told.")] = None,
    common: Annotated[
        bool, typer.Option("--common", help="Where benchmarks differ, compare the pictures they share.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Also write the checks there as JSON.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Also write them there as JUnit XML.")] = None,
    format: Annotated[TableFormat, typer.Option(help="How the table is written.")] = "table",
    resamples: Annotated[int, typer.Option(min=20, help="Resamples of the photographs.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the resamples.")] = 0,
) -> None:
    """May this model be released? Exit 0: every check passes; 1: one fails; 3: one cannot be told or was not measured.

    A check passes or fails only where its whole interval lies on one side of the threshold. Where it straddles the
    threshold, more photographs are needed. Predictions from another benchmark than the baseline's are refused.

    Examples:

    `unfazed check predictions/ --max-drop size-0.05=20 --max-drop "background-*=10" --min-accuracy 75`

    `unfazed check predictions/ --min-threshold size=0.04@80`

    `unfazed check new/ --baseline old/ --margin 1 --junit check.xml`

    `unfazed check predictions/ --config gate.toml --json check.json`
    """
    from unfazed.analyses.drops.gate import EXITS, junit_xml
    from unfazed.analyses.drops.gate import check as gate
    from unfazed.analyses.drops.rules import parse_limits, parse_threshold
    from unfazed.files import write_bytes, write_json
    from unfazed.report.drop_tables import checks_text

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
        write_json(json, {"verdict": found.verdict, "checks": found.checks.to_dicts()})
    if junit is not None:
        write_bytes(junit, junit_xml(found.checks))
    typer.echo(checks_text(found.checks, found.verdict, format), nl=False)
    raise typer.Exit(EXITS[found.verdict])
