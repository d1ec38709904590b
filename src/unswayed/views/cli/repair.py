"""`unswayed repair`: fine-tune a classifier on edited data and measure before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unswayed.choices import RendererName

from .options import Device, chosen, command_with

COMMAND = command_with("unswayed.repair.settings:RepairSettings")


def repair(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Labeled photographs with masks: `folder:PATH` …")],
    model: Annotated[str, typer.Option("-m", "--model", help="`lite:0`, `timm:NAME`, `repaired:DIR` …")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder of the repaired model.")],
    new_head: Annotated[
        bool, typer.Option("--new-head", help="Train a new classification layer for the source's classes.")
    ] = False,
    predictions: Annotated[
        Path | None,
        typer.Option("--from", metavar="PREDICTIONS", help="Draw more of the edits that cost this model the most."),
    ] = None,
    mixture: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Weights and ranges of the edits, as of `EditMixture.to_json`."),
    ] = None,
    also: Annotated[
        str | None, typer.Option(metavar="images:PATH", help="Labeled photographs without masks, trained on as well.")
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option(metavar="images:PATH", help="Also measure on this labeled folder; repeatable.")
    ] = None,
    benchmark: Annotated[
        Path | None, typer.Option(metavar="BENCH", help="Measure on this benchmark instead of photographs held out.")
    ] = None,
    recipe: Annotated[
        str, typer.Option(help="The edits to measure on photographs held out.")
    ] = "original,background-random,size-0.05,position,direction",
    renderer: Annotated[RendererName, typer.Option(help="How those edits are rendered.")] = "paste",
    probability: Annotated[
        float | None, typer.Option(help="Share of the pictures that are edited [default: that of --mixture, or 0.7].")
    ] = None,
    device: Device = None,
    workers: Annotated[int | None, typer.Option(help="Processes that prepare pictures.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write the repaired model as DIR/model.onnx.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table of before and after as JSON.")] = False,
) -> None:
    """Fine-tune a classifier on edits of its photographs; measure before and after.

        unswayed repair folder:photos -m timm:resnet50.a1_in1k -o repaired

        unswayed repair folder:pets -m lite:0 -o pets-model --new-head --from predictions

        unswayed repair imagenet-s:/data/S919 -m timm:resnet50 -o better --also images:train --test images:v2

    A plain fine-tune with the same photographs, crops and number of steps is always made as control. The folder then
    holds the repaired model (`evaluate -m repaired:DIR`), the control (`repaired:DIR/control`), the benchmark and the
    predictions it was measured by, and `repair.json`; `unswayed report DIR/predictions` shows all of it. Stopped or
    killed, the same command resumes.

    Exit codes: 0 the average drop falls against the control, 1 it rises, or the originals certainly lose more than two
    points, 2 the command cannot be run or the disk is full, 3 neither can be told, 130 interrupted.
    """
    import json
    import shlex
    import sys

    from unswayed.errors import UserError
    from unswayed.files.records import read_object
    from unswayed.repair import RepairSettings
    from unswayed.repair import repair as run_repair
    from unswayed.repair.drawing import mixture_from, read_mixture
    from unswayed.repair.measuring import EXITS
    from unswayed.repair.run import RESULT, read_result
    from unswayed.views.report.repair_section import repair_table
    from unswayed.views.tables import format_table

    from .progress import progress_view, stoppable

    edits = read_mixture(mixture, **({} if probability is None else {"probability": probability}))
    if predictions is not None:
        if mixture is not None and "weights" in read_object(mixture):
            raise UserError(
                f"both --from and {mixture} give weights of the edits", allowed="one of them; --from keeps the ranges"
            )
        edits = mixture_from(predictions, model, edits)
    settings = chosen(context, RepairSettings, mixture=edits)
    with progress_view() as show, stoppable(shlex.join(["unswayed", *sys.argv[1:]])):
        done = run_repair(
            source,
            model,
            output,
            settings,
            new_head=new_head,
            also=also,
            tests=test or (),
            benchmark=benchmark,
            recipe=recipe,
            renderer=renderer,
            device=device,
            workers=workers,
            onnx=onnx,
            show=show,
            note=lambda text: typer.echo(text, err=True),
        )
    for line in done.warnings:
        typer.echo(f"warning: {line}", err=True)
    if as_json:
        print(json.dumps(read_result(output), ensure_ascii=False))
    else:
        title = f"{done.verdict}: {done.reason}"
        print(
            format_table(repair_table(read_result(output)), title=title, digits=1, notes=f"{output / RESULT}"), end=""
        )
        counts = done.counts
        print(
            f"{counts['train']} photographs trained on, {counts['train_without_mask']} of them without a mask and so "
            f"never edited; {counts['validation']} to choose the epoch, {counts['held_out']} held out, "
            f"{counts['unusable']} unusable"
        )
    raise typer.Exit(EXITS[done.verdict])
