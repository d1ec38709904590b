"""`unswayed fit-head`: a linear head for a source's classes on a model's frozen features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from unswayed.choices import Frame

from .options import Device


def fit_head(
    source: Annotated[
        str, typer.Argument(help="`rival10:PATH?split=train`, `folder:PATH`, …: photographs with masks.")
    ],
    model: Annotated[str, typer.Option("-m", "--model", help="The model whose features are used: `timm:NAME`, ….")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder for the head.")],
    frame: Annotated[Frame, typer.Option(help="How photographs are cropped or squeezed to a square.")] = "object",
    ablate: Annotated[
        Literal["background"] | None, typer.Option(help="Train on pictures with a gray `background`.")
    ] = None,
    preset: Annotated[
        Literal["default", "released"],
        typer.Option(help="`default`: until the validation loss stops falling; `released`: as RIVAL10's fine-tuner."),
    ] = "default",
    epochs: Annotated[int | None, typer.Option(help="Number of epochs [default: the preset's].")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate [default: the preset's].")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N scenes.")] = None,
    per_class: Annotated[int | None, typer.Option(help="Only N scenes of each class.")] = None,
    classes: Annotated[
        str | None, typer.Option(help="Only these classes: names, WNIDs or indices separated by commas.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the validation split and the training.")] = 0,
    device: Device = None,
) -> None:
    """Train a linear head for the classes of SOURCE on a model's frozen features.

    The head is opened as `head:DIR`, like any other model. Its photographs are framed and resized as `unswayed
    sensitivity` does it, and DIR records the framing: commands that frame photographs in another way refuse the head.
    The epoch is chosen on a fifth of each class's photographs, which are not trained on.

    Examples:

    `unswayed fit-head rival10:RIVAL10?split=train -m lite:0 -o heads/whole`

    `unswayed fit-head rival10:RIVAL10?split=train -m lite:0 -o heads/object --preset released --ablate background`

    `unswayed sensitivity rival10:RIVAL10 -m head:heads/whole -m head:heads/object -o results`

    Exit codes: 0 done, 2 wrong command, 4 done but some pictures could not be used.
    """
    from unswayed.evaluation.head_fitting import choose_training, fit_source_head

    from . import EXIT_WITH_FAILURES
    from .progress import progress_line

    training = choose_training(preset, ablate, epochs, learning_rate, seed)
    with progress_line("fit-head", "pictures") as show:
        fitted = fit_source_head(
            source, model, output, training, frame, ablate, limit, per_class, classes, device,
            progress=show,
        )  # fmt: skip
    card = fitted.card
    typer.echo(
        f"{output}: {len(card['labels']['classes'])} classes, {card['pictures']['train']} pictures for training, "
        f"{card['pictures']['validation']} for validation; epoch {card['epoch']}, "
        f"validation accuracy {card['validation_accuracy']:.1%}"
    )
    for name, reason in list(fitted.failures.items())[:20]:
        typer.echo(f"failed: {name}: {reason}", err=True)
    if fitted.failures:
        raise typer.Exit(EXIT_WITH_FAILURES)
