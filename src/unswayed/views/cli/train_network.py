"""`unswayed train-network`: train the compact diffusion network on your own photographs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Device, chosen, command_with

COMMAND = command_with("unswayed.rendering.training:Recipe")


def train_network(
    context: typer.Context,
    photos: Annotated[list[Path], typer.Argument(help="Folders or tar files of photographs.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for the network and the run's state.")],
    begin: Annotated[
        str | None, typer.Option("--from", help="Start from a network: a folder that this command wrote, or `compact`.")
    ] = None,
    critic: Annotated[
        Path | None,
        typer.Option(
            help="FID's Inception network, for a perceptual loss on its features: the file of `unswayed weights fetch "
            "inception`, or a file with its tensors."
        ),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after this time; run the same command to resume.")] = None,
    every: Annotated[int, typer.Option(help="Number of steps between two lines of progress.")] = 1000,
    device: Device = None,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Compile the network first.")] = True,
) -> None:
    """Train the compact diffusion network on your own photographs; running the same command again resumes.

    Example: `unswayed train-network photos/ -o runs/network --minutes 15`, then
    `unswayed build sample -o B --network runs/network`.

    A photograph that looks like one of the sample scenes is refused. Each line of progress is one JSON record with
    the loss for each noise level and the loss on the held-out photographs. `sheet.png` shows reconstructions by the
    network.

    The state is saved every few minutes, and when Ctrl-C or SIGTERM stops the run.

    Exit codes: 0 done or the time is up, 2 wrong command or full disk, 130 stopped.
    """
    import shlex
    import sys

    from unswayed.rendering.training import Recipe
    from unswayed.rendering.training.loop import train
    from unswayed.rendering.training.photos import write_sheet

    from .progress import stoppable

    recipe = chosen(context, Recipe)
    with stoppable(shlex.join(["unswayed", *sys.argv[1:]])):
        trainer = train(
            list(photos),
            output,
            recipe,
            device=device,
            minutes=minutes,
            compiled=compiled,
            every=every,
            critic=critic,
            begin=begin,
        )
        if len(trainer.held):
            write_sheet(trainer.folder, trainer.held)
    print(output)
