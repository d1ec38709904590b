"""`unswayed report`: write the report as one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from .track import Track, open_trackers, record_results


def report(
    predictions: Annotated[Path, typer.Argument(help="The folder that `unswayed evaluate` wrote.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.html", help="The report's file.")],
    benchmark: Annotated[
        Path | None, typer.Option(metavar="BENCH", help="The benchmark, if it has been moved since the evaluation.")
    ] = None,
    assets: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write every figure as PNG, SVG and PDF and every table as CSV."),
    ] = None,
    factors: Annotated[
        Path | None, typer.Option(metavar="PREDICTIONS", help="Predictions on ImageNet's validation images.")
    ] = None,
    sensitivity: Annotated[Path | None, typer.Option(metavar="DIR", help="Results of `unswayed sensitivity`.")] = None,
    distribution: Annotated[Path | None, typer.Option(metavar="DIR", help="CSV tables of distribution checks.")] = None,
    repair: Annotated[Path | None, typer.Option(metavar="DIR", help="Results of `unswayed repair`.")] = None,
    title: Annotated[str, typer.Option(help="The report's heading.")] = "How much accuracy do the edits cost?",
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=NAME", help="A shorter name for a model in the report; may be repeated."),
    ] = None,
    flips: Annotated[int, typer.Option(help="Number of right-to-wrong flips to show.")] = 36,
    draw: Annotated[
        Literal["worst", "even"],
        typer.Option(help="Which flips: those that lost most probability, or an even sample of models and edits."),
    ] = "worst",
    heat_maps: Annotated[int, typer.Option(help="Number of flips with heat maps; 0 loads no model.")] = 36,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="For heat maps: open models named in PREDICTIONS that run code or use the network."
        ),
    ] = False,
    resamples: Annotated[int, typer.Option(min=20, help="Number of bootstrap resamples.")] = 1000,
    seed: Annotated[int, typer.Option(help="Random seed of the resamples and of the choice of flips.")] = 0,
    track: Track = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write the report: one HTML file that opens in any browser and needs no internet connection.

        unswayed report predictions -o report.html

        unswayed report predictions -o report.html --benchmark /data/bench --assets figures

        unswayed report predictions -o report.html --name timm:resnet50.a1_in1k=resnet50

        unswayed report predictions -o report.html --factors val-predictions --sensitivity results --heat-maps 0

    It shows a card for each model and a matrix of models and edits, the drop for each edit net of its control, a
    gallery of flips with their controls and heat maps, every photograph in a scatter, how the answers change, drops by
    superclass, the curves of sweeps, and how everything was made. Results in folders named `sensitivity`, `factors`,
    `distribution` or `repair` next to PREDICTIONS are shown as well.
    """
    import json

    if heat_maps and not trust:
        from unswayed.evaluation.named_models import refuse_programs

        refuse_programs(predictions)
    from unswayed.api import report as write_report
    from unswayed.files.storage import address

    from .progress import progress_line

    trackers = open_trackers(track)
    with progress_line("report", "steps") as show:
        written = write_report(
            predictions,
            output,
            benchmark=benchmark,
            assets=assets,
            factors=factors,
            sensitivity=sensitivity,
            distribution=distribution,
            repair=repair,
            title=title,
            names=_names(name or []),
            flips=flips,
            draw=draw,
            heat_maps=heat_maps,
            resamples=resamples,
            seed=seed,
            trust=trust,
            progress=show,
        )
    for note in written.notes:
        typer.echo(f"note: {note}", err=True)
    record_results(predictions, trackers, report=written.path)
    if as_json:
        record = {
            "report": address(written.path),
            "bytes": written.size,
            "verdict": written.verdict,
            "flips": written.flips,
        }
        print(json.dumps({**record, "assets": [str(path) for path in written.assets]}, ensure_ascii=False))
        return
    for sentence in written.verdict:
        typer.echo(sentence, err=True)
    print(address(written.path))


def _names(given: list[str]) -> dict[str, str]:
    """Return model -> shorter name of `MODEL=NAME`; a model may itself contain `=`."""
    from unswayed.errors import UserError

    pairs = [one.rpartition("=") for one in given]
    for (model, _, name), text in zip(pairs, given, strict=True):
        if not model or not name:
            raise UserError(f"--name {text}", allowed="MODEL=NAME, such as timm:resnet50.a1_in1k=resnet50")
    return {model: name for model, _, name in pairs}
