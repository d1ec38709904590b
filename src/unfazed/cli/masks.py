"""`unfazed masks`: masks for photographs that have none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from unfazed.sources.segment import Choice


def masks(
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
    sheet: Annotated[bool, typer.Option(help="Write a contact sheet of the least trusted masks.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per photograph.")] = False,
) -> None:
    """Make a mask for every photograph of a folder.

    A mask is white where the object is. `auto` uses SAM 2, prompted by a salient-object network, where their weights
    are here (`unfazed weights fetch masks`), else GrabCut, which needs nothing and takes the object to be in the
    middle. Masks that are already there are kept, so a run that was stopped resumes. A bad picture is reported and the
    others are done; then the exit code is 4.

        unfazed masks photos -o photos/masks

        unfazed masks dog.jpg -o masks --box 40,60,300,280

        unfazed masks photos -o masks -m lite:0

        unfazed masks photos -o masks --segmenter onnx:u2net.onnx

    `-m` takes, of several candidate masks, the one whose removal hurts the true class most. The files confidence.csv
    and worst.jpg in the output folder say which masks a person should look at. Then:
    unfazed build "folder:photos?masks=masks" -o BENCH
    """
    import json
    from dataclasses import asdict

    from rich.console import Console
    from rich.progress import track

    from unfazed.cli import EXIT_WITH_FAILURES
    from unfazed.errors import UserError
    from unfazed.files import write_bytes
    from unfazed.measures.mask_confidence import LOOK_BELOW
    from unfazed.sources.confidences import FILE
    from unfazed.sources.make_masks import make_masks
    from unfazed.sources.mask_sheet import confidence_csv, mask_sheet
    from unfazed.sources.segment import default_segmenter, parse_box

    console = Console(stderr=True)
    if label is not None and model is None:
        raise UserError("--label needs a classifier", allowed="-m MODEL --label CLASS")
    used, better = default_segmenter() if segmenter == "auto" else (segmenter, None)
    if better is not None:
        console.print(f"GrabCut is used; for better masks: {better}", markup=False, highlight=False, soft_wrap=True)
    results = make_masks(
        pictures, output, used, None if box is None else parse_box(box), _chooser(model, label) if model else None
    )
    done = []
    for made in track(results, "masks", console=console, transient=True):
        done.append(made)
        if as_json:
            print(json.dumps(asdict(made), ensure_ascii=False))
        elif made.status == "failed":
            console.print(made.reason, style="red", markup=False, highlight=False)
    now = [made for made in done if made.confidence is not None]
    if now:
        write_bytes(output / FILE, confidence_csv(output / FILE, now))
        if sheet:
            write_bytes(output / "worst.jpg", mask_sheet(pictures, now))
    counts = {status: sum(made.status == status for made in done) for status in ("made", "kept", "failed")}
    if not as_json:
        print(", ".join(f"{count} {status}" for status, count in counts.items()) + f": {output}")
        doubtful = sum(made.confidence < LOOK_BELOW for made in now if made.confidence is not None)
        if doubtful:
            where = f", the worst in {output / 'worst.jpg'}" if sheet else ""
            print(f"{doubtful} of {len(now)} masks should be looked at (confidence below {LOOK_BELOW:g}){where}")
    if counts["failed"]:
        raise typer.Exit(EXIT_WITH_FAILURES)


def _chooser(name: str, label: str | None) -> Callable[[str], Choice]:
    """A function from a picture's name to how its candidates are chosen between: by the class it is filed under."""
    from unfazed.errors import UserError
    from unfazed.models import open_model
    from unfazed.models.object_choice import most_needed
    from unfazed.sources.labeled import class_folder

    model = open_model(name)

    def choice_for(picture: str) -> Choice:
        given = label or class_folder(picture)
        if given is None:
            raise UserError(f"{picture} lies in no class folder, so its class is not known", allowed="--label CLASS")
        return most_needed(model, model.labels.index(given))

    return choice_for
