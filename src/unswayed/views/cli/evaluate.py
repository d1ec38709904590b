"""`unswayed evaluate`: classify the pictures of a benchmark with models and store every prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import chosen, command_with
from .track import Track, open_trackers, record_results

COMMAND = command_with("unswayed.evaluation.settings:EvaluateSettings")


def evaluate(
    context: typer.Context,
    benchmark: Annotated[str, typer.Argument(metavar="BENCH|images:FOLDER", help="A benchmark or a labeled folder.")],
    model: Annotated[
        list[str],
        typer.Option(
            "-m",
            "--model",
            help="`lite:0`, `ALIAS=timm:NAME`, `python:FILE.py:function`, …; may be repeated.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PREDICTIONS", help="The predictions' folder.")],
    track: Track = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Classify every picture with every model and store every prediction.

        unswayed evaluate bench -m lite:0 -m lite:1 -m lite:2 -o predictions

        unswayed evaluate bench -m timm:resnet50.a1_in1k -m timm:resnet50.a1_in1k+tencrop -o predictions

        unswayed evaluate images:/data/imagenet/val -m torchvision:resnet50/IMAGENET1K_V2 -o predictions

        unswayed evaluate bench -m python:mine.py:build -o predictions --transform paper

    Pictures are decoded once for all models. Each model gets one Parquet file and one card (JSON). Running the same
    command again does only what is missing; a model whose weights have changed is evaluated again. If a model fails,
    the failure is recorded and the others continue. A benchmark whose files do not match its manifest is refused. See
    `unswayed models` for the names of models.

    Exit codes: 0 done, 2 wrong command or no model could be evaluated, 4 done but some models failed.
    """
    import json
    from dataclasses import asdict

    from unswayed.models.opening import check_head

    from . import EXIT_USAGE, EXIT_WITH_FAILURES

    for one in model:
        check_head(one)
    from unswayed.evaluation import EvaluateSettings, cards, run_evaluation
    from unswayed.files.storage import address, shown

    from .progress import next_command, progress_view, unfinished_shards

    settings = chosen(context, EvaluateSettings)
    trackers = open_trackers(track)
    with progress_view() as show:
        done = run_evaluation(benchmark, model, output, settings, show=show)
    if done.unfinished:
        unfinished_shards(done.unfinished, output)
    for line in done.remarks:
        typer.echo(f"warning: {line}", err=True)
    for lines in done.warnings.values():
        for line in lines:
            typer.echo(f"warning: {line}", err=True)
    for name, reason in done.failed.items():
        typer.echo(f"failed: {name}: {shown(reason)}", err=True)
    there = [*done.scored, *done.skipped]
    if as_json:
        record = asdict(done)
        print(json.dumps({"predictions": address(record.pop("folder")), **record}, ensure_ascii=False))
    elif there:
        known = cards(output)
        print(f"{address(done.folder)}: {done.pictures} pictures")
        called = {known: f"{name} (stored as {known})" for name, known in done.stored_as.items()}
        for name in there:
            originals = known[name]["originals"]
            right = (
                "–" if originals["accuracy"] is None else f"{originals['accuracy']:.1%} of {originals['n']} originals"
            )
            among = known[name].get("subset")
            if among and among["accuracy"] is not None:
                right = (
                    f"{among['accuracy']:.1%} over the {among['classes']} classes of the folder, all classes: {right}"
                )
            print(f"  {called.get(name, name)}: {right}" + (" (already evaluated)" if name in done.skipped else ""))
        next_command(f"unswayed analyze {address(done.folder)}")
    if there:
        record_results(output, trackers, there)
    if done.failed:
        raise typer.Exit(EXIT_WITH_FAILURES if there or done.unfinished else EXIT_USAGE)
