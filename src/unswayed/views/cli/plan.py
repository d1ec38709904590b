"""`unswayed plan`: compute how many photographs a benchmark needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unswayed.choices import TableFormat


def plan(
    pilot: Annotated[
        Path | None,
        typer.Argument(metavar="[PREDICTIONS]", help="A pilot experiment: a folder that `unswayed evaluate` wrote."),
    ] = None,
    photographs: Annotated[
        list[int] | None,
        typer.Option(
            "-n", "--photographs", help="Compute the smallest drop that N photographs detect; may be repeated."
        ),
    ] = None,
    drop: Annotated[
        list[float] | None,
        typer.Option(metavar="POINTS", help="Compute how many photographs detect this drop; may be repeated."),
    ] = None,
    max_drop: Annotated[
        float | None, typer.Option(metavar="POINTS", help="Compute how many photographs let `check --max-drop` pass.")
    ] = None,
    expect: Annotated[
        float, typer.Option(metavar="POINTS", help="The drop expected for --max-drop, without a pilot.")
    ] = 0.0,
    gains: Annotated[
        float,
        typer.Option(metavar="PERCENT", help="Predictions that the edit turns from wrong to right, without a pilot."),
    ] = 3.0,
    accuracy: Annotated[
        float, typer.Option(metavar="PERCENT", help="Accuracy on the originals, without a pilot.")
    ] = 80.0,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Edited pictures per photograph [default: the pilot's, else 1].")
    ] = None,
    correlation: Annotated[
        float, typer.Option(help="Correlation between two runs of one photograph, without a pilot: 0 to 1.")
    ] = 0.5,
    model: Annotated[
        list[str] | None, typer.Option("-m", "--model", help="Only this model of the pilot; may be repeated.")
    ] = None,
    edit: Annotated[list[str] | None, typer.Option(help="Only this edit of the pilot; may be repeated.")] = None,
    power: Annotated[float, typer.Option(help="The probability with which the drop shall be detected.")] = 0.8,
    level: Annotated[float, typer.Option(help="Confidence level of the tests and intervals.")] = 0.95,
    tests: Annotated[
        int, typer.Option(help="Number of tests in the planned table, for the correction of the error rate.")
    ] = 1,
    format: Annotated[TableFormat, typer.Option(help="The format of the table.")] = "table",
    seed: Annotated[int, typer.Option(help="Random seed of the simulations.")] = 0,
) -> None:
    """Compute how many photographs are needed: the power of the paired tests, computed and simulated.

    Each row is for one edit and one model, compared on the same photographs with McNemar's exact test for one run and
    the sign-flip test over photographs for several runs. Without a pilot the assumptions are --accuracy, --gains and
    --correlation.

    Examples:

    `unswayed plan -n 200 -n 1000`

    `unswayed plan --drop 2 --drop 5 --gains 4`

    `unswayed plan predictions/ --edit size-0.05 --max-drop 20`

    `unswayed plan predictions/ --runs 5 --tests 11`
    """
    from unswayed.analyses.drops.planning import PHOTOGRAPHS, pilot_designs, plan_photographs
    from unswayed.analyses.statistics.power import Design
    from unswayed.views.tables import format_table

    asked = bool(photographs or drop or max_drop is not None)
    numbers = tuple(photographs or ())
    if pilot is None:
        guess = Design(expect / 100, gains / 100, accuracy / 100, runs or 1, correlation)
        designs = {("guess", "any"): guess}
        numbers = numbers or (() if asked else PHOTOGRAPHS)
        notes = f"Assumed: accuracy {accuracy:g} %, {gains:g} % of the predictions turn from wrong to right."
    else:
        designs, counts = pilot_designs(pilot, models=model, edits=edit, runs=runs)
        numbers = numbers or (() if asked else (max(counts.values()),))
        notes = f"Pilot: {pilot}, {max(counts.values()):,} photographs; its drops are themselves estimates."
    table = plan_photographs(
        designs, photographs=numbers, drops=tuple(drop or ()), own_drop=pilot is not None and not asked,
        max_drop=max_drop, power=power, level=level, tests=tests, seed=seed,
    )  # fmt: skip
    shown = table if format in ("csv", "json") else table[[one.name for one in table if one.null_count() < len(table)]]
    notes += (
        " Drops are in points, discordance (predictions that change) in %; `power` is computed, `simulated` is the "
        "share of simulated experiments."
    )
    title = f"Photographs for a power of {100 * power:g} % at level {level:g}" + (
        f" shared by {tests} tests" if tests > 1 else ""
    )
    typer.echo(format_table(shown, format, digits=DIGITS, headings=HEADINGS, title=title, notes=notes), nl=False)


DIGITS = {"drop": 2, "max_drop": 2, "discordance": 2, "power": 3, "simulated": 3}
HEADINGS = {"max_drop": "allowed drop"}
