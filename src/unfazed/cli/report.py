"""`unfazed report`: one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    predictions: Annotated[Path, typer.Argument(help="The folder that `unfazed evaluate` wrote.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.html", help="Where the report goes.")],
    benchmark: Annotated[
        Path | None, typer.Option(metavar="BENCH", help="The benchmark, where it is not where the cards say.")
    ] = None,
    assets: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also every figure as PNG, SVG, PDF and every table as CSV.")
    ] = None,
    factors: Annotated[
        Path | None, typer.Option(metavar="PREDICTIONS", help="Predictions over ImageNet's validation images.")
    ] = None,
    sensitivity: Annotated[Path | None, typer.Option(metavar="DIR", help="What `unfazed sensitivity` wrote.")] = None,
    distribution: Annotated[Path | None, typer.Option(metavar="DIR", help="CSV tables of distribution checks.")] = None,
    title: Annotated[str, typer.Option(help="The report's heading.")] = "How far do the answers move?",
    flips: Annotated[int, typer.Option(help="How many right-to-wrong flips to show.")] = 36,
    heat_maps: Annotated[int, typer.Option(help="How many of them with heat maps; 0 opens no model.")] = 36,
    resamples: Annotated[int, typer.Option(min=20, help="Resamples of the photographs.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the resamples and of which flips are shown.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print what came of it as JSON.")] = False,
) -> None:
    """Write the report: one HTML file that opens by double click, needs no network and prints well.

        unfazed report predictions -o report.html

        unfazed report predictions -o report.html --benchmark /data/bench --assets figures

        unfazed report predictions -o report.html --factors val-predictions --sensitivity results --heat-maps 0

    In it: the verdict in three sentences, drops by edit with intervals, accuracy against drop, curves of sweeps, worst
    classes, a gallery of flips with heat maps, and how everything was made. What `unfazed sensitivity` and others wrote
    into folders named `sensitivity`, `factors` or `distribution` beside PREDICTIONS is shown as well.
    """
    import json

    from unfazed.api import report as write_report

    from .progress import progress_line

    with progress_line("report", "steps") as show:
        written = write_report(
            predictions,
            output,
            benchmark=benchmark,
            assets=assets,
            factors=factors,
            sensitivity=sensitivity,
            distribution=distribution,
            title=title,
            flips=flips,
            heat_maps=heat_maps,
            resamples=resamples,
            seed=seed,
            progress=show,
        )
    if as_json:
        record = {
            "report": str(written.path),
            "bytes": written.size,
            "verdict": written.verdict,
            "flips": written.flips,
        }
        print(json.dumps({**record, "assets": [str(path) for path in written.assets]}, ensure_ascii=False))
        return
    for sentence in written.verdict:
        typer.echo(sentence, err=True)
    print(written.path)
