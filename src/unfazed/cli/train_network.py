"""`unfazed train-network`: the compact diffusion network, trained on your own photographs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .devices import Device


def train_network(
    photos: Annotated[list[Path], typer.Argument(help="Folders or tars of photographs.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the network and the run's state go.")],
    steps: Annotated[int, typer.Option(help="Optimiser steps in all.")] = 17500,
    batch: Annotated[int, typer.Option(help="Pictures a step.")] = 128,
    lr: Annotated[float, typer.Option(help="Learning rate before it falls.")] = 2e-3,
    warmup: Annotated[int, typer.Option(help="Steps over which it rises at first.")] = 300,
    decay: Annotated[float, typer.Option(help="Share of the steps, at the end, over which it falls to zero.")] = 0.5,
    begin: Annotated[
        str | None, typer.Option("--from", help="Start from a network: a folder of this command, or `compact`.")
    ] = None,
    critic: Annotated[
        Path | None, typer.Option(help="FID's Inception network (.pt): pictures shall also look right to it.")
    ] = None,
    perceptual: Annotated[float, typer.Option(help="How much the critic counts.")] = 0.04,
    held_out: Annotated[int, typer.Option(help="Photographs left out of training, to measure with.")] = 50,
    seed: Annotated[int, typer.Option(help="Of the weights, the crops and the noise.")] = 0,
    minutes: Annotated[float | None, typer.Option(help="Stop after this long; the same command goes on.")] = None,
    every: Annotated[int, typer.Option(help="Steps between two lines of progress.")] = 1000,
    device: Device = None,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Compile the network first.")] = True,
) -> None:
    """Train the compact diffusion network; stopped or killed, the same command goes on.

    Example: `unfazed train-network photos/ -o runs/network --minutes 15`, then
    `unfazed build sample -o B --network runs/network`.

    A photograph that looks like one of the sample scenes is refused. Each line of progress is one JSON record:
    the loss by noise level, and the loss on the photographs held out. `sheet.png` shows what the network gives back.

    The state is saved every few minutes, and when Ctrl-C or SIGTERM stops the run; killed, it loses what came after.

    Exit codes: 0 done or the time is up, 2 the command was wrong or the disk full, 130 stopped.
    """
    import shlex
    import sys

    from unfazed.training.loop import train
    from unfazed.training.recipe import Recipe
    from unfazed.training.sheet import write_sheet

    from .progress import stoppable

    recipe = Recipe(
        steps=steps,
        batch=batch,
        lr=lr,
        warmup=warmup,
        decay=decay,
        perceptual=perceptual,
        held_out=held_out,
        seed=seed,
    )
    with stoppable(shlex.join(["unfazed", *sys.argv[1:]])):
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
