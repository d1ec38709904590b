"""`unswayed export`: write a benchmark in the format of another library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unswayed.benchmark.exporting import EXPORTERS


def export(
    benchmark: Annotated[Path, typer.Argument(metavar="BENCH", help="The benchmark's folder.")],
    to: Annotated[str, typer.Option(metavar="|".join(EXPORTERS), help="The format.")],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FOLDER|NAME", help="A new folder, or the FiftyOne dataset's name.")
    ],
    push: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="Also upload it to the Hugging Face Hub (`datasets` only)."),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Create the repository as a public one.")] = False,
    predictions: Annotated[
        Path | None, typer.Option("-p", "--predictions", help="Also show these predictions (`fiftyone` only).")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a FiftyOne dataset of the same name.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write a benchmark for other tools: Hugging Face `datasets`, image folders, or FiftyOne.

    - `unswayed export bench --to datasets -o published --push me/birds-e`
    - `unswayed export bench --to imagefolder -o folders`
    - `unswayed export bench --to fiftyone -o birds -p predictions`

    `datasets`: a folder with a dataset card that `datasets.load_dataset` opens; `unswayed import` reads it back with
    the same pictures, hashes and credits. `imagefolder`: FOLDER/edit/class/picture for torchvision and timm.
    `fiftyone`: one group per photograph, with masks, predictions and the flips as a saved view.
    """
    import json
    from dataclasses import asdict

    from unswayed.benchmark import export_benchmark
    from unswayed.errors import UserError

    from .progress import progress_line

    if push is not None and not EXPORTERS.part(to).facts.get("hub"):
        raise UserError(f"--push does not apply to --to {to}", allowed="--to datasets")
    with progress_line("export", "pictures") as show:
        exported = export_benchmark(
            benchmark,
            to,
            output,
            predictions=predictions,
            overwrite=overwrite,
            progress=lambda done, total: show(done, total, ""),
        )
    address = None
    if push is not None:
        from unswayed.benchmark.datasets_folder import push as upload

        address = upload(exported.place, push, public)
    if as_json:
        print(json.dumps({**asdict(exported), "address": address}, ensure_ascii=False))
        return
    unlabeled = f", {exported.unlabeled} without a label" if exported.unlabeled else ""
    print(f"{exported.place}: {exported.pictures} pictures{unlabeled}")
    if address is not None:
        print(address)
