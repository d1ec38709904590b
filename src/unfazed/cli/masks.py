"""`unfazed masks`: make masks for photographs that have none."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def masks(
    pictures: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of photographs, or one photograph.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the masks (NAME.png).")],
    segmenter: Annotated[
        str, typer.Option(help="`grabcut`, or `onnx:FILE`: a salient-object network such as U²-Net.")
    ] = "grabcut",
    box: Annotated[
        str | None, typer.Option(metavar="X,Y,W,H", help="A box around the object, in pixels, for every photograph.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per photograph.")] = False,
) -> None:
    """Make a mask for every photograph of a folder.

    A mask is white where the object is. Without `--box` the object is assumed to be in the middle. Existing masks are
    kept, so running the same command again resumes. A photograph that cannot be read is reported and skipped; the
    exit code is then 4.

        unfazed masks photos -o photos/masks

        unfazed masks dog.jpg -o masks --box 40,60,300,280

        unfazed masks photos -o masks --segmenter onnx:u2net.onnx

    Look at the masks before you build a benchmark with them: unfazed build "folder:photos?masks=masks" -o BENCH
    """
    import json
    from collections import Counter
    from dataclasses import asdict

    from rich.console import Console
    from rich.progress import track

    from unfazed.cli import EXIT_WITH_FAILURES
    from unfazed.sources.make_masks import make_masks
    from unfazed.sources.segment import parse_box

    console = Console(stderr=True)
    counts: Counter[str] = Counter()
    results = make_masks(pictures, output, segmenter, None if box is None else parse_box(box))
    for made in track(results, "masks", console=console, transient=True):
        counts[made.status] += 1
        if as_json:
            print(json.dumps(asdict(made), ensure_ascii=False))
        elif made.status == "failed":
            console.print(made.reason, style="red", markup=False, highlight=False)
    if not as_json:
        print(f"{counts['made']} made, {counts['kept']} kept, {counts['failed']} failed: {output}")
    if counts["failed"]:
        raise typer.Exit(EXIT_WITH_FAILURES)
