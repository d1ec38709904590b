"""`unfazed demo`: the whole job on what the package carries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .devices import Device


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where everything goes.")] = Path(
        "demo"
    ),
    scenes: Annotated[int, typer.Option(help="Sample scenes, of 20.")] = 6,
    steps: Annotated[
        int, typer.Option(help="Steps over the whole noise schedule; 100 is slower and a little finer.")
    ] = 20,
    seed: Annotated[int, typer.Option(help="Every draw follows from it.")] = 0,
    removal: Annotated[
        str, typer.Option(help="How objects are removed: `patches`, or another method that `unfazed edits` lists.")
    ] = "patches",
    device: Device = None,
    heat_maps: Annotated[int, typer.Option(help="How many flips get heat maps.")] = 36,
) -> None:
    """See it work: six photographs, eleven edits, three real classifiers, a report. No download; a CPU is enough.

        unfazed demo

        unfazed demo -o tryout --scenes 12 --steps 50 --seed 3

    The edits are rendered by the diffusion network that comes with the package; EfficientNet-Lite 0, 1 and 2 answer.
    The same command again goes on where it stopped. The last line is the report's path: open it in a browser.

    Exit codes: 0 done, 2 the command was wrong, 4 done but some pictures could not be made.
    """
    from unfazed.cli import EXIT_WITH_FAILURES
    from unfazed.demo import run_demo
    from unfazed.report.drop_tables import analysis_text

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
    typer.echo(f"\nevery edit at a glance: {done.sheet}\nthe report:")
    print(done.report)
    if done.failures:
        raise typer.Exit(EXIT_WITH_FAILURES)
