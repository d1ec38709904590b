"""`unswayed masks`: masks for photographs that have none."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import chosen, command_with

COMMAND = command_with("unswayed.jobs.settings:EngineSettings")


def masks(
    context: typer.Context,
    pictures: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of photographs, or one photograph.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the masks (NAME.png).")],
    segmenter: Annotated[
        str,
        typer.Option(help="`auto`, `sam2`, `silueta`, `grabcut`, `onnx:FILE` or `transformers:CHECKPOINT`."),
    ] = "auto",
    box: Annotated[
        str | None, typer.Option(metavar="X,Y,W,H", help="A box around the object, in pixels, for every photograph.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", help="Choose between candidate masks by this classifier (see --label)."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The object's class [default: the name of the photograph's folder].")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes [default: one per core, but not more than one for 16 photographs]."),
    ] = None,
    sheet: Annotated[bool, typer.Option(help="Write a contact sheet of the least trusted masks.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per photograph.")] = False,
) -> None:
    """Make a mask for every photograph of a folder.

    A mask is white where the object is. `auto` uses SAM 2, prompted by a salient-object network, where their weights
    are here (`unswayed weights fetch masks`), else GrabCut, which needs nothing and takes the object to be in the
    middle. Masks that are already there are kept, so a run that was stopped resumes. A bad picture is reported and the
    others are done; then the exit code is 4.

        unswayed masks photos -o photos/masks

        unswayed masks dog.jpg -o masks --box 40,60,300,280

        unswayed masks photos -o masks -m lite:0

        unswayed masks photos -o masks --segmenter onnx:u2net.onnx

    `-m` takes, of several candidate masks, the one whose removal hurts the true class most; then there is one process
    for each GPU instead of --workers, or --per-gpu of them, if there are GPUs. The files confidence.csv
    and worst.jpg in the output folder say which masks a person should look at. Then:
    unswayed build "folder:photos?masks=masks" -o BENCH
    """
    import json
    from dataclasses import asdict

    from rich.console import Console

    from unswayed.errors import UserError
    from unswayed.jobs import EngineSettings
    from unswayed.masks.confidence import LOOK_BELOW, SHEET, write_sheet
    from unswayed.masks.make_masks import make_masks
    from unswayed.masks.sam2 import ChosenBy
    from unswayed.masks.segment import default_segmenter, parse_box

    from . import EXIT_WITH_FAILURES
    from .progress import progress_view

    console = Console(stderr=True)
    if label is not None and model is None:
        raise UserError("--label needs a classifier", allowed="-m MODEL --label CLASS")
    engine = chosen(context, EngineSettings)
    if engine.device is not None and model is None:
        raise UserError(f"--device {engine.device} needs a classifier: masks are made on CPUs", allowed="-m MODEL")
    used, better = default_segmenter() if segmenter == "auto" else (segmenter, None)
    if better is not None:
        console.print(f"GrabCut is used; for better masks: {better}", markup=False, highlight=False, soft_wrap=True)
    with progress_view() as show:
        done = sorted(
            make_masks(
                pictures,
                output,
                used,
                None if box is None else parse_box(box),
                ChosenBy(model, label, engine.device) if model else None,
                engine,
                workers,
                show,
            ),
            key=lambda made: made.picture,
        )
    for made in done:
        if as_json:
            print(json.dumps(asdict(made), ensure_ascii=False))
        elif made.status == "failed":
            console.print(made.reason, style="red", markup=False, highlight=False)
    judged = [made for made in done if made.confidence is not None]
    if judged and sheet:
        write_sheet(pictures, output)
    counts = {status: sum(made.status == status for made in done) for status in ("made", "kept", "failed")}
    if not as_json:
        print(", ".join(f"{count} {status}" for status, count in counts.items()) + f": {output}")
        doubtful = sum(made.confidence < LOOK_BELOW for made in judged if made.confidence is not None)
        if doubtful:
            where = f", the worst in {output / SHEET}" if sheet else ""
            print(f"{doubtful} of {len(judged)} masks should be looked at (confidence below {LOOK_BELOW:g}){where}")
    if counts["failed"]:
        raise typer.Exit(EXIT_WITH_FAILURES)
